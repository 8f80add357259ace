"""What modifiers do to a date: as SQLite does it, on wall clocks, and over many missed runs."""

import sqlite3
from contextlib import closing
from datetime import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core import bounds
from holdfast.core.errors import BadInput
from holdfast.core.repeat import after_ms, latest_run_ms, parse_repeat, zone_of
from tests.core.moments import BERLIN, NEW_YORK, ODD_ZONES, following, ms, next_ms, text_of

ZONES = st.sampled_from([BERLIN, NEW_YORK, *ODD_ZONES])

# ── the calendar, as SQLite has it ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("modifiers", "base", "expected"),
    [
        ("+1 MONTH", "2025-01-31 10:00", "2025-03-03 10:00:00"),
        ("+1 MONTH", "2024-01-31 10:00", "2024-03-02 10:00:00"),
        ("+1 MONTH", "2026-03-31", "2026-05-01 00:00:00"),
        ("-1 MONTH", "2026-03-31", "2026-03-03 00:00:00"),
        ("+12 MONTHS", "2026-12-31", "2027-12-31 00:00:00"),
        ("-11 MONTHS", "2026-11-15", "2025-12-15 00:00:00"),
        ("+1 YEAR", "2024-02-29 23:59:59", "2025-03-01 23:59:59"),
        ("+4 YEARS", "2024-02-29", "2028-02-29 00:00:00"),
        ("-1 YEAR", "2024-02-29", "2023-03-01 00:00:00"),
        ("+76 YEARS", "2024-02-29", "2100-03-01 00:00:00"),
        ("WEEKDAY 0", "2026-11-15 13:45:30", "2026-11-15 13:45:30"),
        ("WEEKDAY 1", "2026-11-15 13:45:30", "2026-11-16 13:45:30"),
        ("WEEKDAY 6", "2026-11-15 13:45:30", "2026-11-21 13:45:30"),
        ("START OF HOUR", "2026-11-15 13:45:30", "2026-11-15 13:00:00"),
        ("START OF HOUR, +1 HOUR", "2026-12-31 23:45:30", "2027-01-01 00:00:00"),
        ("START OF DAY", "2026-11-15 13:45:30", "2026-11-15 00:00:00"),
        ("START OF MONTH", "2026-11-15 13:45:30", "2026-11-01 00:00:00"),
        ("START OF YEAR", "2026-11-15 13:45:30", "2026-01-01 00:00:00"),
        ("START OF MONTH, +1 MONTH, -1 DAY", "2026-02-10 08:00", "2026-02-28 00:00:00"),
        ("+99999999 SECONDS", "2026-11-15", "2030-01-15 09:46:39"),
    ],
)
def test_month_ends_leap_days_and_weekdays_are_those_of_sqlite(modifiers, base, expected):
    assert following(f"FINISHED, {modifiers}", base) == expected


def test_a_next_run_is_a_whole_second_rounded_down():
    assert next_ms("STARTED, +1 SECOND", 5_999) == 6_000


