"""Durations and moments as people write them, and what is refused."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import bounds
from holdfast.core.errors import BadInput
from holdfast.core.units import duration_ms, iso, moment_ms

SECOND, MINUTE, HOUR, DAY = bounds.SECOND_MS, bounds.MINUTE_MS, bounds.HOUR_MS, bounds.DAY_MS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        (90, 90 * SECOND),
        (1.5, 1_500),
        (0.0015, 2),
        (2.675, 2_675),
        (timedelta(minutes=2), 2 * MINUTE),
        (timedelta(microseconds=1_400), 1),
        (timedelta(0), 0),
        ("0", 0),
        ("0s", 0),
        ("90", 90 * SECOND),
        ("1.5", 1_500),
        ("250ms", 250),
        ("1.5h", 90 * MINUTE),
        ("2h 30m", 150 * MINUTE),
        ("2h30m", 150 * MINUTE),
        ("2 h 30 m", 150 * MINUTE),
        ("  2h   30m  ", 150 * MINUTE),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1w 1d 1h 1m 1s 1ms", 8 * DAY + HOUR + MINUTE + SECOND + 1),
        ("5m 5ms", 5 * MINUTE + 5),
        ("0.1s", 100),
        ("5min", 5 * MINUTE),
        ("5 mins", 5 * MINUTE),
        ("1 hour", HOUR),
        ("2hrs", 2 * HOUR),
        ("1 week 2 days", 9 * DAY),
        ("2 hours 30 minutes", 150 * MINUTE),
        ("1 hr 30 sec", HOUR + 30 * SECOND),
        ("10 secs 5 ms", 10 * SECOND + 5),
        ("1 second 1 millisecond", SECOND + 1),
    ],
)
def test_a_duration_is_read_as_people_mean_it(value, expected):
    assert duration_ms(value, name="delay") == expected


@pytest.mark.parametrize("value", [0.0001, 1e-300, "0.1ms", "0.0000001s", timedelta(microseconds=1)])
def test_a_duration_above_zero_never_becomes_zero(value):
    assert duration_ms(value, name="delay") == 1


def test_the_least_is_named_as_a_duration():
    assert (
        duration_ms("10ms", name="lease", least_ms=10) == duration_ms(0.01, name="lease", least_ms=10) == 10
    )
    for value in (0, 0.009, "9ms", 0.0):
        with pytest.raises(BadInput, match="must be a duration from 10 ms to ten years"):
            duration_ms(value, name="lease", least_ms=10)


def test_ten_years_are_the_most():
    most = bounds.MAX_DURATION_MS // 1000

    assert duration_ms(most, name="delay") == bounds.MAX_DURATION_MS
    for value in (most + 1, most + 0.5, f"{most}s 1ms", "3661d", timedelta(seconds=most + 1), timedelta.max):
        with pytest.raises(BadInput, match="delay"):
            duration_ms(value, name="delay")


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        10**400,
        -(10**400),
        1e308,
        float("nan"),
        float("inf"),
        float("-inf"),
        timedelta(microseconds=-1),
        True,
        False,
        None,
        Decimal(1),
        [1],
        b"1s",
        "",
        " ",
        "-1",
        "-1s",
        "+1s",
        "h",
        "1x",
        "1H",
        "1M",
        "1 hourss",
        "5minute s",
        "1month",
        "1y",
        "1h 1 hour",
        "1h 1h",
        "30m 2h",
        "1h 90",
        "90 1h",
        "1,5h",
        "1.h",
        ".5h",
        "1e3",
        "nan",
        "inf",
        "1h\n",
        "1\th",
        "1h,30m",
        "٣s",
        "1_000",
        "0x10",
        "9" * 65,
        "PT1H",
        "1:30",
    ],
)
def test_what_is_no_duration_is_refused_by_the_name_of_the_argument(value):
    with pytest.raises(BadInput) as refused:
        duration_ms(value, name="lease")

    assert refused.value.name == "lease"
    assert "2h 30m" in str(refused.value)


@given(st.integers(0, bounds.MAX_DURATION_MS))
def test_every_whole_millisecond_comes_back_whichever_way_it_is_written(ms):
    assert duration_ms(f"{ms}ms", name="delay") == ms
    assert duration_ms(f"{ms // 1000}s {ms % 1000}ms", name="delay") == ms
    assert duration_ms(f"{ms // 1000}.{ms % 1000:03d}", name="delay") == ms
    assert duration_ms(ms / 1000, name="delay") == ms
    assert duration_ms(timedelta(milliseconds=ms), name="delay") == ms


@given(st.text(alphabet="0123456789. wdhms", max_size=70))
def test_no_text_fails_otherwise_than_by_being_refused(text):
    try:
        assert 0 <= duration_ms(text, name="delay") <= bounds.MAX_DURATION_MS
    except BadInput:
        pass


# ── moments ──────────────────────────────────────────────────────────────────────────────────────

NOON = 1_794_740_400_000  # 2026-11-15T11:00:00Z


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 11, 15, 11, tzinfo=UTC), NOON),
        (datetime(2026, 11, 15, 12, tzinfo=timezone(timedelta(hours=1))), NOON),
        (datetime(2026, 11, 15, 11, 0, 0, 4_999, tzinfo=UTC), NOON + 4),
        (NOON // 1000, NOON),
        (NOON / 1000 + 0.004, NOON + 4),
        (0, 0),
        ("2026-11-15T11:00:00Z", NOON),
        ("2026-11-15T11:00Z", NOON),
        ("2026-11-15T12:00:00+01:00", NOON),
        ("2026-11-15T12:00:00+0100", NOON),
        ("2026-11-15 06:00:00-05:00", NOON),
        ("2026-11-15T11:00:00.004Z", NOON + 4),
        ("2026-11-15T11:00:00.004999999Z", NOON + 4),
        ("2026-11-15 11:00:00", NOON),
        ("2026-11-15 11:00", NOON),
        ("2026-11-15T11:00", NOON),
        ("2026-11-15T11:00:00", NOON),
        ("2026-11-15T12:00+01:00", NOON),
        ("2026-11-15 11:00:00.250", NOON + 250),
        ("2026-11-15", NOON - 11 * HOUR),
        (" 2026-11-15 ", NOON - 11 * HOUR),
        ("1970-01-01", 0),
    ],
)
def test_a_moment_is_read_as_people_mean_it(value, expected):
    assert moment_ms(value, name="run_at") == expected


def test_a_datetime_without_a_time_zone_is_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"run_at is .* a time zone.*datetime\.now\(UTC\)"):
        moment_ms(datetime(2026, 11, 15, 11), name="run_at")  # noqa: DTZ001


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        NOON,  # milliseconds, where seconds are meant
        10**400,
        float("nan"),
        float("inf"),
        True,
        None,
        date(2026, 11, 15),
        timedelta(seconds=1),
        b"2026-11-15",
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2249, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
        "",
        " ",
        "now",
        "tomorrow",
        "1794740400",
        "2026-11-15T11",
        "2026-11-15T11Z",
        "2026-11-15Z",
        "2026-13-15",
        "2026-02-30",
        "2026-11-15 25:00:00",
        "2026-11-15 11:60:00",
        "2026-11-15 11:00:00 CET",
        "2026-11-15T11:00:00+25:00",
        "2026-W46-7",
        "20261115",
        "2026-319",
        "15.11.2026",
        "0000-01-01",
        "1969-12-31 23:59:59",
        "9999-12-31T23:59:59-05:00",
        "٢٠٢٦-11-15",
        "2026-11-15\n",
    ],
)
def test_what_is_no_moment_of_ours_is_refused_by_the_name_of_the_argument(value):
    with pytest.raises(BadInput) as refused:
        moment_ms(value, name="run_at")

    assert refused.value.name == "run_at"


def test_a_moment_is_shown_in_utc_with_milliseconds():
    assert iso(NOON + 4) == "2026-11-15T11:00:00.004Z"
    assert iso(0) == "1970-01-01T00:00:00.000Z"


@given(st.integers(0, bounds.MAX_TIME_MS))
def test_what_is_shown_reads_back_as_the_same_moment(ms):
    assert moment_ms(iso(ms), name="run_at") == ms
    assert moment_ms(iso(ms)[:-1].replace("T", " "), name="run_at") == ms
    assert moment_ms(ms / 1000, name="run_at") == ms
