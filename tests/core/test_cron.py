"""Cron lines: their moments, summer time as in Debian's cron, and what is refused."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import bounds
from holdfast.core.errors import BadInput
from holdfast.core.repeat import latest_cron_ms, next_cron_ms, parse_cron
from tests.core.moments import BERLIN, NEW_YORK, ODD_ZONES, ms, text_of

HOUR = bounds.HOUR_MS
ZONES = st.sampled_from([BERLIN, NEW_YORK, *ODD_ZONES])


def cron_ms(line: str, tz: str, after: int) -> int:
    """The next moment of a cron line that has one."""
    found = next_cron_ms(line, tz, after)
    assert found is not None
    return found


def cron(line: str, after: str, tz: str = "UTC") -> str:
    """The same, in wall time."""
    return text_of(cron_ms(line, tz, ms(after, tz)), tz)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("*/15 * * * *", "2026-11-15 14:00:00"),
        ("0 4 * * *", "2026-11-16 04:00:00"),
        ("30 6 * * 1-5", "2026-11-16 06:30:00"),
        ("30 6 * * MON-FRI", "2026-11-16 06:30:00"),
        ("0 0 1 JAN *", "2027-01-01 00:00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 0 L * *", "2026-11-30 00:00:00"),
        ("0 0 * * 0", "2026-11-22 00:00:00"),
        ("0 0 * * 7", "2026-11-22 00:00:00"),
        ("0 0 13 * FRI", "2026-11-20 00:00:00"),
        ("0 0 */2 * MON", "2026-11-23 00:00:00"),
        ("  0\t4   * * *  ", "2026-11-16 04:00:00"),
        ("@hourly", "2026-11-15 14:00:00"),
        ("@daily", "2026-11-16 00:00:00"),
        ("@midnight", "2026-11-16 00:00:00"),
        ("@weekly", "2026-11-22 00:00:00"),
        ("@monthly", "2026-12-01 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
        ("@ANNUALLY", "2027-01-01 00:00:00"),
    ],
)
def test_a_cron_line_names_its_next_moment(line, expected):
    assert cron(line, "2026-11-15 13:45:30") == expected


def test_the_next_moment_is_strictly_after_the_one_asked_about():
    four = ms("2026-11-16 04:00")

    assert next_cron_ms("0 4 * * *", "UTC", four - 1) == four
    assert next_cron_ms("0 4 * * *", "UTC", four) == four + 24 * HOUR


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *"])
def test_a_day_that_never_comes_has_no_next_moment(line):
    assert parse_cron(line) == line
    assert next_cron_ms(line, "UTC", 0) is None


def test_past_the_last_year_there_is_no_next_moment():
    assert next_cron_ms("0 0 1 1 *", "UTC", bounds.MAX_TIME_MS) is None


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("60 * * * *", "minute"),
        ("x * * * *", "minute"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* 1.5 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * 32 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * JANUARY *", "month"),
        ("* * * * 8", "day-of-week"),
        ("* * * * MON#6", "day-of-week"),
        ("* * * * L", "day-of-week"),
    ],
)
def test_a_bad_cron_line_is_refused_with_the_name_of_its_field(line, field):
    with pytest.raises(BadInput, match=f"cron {field} is"):
        parse_cron(line)


@pytest.mark.parametrize(
    "line",
    ["", " ", "* * * *", "* * * * * *", "@reboot", "@", "0 4 * * *\n", "0 4 * *\0*", "ſun", "* * * * ſun"]
    + ["0," * 1_000 + "0 * * * *", None, 5],
)
def test_what_is_no_cron_line_at_all_is_refused(line):
    with pytest.raises(BadInput, match="cron is"):
        parse_cron(line)


@given(st.lists(st.text(alphabet="0123456789*/-,L#WMON?", min_size=1, max_size=8), min_size=5, max_size=5))
def test_no_cron_line_fails_otherwise_than_by_being_refused(fields):
    try:
        line = parse_cron(" ".join(fields))
    except BadInput:
        return
    found = next_cron_ms(line, "UTC", 0)
    assert found is None or found > 0


def test_a_cron_line_in_a_bad_time_zone_is_refused():
    with pytest.raises(BadInput, match="tz"):
        parse_cron("0 4 * * *", "Mars/Olympus")


@pytest.mark.parametrize(
    ("tz", "after", "expected"),
    [
        (BERLIN, "2026-03-28 12:00", "2026-03-29 03:00:00"),
        (NEW_YORK, "2026-03-07 12:00", "2026-03-08 03:00:00"),
    ],
)
def test_a_fixed_time_within_a_gap_comes_at_its_end_and_only_once(tz, after, expected):
    assert cron("30 2 * * *", after, tz) == expected
    assert cron("30 2 * * *", expected, tz) != expected


@pytest.mark.parametrize(
    ("tz", "line", "time"),
    [(BERLIN, "30 2 * * *", "2026-10-25 02:30"), (NEW_YORK, "30 1 * * *", "2026-11-01 01:30")],
)
def test_a_fixed_time_that_comes_twice_fires_the_first_time_only(tz, line, time):
    first = ms(time, tz)

    assert cron_ms(line, tz, first - 1) == first
    for minutes in (0, 15, 45, 60, 75):
        assert cron_ms(line, tz, first + minutes * bounds.MINUTE_MS) == first + 25 * HOUR


def test_a_line_with_a_star_fires_in_both_of_two_equal_hours():
    moments = [ms("2026-10-25 01:30", BERLIN)]
    while len(moments) < 5:
        moments.append(cron_ms("*/30 * * * *", BERLIN, moments[-1]))

    walls = [text_of(moment, BERLIN)[11:16] for moment in moments]
    assert walls == ["01:30", "02:00", "02:30", "02:00", "02:30"]
    assert {late - early for early, late in pairwise(moments)} == {HOUR // 2}


LINES = st.sampled_from(
    [
        "*/7 * * * *",
        "30 2 * * *",
        "0 */5 * * *",
        "15 1,2,3 * * *",
        "* 2 * * *",
        "0 0 * * 1",
        "59 23 L * *",
        "5 0 1 * *",
    ]
)


@given(
    line=LINES,
    tz=ZONES,
    after=st.integers(ms("2005-01-01"), ms("2035-01-01")),
)
def test_in_every_zone_the_next_moment_is_ahead_and_none_lies_between(line, tz, after):
    found = cron_ms(line, tz, after)

    assert found > after
    assert next_cron_ms(line, tz, (after + found) // 2) == found


@given(
    line=LINES,
    tz=st.sampled_from(["UTC", BERLIN, NEW_YORK]),
    start=st.integers(ms("2026-01-01"), ms("2026-12-01")),
    far=st.integers(0, 3 * bounds.DAY_MS),
)
def test_the_latest_cron_moment_is_the_last_one_that_stepping_finds(line, tz, start, far):
    first = expected = cron_ms(line, tz, start)
    while (after := cron_ms(line, tz, expected)) <= first + far:
        expected = after

    assert latest_cron_ms(line, tz, first_ms=first, until_ms=first + far) == expected


def test_the_latest_cron_moment_of_ten_years_is_found_at_once(monkeypatch):
    calls: list[int] = []
    counted = next_cron_ms

    def counting(line: str, tz: str, after: int) -> int | None:
        calls.append(after)
        return counted(line, tz, after)

    monkeypatch.setattr("holdfast.core.repeat.next_cron_ms", counting)
    first = ms("2016-01-01 00:00")

    found = latest_cron_ms("* * * 1 *", "UTC", first_ms=first, until_ms=ms("2026-11-15"))

    assert text_of(found) == "2026-01-31 23:59:00"
    assert len(calls) < 60