SIGNED = st.sampled_from("+-")
MODIFIERS = st.one_of(
    st.builds("{}{} SECONDS".format, SIGNED, st.integers(0, 99_999_999)),
    st.builds(
        "{}{} {}{}".format,
        SIGNED,
        st.integers(0, 999),
        st.sampled_from(["MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]),
        st.sampled_from(["", "S"]),
    ),
    st.builds("START OF {}".format, st.sampled_from(["DAY", "MONTH", "YEAR"])),
    st.builds("WEEKDAY {}".format, st.integers(0, 6)),
)


def in_sqlite(at_ms: int, modifiers: list[str]) -> str | None:
    """What SQLite itself makes of a moment and modifiers."""
    start = f"{text_of(at_ms)}.{at_ms % 1000:03d}"
    marks = ", ?" * len(modifiers)
    with closing(sqlite3.connect(":memory:")) as db:
        found: str | None = db.execute(f"SELECT datetime(?{marks})", (start, *modifiers)).fetchone()[0]
    return found


def within(text: str | None, first: str, last: str) -> bool:
    """Whether SQLite gave a time, and one between these two."""
    return text is not None and not text.startswith("-") and first <= text <= last


@given(at_ms=st.integers(0, bounds.MAX_TIME_MS), modifiers=st.lists(MODIFIERS, min_size=1, max_size=4))
@example(at_ms=1_706_695_200_000, modifiers=["+1 MONTH"])
@example(at_ms=951_782_400_999, modifiers=["-1 YEAR", "WEEKDAY 0"])
def test_in_utc_modifiers_do_exactly_what_sqlite_does(at_ms, modifiers):
    expected = in_sqlite(at_ms, modifiers)

    try:
        found = next_ms(", ".join(["FINISHED", *modifiers]), at_ms)
    except BadInput:
        on_the_way = [in_sqlite(at_ms, modifiers[:count]) for count in range(1, len(modifiers))]
        beyond = any(not within(text, "0001-01-01", "9999-12-31 23:59:59") for text in on_the_way)
        assert beyond or not within(expected, "1970-01-01", "2248-09-26 15:10:22")
    else:
        assert text_of(found) == expected


@given(at_ms=st.integers(0, ms("2200-01-01")), modifier=MODIFIERS)
def test_a_single_modifier_agrees_with_sqlite_too(at_ms, modifier):
    expected = in_sqlite(at_ms, [modifier])

    try:
        found = after_ms(modifier, at_ms)
    except BadInput:
        assert not within(expected, "1970-01-01", "2248-09-26 15:10:22")
    else:
        assert text_of(found) == expected


# ── wall clocks ──────────────────────────────────────────────────────────────────────────────────


def test_in_a_time_zone_days_begin_at_local_midnight():
    already_the_16th = ms("2026-11-15 23:30")

    found = next_ms("FINISHED, +1 DAY, START OF DAY, +4 HOURS", already_the_16th, BERLIN)

    assert text_of(found) == "2026-11-17 03:00:00"


def test_hours_begin_where_the_local_clock_says_so():
    assert following("FINISHED, START OF HOUR", "2026-11-15 13:45", "Asia/Kolkata") == "2026-11-15 13:00:00"


@pytest.mark.parametrize(
    ("tz", "before", "expected"),
    [
        (BERLIN, "2026-03-28 02:30", "2026-03-29 03:30:00"),
        (NEW_YORK, "2026-03-07 02:30", "2026-03-08 03:30:00"),
    ],
)
def test_a_wall_time_that_does_not_exist_moves_forward_by_the_gap(tz, before, expected):
    assert following("SCHEDULED, +1 DAY", before, tz) == expected


@pytest.mark.parametrize(
    ("tz", "before", "expected"),
    [
        (BERLIN, "2026-10-24 02:30", "2026-10-25 00:30:00"),
        (NEW_YORK, "2026-10-31 01:30", "2026-11-01 05:30:00"),
    ],
)
def test_of_a_wall_time_that_comes_twice_the_first_counts(tz, before, expected):
    found = next_ms("SCHEDULED, +1 DAY", ms(before, tz), tz)

    assert text_of(found) == expected


@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24", "2026-10-25"])
def test_four_in_the_morning_is_four_whatever_happened_at_night(day):
    expected = datetime.fromisoformat(day).replace(day=int(day[-2:]) + 1)

    found = following("FINISHED, +1 DAY, START OF DAY, +4 HOURS", f"{day} 12:00", BERLIN)

    assert found == f"{expected:%Y-%m-%d} 04:00:00"


def test_a_midnight_that_does_not_exist_is_one_o_clock():
    assert (
        following("FINISHED, +1 DAY, START OF DAY", "2018-11-03 12:00", "America/Sao_Paulo")
        == "2018-11-04 01:00:00"
    )


def test_a_step_forward_within_the_second_of_two_equal_hours_stays_in_it():
    """Else a job that repeats every ten minutes would run without a pause for an hour."""
    second_pass = ms("2026-10-25 02:10", BERLIN, fold=1)

    found = next_ms("FINISHED, +10 MINUTES", second_pass, BERLIN)

    assert found == second_pass + 10 * bounds.MINUTE_MS


@given(
    at_ms=st.integers(ms("2000-01-01"), ms("2040-01-01")),
    tz=ZONES,
    step=st.builds(
        "+{} {}".format, st.integers(1, 999), st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY"])
    ),
)
@example(at_ms=ms("2026-10-25 01:10"), tz=BERLIN, step="+10 MINUTE")
def test_a_step_forward_never_leads_back_in_any_zone(at_ms, tz, step):
    found = next_ms(f"FINISHED, {step}", at_ms, tz)

    assert found > at_ms - at_ms % 1000


@pytest.mark.parametrize(
    "tz",
    [
        "",
        "Mars/Olympus",
        "America",
        "../etc/passwd",
        "/etc/localtime",
        "localtime",
        "right/UTC",
        "a\0b",
        "Zürich",
    ]
    + ["x" * 2_000, None, 1],
)
def test_a_time_zone_that_is_not_one_everywhere_is_refused_by_name(tz):
    with pytest.raises(BadInput) as refused:
        zone_of(tz)

    assert refused.value.name == "tz"


# ── the latest of many missed ones ───────────────────────────────────────────────────────────────


def test_the_latest_missed_moment_is_found_without_walking_all_of_them():
    first = ms("1990-01-01 00:00:05")

    found = latest_run_ms(
        parse_repeat("SCHEDULED, +7 SECONDS"), first_ms=first, until_ms=ms("2026-11-15 12:00")
    )

    assert (found - first) % 7_000 == 0
    assert 0 <= ms("2026-11-15 12:00") - found < 7_000


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("SCHEDULED, START OF HOUR, +1 HOUR", "2026-11-18 12:00:00"),
        ("SCHEDULED, +1 DAY, START OF DAY, +4 HOURS", "2026-11-18 04:00:00"),
        ("SCHEDULED, +1 MONTH", "2026-11-01 00:00:00"),
        ("SCHEDULED, +1 MINUTE, WEEKDAY 1", "2026-11-16 23:59:00"),
        ("SCHEDULED, START OF DAY", "1990-01-01 00:00:00"),
    ],
)
def test_the_latest_missed_moment_of_a_repeat_that_snaps_is_one_of_its_own(repeat, expected):
    found = latest_run_ms(parse_repeat(repeat), first_ms=ms("1990-01-01"), until_ms=ms("2026-11-18 12:30"))

    assert text_of(found) == expected


@given(
    first_ms=st.integers(ms("2020-01-01") // 1000, ms("2021-01-01") // 1000).map(lambda s: s * 1000),
    far=st.integers(0, 300 * bounds.DAY_MS),
    repeat=st.sampled_from(
        [
            "+1 HOUR",
            "+7 HOURS",
            "+50 MINUTES",
            "START OF DAY, +1 DAY",
            "+1 HOUR, WEEKDAY 1",
            "START OF HOUR, +2 HOURS",
        ]
    ),
)
@example(
    first_ms=1_608_945_713_000, far=21_596_061_000, repeat="START OF HOUR, +2 HOURS"
)  # a short first step
def test_striding_finds_what_walking_finds(first_ms, far, repeat):
    until_ms = first_ms + far
    expected = first_ms
    while (after := next_ms(f"SCHEDULED, {repeat}", expected)) <= until_ms:
        expected = after

    found = latest_run_ms(parse_repeat(f"SCHEDULED, {repeat}"), first_ms=first_ms, until_ms=until_ms)

    assert found == expected
