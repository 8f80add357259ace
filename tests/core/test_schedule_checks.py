"""What a schedule must be, and what holds for every one of them whenever it is looked at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core import bounds
from holdfast.core.errors import BadInput
from holdfast.core.schedule import LastRun, Schedule, check, fire, resumed, started, upcoming
from tests.core.moments import BERLIN, NEW_YORK, ms

SECOND, MINUTE, HOUR = bounds.SECOND_MS, bounds.MINUTE_MS, bounds.HOUR_MS
START = ms("2026-10-24 12:00")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("name", {"name": "", "every_ms": SECOND}),
        ("name", {"name": "é" * 128, "every_ms": SECOND}),
        ("name", {"name": "a\nb", "every_ms": SECOND}),
        ("name", {"name": "\ud800", "every_ms": SECOND}),
        ("tenant", {"tenant": "\x7f", "every_ms": SECOND}),
        ("number", {"number": -1, "every_ms": SECOND}),
        ("number", {"number": bounds.MAX_SCHEDULES + 1, "every_ms": SECOND}),
        ("the time of a schedule", {}),
        ("the time of a schedule", {"cron": "@daily", "every_ms": SECOND}),
        ("the time of a schedule", {"cron": "@daily", "repeat": "HOURLY"}),
        ("every", {"every_ms": 999}),
        ("every", {"every_ms": 1_500}),
        ("every", {"every_ms": -1_000}),
        ("every", {"every_ms": bounds.MAX_DURATION_MS + SECOND}),
        ("cron", {"cron": "every day"}),
        ("cron hour", {"cron": "0 25 * * *"}),
        ("cron", {"cron": "0 0 30 2 *"}),
        ("repeat", {"repeat": "MONTHLY"}),
        ("repeat", {"repeat": "FINISHED, START OF DAY"}),
        ("repeat", {"repeat": "FINISHED, +0 SECONDS"}),
        ("repeat", {"repeat": "SCHEDULED, -1 HOUR"}),
        ("repeat", {"repeat": "SCHEDULED, WEEKDAY 1"}),
        ("repeat", {"repeat": "SCHEDULED, +20 DAYS, START OF MONTH"}),
        ("repeat", {"repeat": "SCHEDULED, +999 YEARS"}),
        ("tz", {"cron": "@daily", "tz": "Mars/Olympus"}),
        ("catch_up", {"cron": "@daily", "catch_up": "some"}),
        ("overlap", {"cron": "@daily", "overlap": "queue"}),
        ("jitter", {"every_ms": MINUTE, "jitter_ms": -1}),
        ("jitter", {"every_ms": MINUTE, "jitter_ms": MINUTE}),
        ("jitter", {"cron": "*/5 * * * *", "jitter_ms": 5 * MINUTE}),
        ("jitter", {"cron": "0,1 4 * * *", "jitter_ms": 2 * MINUTE}),
        ("jitter", {"repeat": "HOURLY", "jitter_ms": HOUR}),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_by_name(name, fields):
    with pytest.raises(BadInput) as refused:
        check(Schedule(**{"name": "nightly", "created_at": START, **fields}))

    assert refused.value.name == name


@pytest.mark.parametrize(
    "fields",
    [
        {"every_ms": SECOND},
        {"every_ms": bounds.MAX_DURATION_MS},
        {"every_ms": MINUTE, "jitter_ms": MINUTE - 1},
        {"cron": "0 0 29 2 *"},
        {"cron": "@yearly", "tz": BERLIN, "jitter_ms": 24 * HOUR},
        {"repeat": "SCHEDULED, START OF HOUR, +1 HOUR"},
        {"repeat": "finished, +1 second", "catch_up": "all", "overlap": "wait"},
        {"repeat": "FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "tenant": "acme", "number": 7},
    ],
)
def test_a_schedule_that_moves_on_is_accepted(fields):
    check(Schedule(name="nightly", created_at=START, **fields))


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────

KINDS: Any = st.sampled_from(
    [
        {"every_ms": 7 * SECOND},
        {"every_ms": 45 * MINUTE},
        {"cron": "*/10 * * * *"},
        {"cron": "30 2 * * *"},
        {"cron": "0 */3 * * *"},
        {"repeat": "SCHEDULED, +20 MINUTES"},
        {"repeat": "SCHEDULED, START OF HOUR, +1 HOUR"},
        {"repeat": "STARTED, +5 MINUTES"},
        {"repeat": "HOURLY"},
    ]
)
SCHEDULES = st.builds(
    lambda kind, **fields: Schedule(name="n", **kind, **fields),
    KINDS,
    tz=st.sampled_from(["UTC", BERLIN, NEW_YORK]),
    catch_up=st.sampled_from(["none", "one", "all"]),
    overlap=st.sampled_from(["skip", "wait", "allow"]),
)
# How long until the next look, and how long a job of that look runs.
LOOKS = st.lists(st.tuples(st.integers(0, 3 * HOUR), st.integers(0, 2 * HOUR)), max_size=30)


@given(schedule=SCHEDULES, looks=LOOKS)
def test_moments_only_ever_go_forward_and_never_lie_ahead_of_the_clock(schedule, looks):
    """Days around the end of summer time; jobs that run for a while; looks at any moment."""
    schedule, now, last, runs_until = started(schedule, START), START, None, 0
    for wait, runs in looks:
        now += wait
        if last is not None and runs_until <= now:
            last = LastRun(started_ms=last.started_ms, finished_ms=runs_until, ended=True)

        firing = fire(schedule, now_ms=now, last=last)

        moments = (schedule.last_at, *firing.moments)
        assert list(moments) == sorted(set(moments))
        assert all(moment <= now and moment % SECOND == 0 for moment in firing.moments)
        assert len(firing.moments) <= (
            1 if schedule.overlap != "allow" or schedule.catch_up != "all" else 1_000
        )
        assert firing.schedule.fired == schedule.fired + len(firing.moments)
        assert firing.again_ms in (None, firing.schedule.next_at)
        if last is not None and not last.ended and schedule.overlap != "allow":
            assert not firing.moments
        if firing.moments:
            last, runs_until = LastRun(started_ms=now, finished_ms=0, ended=False), now + runs
        schedule = firing.schedule
    assert not schedule.ended


@given(schedule=SCHEDULES, looks=LOOKS)
def test_catching_up_all_beside_running_jobs_fires_exactly_what_was_announced(schedule, looks):
    schedule = started(replace(schedule, catch_up="all", overlap="allow"), START)
    if schedule.repeat and not schedule.repeat.startswith("SCHEDULED"):
        return
    announced, now = upcoming(schedule, START, 1_000), START
    fired: list[int] = []

    for wait, _ in looks:
        now += wait
        firing = fire(schedule, now_ms=now, last=LastRun(started_ms=now, finished_ms=0, ended=False))
        fired += firing.moments
        schedule = firing.schedule

    assert fired[: len(announced)] == announced[: len(fired)]


@given(schedule=SCHEDULES, away=st.integers(0, 40 * 24 * HOUR))
def test_after_a_pause_of_any_length_nothing_is_due(schedule, away):
    paused = replace(started(schedule, START), paused=True)

    back = resumed(paused, now_ms=START + away)

    assert back.next_at > START + away
    assert fire(back, now_ms=START + away).moments == ()
