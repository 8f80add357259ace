"""When schedules fire: catching up, overlap, repeats, pauses, and what is refused."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import bounds
from holdfast.core.schedule import (
    Firing,
    LastRun,
    Schedule,
    check,
    fire,
    jitter_of,
    resumed,
    started,
    upcoming,
)
from tests.core.moments import BERLIN, ms, text_of

SECOND, MINUTE, HOUR, DAY = bounds.SECOND_MS, bounds.MINUTE_MS, bounds.HOUR_MS, bounds.DAY_MS
START = ms("2026-11-15 12:00")


def made(start_ms: int = START, **fields: Any) -> Schedule:
    """A schedule that was checked and started at noon."""
    schedule = Schedule(name="nightly", **fields)
    check(schedule)
    return started(schedule, start_ms)


def every_minute(**fields: Any) -> Schedule:
    return made(every_ms=MINUTE, **fields)


def running(since_ms: int) -> LastRun:
    return LastRun(started_ms=since_ms, finished_ms=0, ended=False)


def ended(started_ms: int, finished_ms: int) -> LastRun:
    return LastRun(started_ms=started_ms, finished_ms=finished_ms, ended=True)


# ── beginning ────────────────────────────────────────────────────────────────────────────────────


def test_the_first_moment_lies_strictly_after_the_start():
    assert made(cron="0 12 * * *").next_at == START + DAY
    assert made(cron="@hourly", tz=BERLIN).next_at == START + HOUR
    assert made(every_ms=MINUTE).next_at == START + MINUTE
    assert made(repeat="SCHEDULED, +1 HOUR").next_at == START + HOUR
    assert made(repeat="FINISHED, +1 DAY, START OF DAY, +4 HOURS").next_at == ms("2026-11-16 04:00")


def test_an_interval_counts_from_the_creation_in_whole_seconds():
    schedule = started(Schedule(name="n", every_ms=7 * SECOND, created_at=1_999), START)

    assert (schedule.next_at - 1_000) % 7_000 == 0
    assert START < schedule.next_at <= START + 7_000


def test_a_schedule_made_for_later_begins_after_its_creation():
    later = START + DAY

    assert started(Schedule(name="n", every_ms=MINUTE, created_at=later), START).next_at == later + MINUTE


def test_a_moment_is_a_whole_second_whenever_the_schedule_was_made():
    for schedule in (
        made(START + 123, every_ms=MINUTE),
        made(START + 123, repeat="FINISHED, +1 MINUTE"),
        made(START + 123, cron="* * * * *"),
    ):
        assert schedule.next_at % SECOND == 0
        assert schedule.next_at > START + 123


def test_a_schedule_that_starts_again_never_repeats_a_moment():
    """A clock that went back must not make the same job twice."""
    schedule = started(replace(every_minute(), last_at=START + HOUR), START)

    assert schedule.next_at > START + HOUR


def test_nothing_fires_before_its_moment():
    schedule = every_minute()

    firing = fire(schedule, now_ms=schedule.next_at - 1)

    assert firing == Firing(schedule=schedule, again_ms=schedule.next_at)


def test_a_due_moment_fires_once_and_the_next_one_is_set():
    schedule = every_minute()

    firing = fire(schedule, now_ms=START + MINUTE + 5)

    assert firing.moments == (START + MINUTE,)
    assert firing.again_ms == firing.schedule.next_at == START + 2 * MINUTE
    assert (firing.schedule.fired, firing.schedule.last_at) == (1, START + MINUTE)
    assert fire(firing.schedule, now_ms=START + MINUTE + 5).moments == ()


def test_the_same_question_gets_the_same_answer():
    schedule = every_minute(catch_up="all", overlap="allow")

    assert fire(schedule, now_ms=START + HOUR) == fire(schedule, now_ms=START + HOUR)


def test_a_schedule_survives_its_wire_form():
    schedule = fire(every_minute(jitter_ms=5, tenant="t"), now_ms=START + HOUR).schedule

    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


# ── catching up ──────────────────────────────────────────────────────────────────────────────────


def test_catch_up_one_fires_once_for_all_missed_at_the_latest():
    firing = fire(every_minute(catch_up="one"), now_ms=START + HOUR + 5 * SECOND)

    assert firing.moments == (START + HOUR,)
    assert firing.again_ms == START + HOUR + MINUTE


def test_catch_up_one_fires_however_late():
    firing = fire(made(cron="0 4 * * *"), now_ms=ms("2026-11-16 23:00"))

    assert firing.moments == (ms("2026-11-16 04:00"),)


def test_catch_up_none_drops_what_is_late():
    schedule = made(cron="0 4 * * *", catch_up="none")

    firing = fire(schedule, now_ms=ms("2026-11-16 04:01:01"))

    assert firing.moments == ()
    assert firing.schedule.next_at == firing.again_ms == ms("2026-11-17 04:00")
    assert firing.schedule.last_at == ms("2026-11-16 04:00")


def test_catch_up_none_still_fires_within_a_minute():
    schedule = made(cron="0 4 * * *", catch_up="none")

    assert fire(schedule, now_ms=ms("2026-11-16 04:01")).moments == (ms("2026-11-16 04:00"),)


def test_catch_up_none_drops_a_moment_when_a_later_one_is_due():
    schedule = made(every_ms=10 * SECOND, catch_up="none")

    assert fire(schedule, now_ms=START + 45 * SECOND).moments == (START + 40 * SECOND,)


def test_catch_up_all_fires_each_of_them():
    firing = fire(every_minute(catch_up="all", overlap="allow"), now_ms=START + HOUR)

    assert firing.moments == tuple(START + count * MINUTE for count in range(1, 61))
    assert firing.schedule.fired == 60


def test_catch_up_all_goes_on_in_the_next_call_after_a_bounded_number():
    now = START + 2_500 * MINUTE
    schedule = every_minute(catch_up="all", overlap="allow")
    counts: list[int] = []
    moments: list[int] = []

    while (firing := fire(schedule, now_ms=now)).moments:
        counts.append(len(firing.moments))
        moments += firing.moments
        schedule = firing.schedule

    assert counts == [bounds.CATCH_UP_FIRINGS, bounds.CATCH_UP_FIRINGS, 500]
    assert moments == [START + count * MINUTE for count in range(1, 2_501)]


# ── overlap ──────────────────────────────────────────────────────────────────────────────────────


def test_overlap_skip_drops_and_counts_the_moment_while_the_last_job_runs():
    firing = fire(every_minute(overlap="skip"), now_ms=START + MINUTE, last=running(START))

    assert firing.moments == ()
    assert (firing.schedule.skipped, firing.schedule.fired) == (1, 0)
    assert firing.again_ms == START + 2 * MINUTE


def test_overlap_wait_keeps_the_moment_until_the_last_job_ends():
    schedule = every_minute(overlap="wait")
    now = START + MINUTE + 20 * SECOND

    waiting = fire(schedule, now_ms=now, last=running(START))
    after = fire(waiting.schedule, now_ms=now + 1, last=ended(START, now))

    assert waiting == Firing(schedule=schedule, moments=(), again_ms=None)
    assert after.moments == (START + MINUTE,)


def test_overlap_allow_fires_beside_the_last_job():
    firing = fire(every_minute(overlap="allow"), now_ms=START + MINUTE, last=running(START))

    assert firing.moments == (START + MINUTE,)


@pytest.mark.parametrize("overlap", ["skip", "wait", "allow"])
def test_a_job_that_nobody_knows_any_more_holds_nothing_up(overlap):
    assert fire(every_minute(overlap=overlap), now_ms=START + MINUTE, last=None).moments


def test_catching_up_all_with_wait_goes_one_by_one():
    now = START + 3 * MINUTE
    schedule = every_minute(catch_up="all", overlap="wait")

    first = fire(schedule, now_ms=now)
    held = fire(first.schedule, now_ms=now, last=running(now))
    second = fire(held.schedule, now_ms=now, last=ended(now, now))

    assert (first.moments, first.again_ms) == ((START + MINUTE,), None)
    assert held.moments == ()
    assert (second.moments, second.schedule.skipped) == ((START + 2 * MINUTE,), 0)


def test_catching_up_all_with_skip_fires_the_first_and_skips_those_it_stands_in_the_way_of():
    firing = fire(every_minute(catch_up="all", overlap="skip"), now_ms=START + 3 * MINUTE)

    assert firing.moments == (START + MINUTE,)
    assert firing.schedule.skipped == 2
    assert firing.again_ms == START + 4 * MINUTE


def test_a_moment_that_waited_for_the_last_job_is_not_late():
    """Catching up is about moments that nobody looked at; this one was looked at and kept."""
    schedule = every_minute(catch_up="none", overlap="wait")
    finished = START + 10 * MINUTE + 30 * SECOND

    firing = fire(schedule, now_ms=finished + 2 * SECOND, last=ended(START, finished))

    assert firing.moments == (START + 10 * MINUTE,)


# ── repeats ──────────────────────────────────────────────────────────────────────────────────────


def test_a_scheduled_repeat_goes_on_from_its_own_moment():
    schedule = made(repeat="SCHEDULED, +1 HOUR")

    firing = fire(schedule, now_ms=START + HOUR + 20 * MINUTE)

    assert firing.moments == (START + HOUR,)
    assert firing.again_ms == START + 2 * HOUR


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [("STARTED, +1 HOUR", "14:15:00"), ("FINISHED, +1 HOUR", "14:45:00"), ("HOURLY", "14:45:00")],
)
def test_other_repeats_go_by_the_times_of_the_last_job_once_it_has_ended(repeat, expected):
    first = fire(made(repeat=repeat), now_ms=START + HOUR)
    begun, finished = ms("2026-11-15 13:15"), ms("2026-11-15 13:45")

    still = fire(first.schedule, now_ms=begun, last=running(begun))
    after = fire(still.schedule, now_ms=finished, last=ended(begun, finished))

    assert (first.moments, first.schedule.next_at, first.again_ms) == ((START + HOUR,), 0, None)
    assert still == Firing(schedule=first.schedule)
    assert (after.moments, text_of(after.schedule.next_at)[11:]) == ((), expected)
    assert after.again_ms == after.schedule.next_at


def test_a_repeat_whose_last_job_is_gone_goes_on_from_now():
    first = fire(made(repeat="FINISHED, +1 HOUR"), now_ms=START + HOUR)

    after = fire(first.schedule, now_ms=START + DAY, last=None)

    assert after.schedule.next_at == START + DAY + HOUR


def test_a_job_that_never_started_counts_from_its_end():
    first = fire(made(repeat="STARTED, +1 HOUR"), now_ms=START + HOUR)

    after = fire(first.schedule, now_ms=START + 2 * HOUR, last=ended(0, START + 2 * HOUR))

    assert after.schedule.next_at == START + 3 * HOUR


def test_two_firings_of_a_repeat_never_have_the_same_moment():
    """A store whose clock went back tells of a finish before the moment; one moment is one job."""
    first = fire(made(repeat="FINISHED, +1 SECOND"), now_ms=START + SECOND)

    after = fire(first.schedule, now_ms=START + SECOND, last=ended(START - DAY, START - DAY))

    assert after.schedule.next_at == START + 2 * SECOND


def test_catch_up_none_drops_a_late_repeat_and_goes_on_from_now():
    schedule = made(repeat="FINISHED, +1 HOUR", catch_up="none")

    firing = fire(schedule, now_ms=START + 5 * HOUR)

    assert (firing.moments, firing.again_ms) == ((), START + 6 * HOUR)


def test_a_schedule_ends_when_there_is_no_moment_left():
    last = bounds.MAX_TIME_MS - bounds.MAX_TIME_MS % SECOND
    schedule = Schedule(name="n", every_ms=HOUR, created_at=START, next_at=last)

    firing = fire(schedule, now_ms=last)

    assert firing.moments == (last,)
    assert (firing.schedule.ended, firing.schedule.next_at, firing.again_ms) == (True, 0, None)
    assert fire(firing.schedule, now_ms=last) == Firing(schedule=firing.schedule)


# ── pauses ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "kind", [{"cron": "* * * * *"}, {"every_ms": MINUTE}, {"repeat": "SCHEDULED, +1 MINUTE"}]
)
def test_what_came_due_while_paused_is_dropped(kind):
    paused = replace(made(**kind, catch_up="all"), paused=True)
    now = START + HOUR + 30 * SECOND

    assert fire(paused, now_ms=now) == Firing(schedule=paused)
    back = resumed(paused, now_ms=now)

    assert (back.paused, back.next_at, back.skipped) == (False, START + HOUR + MINUTE, 0)
    assert fire(back, now_ms=now).moments == ()


def test_a_moment_still_ahead_survives_a_pause():
    paused = replace(made(cron="0 4 * * *"), paused=True)

    assert resumed(paused, now_ms=START + HOUR).next_at == paused.next_at


def test_a_repeat_whose_time_passed_in_a_pause_counts_from_its_end():
    paused = replace(fire(made(repeat="HOURLY"), now_ms=START + HOUR).schedule, paused=True)

    back = resumed(paused, now_ms=START + DAY, last=ended(START + HOUR, START + HOUR))
    waiting = resumed(paused, now_ms=START + DAY, last=running(START + HOUR))

    assert back.next_at == START + DAY + HOUR
    assert waiting.next_at == 0


def test_a_schedule_that_has_ended_is_not_woken():
    assert resumed(replace(every_minute(), ended=True, next_at=0, paused=True), now_ms=START).ended


# ── to show ──────────────────────────────────────────────────────────────────────────────────────


def test_upcoming_moments_are_those_that_will_fire():
    schedule = made(cron="0 4 * * *", tz=BERLIN)

    shown = upcoming(schedule, START, 3)
    later = upcoming(schedule, shown[0], 2)

    assert [text_of(moment) for moment in shown] == [f"2026-11-{day} 03:00:00" for day in (16, 17, 18)]
    assert later == shown[1:]


def test_upcoming_moments_may_be_asked_before_the_start():
    assert upcoming(Schedule(name="n", every_ms=MINUTE), START, 2) == [START + MINUTE, START + 2 * MINUTE]


def test_of_a_repeat_by_its_jobs_at_most_one_moment_is_known():
    schedule = made(repeat="FINISHED, +1 HOUR")

    assert upcoming(schedule, START, 5) == [START + HOUR]
    assert upcoming(fire(schedule, now_ms=START + HOUR).schedule, START + HOUR, 5) == []


def test_nothing_is_upcoming_of_a_paused_or_ended_schedule():
    assert upcoming(replace(every_minute(), paused=True), START, 5) == []
    assert upcoming(replace(every_minute(), ended=True, next_at=0), START, 5) == []


def test_jitter_is_the_same_everywhere_and_within_its_limit():
    schedule = every_minute(jitter_ms=10 * SECOND)
    delays = [jitter_of(schedule, START + count * MINUTE) for count in range(200)]

    assert delays == [jitter_of(schedule, START + count * MINUTE) for count in range(200)]
    assert min(delays) >= 0
    assert max(delays) <= 10 * SECOND
    assert len(set(delays)) > 150
    assert jitter_of(schedule, START) == 7_461  # pinned: processes of different versions must agree
    assert jitter_of(every_minute(), START) == 0
