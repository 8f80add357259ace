"""Repeats, `retry_after` and `timeout`: the documents' times, driven through the queue by a moved clock."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import LeaseLost
from holdfast.core.job import State
from holdfast.core.units import iso
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS
from .hands import Hand, Port
from .tools import DAY_MS, HOUR_MS, MINUTE_MS, STEADY, nothing, state_of, take, unchanged, upkeep

# ── repeats ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("repeat", "next_run"),
    [
        ("SCHEDULED, +1 HOUR", "2026-11-15T14:00:00.000Z"),
        ("STARTED, +1 HOUR", "2026-11-15T14:15:00.000Z"),
        ("FINISHED, +1 HOUR", "2026-11-15T14:45:00.000Z"),
    ],
)
def test_the_worked_example_of_the_documents(
    hand: Hand, clock: MovedClock, repeat: str, next_run: str
) -> None:
    """Scheduled for 1:00, started at 1:15, finished at 1:45: again at 2:00, 2:15 or 2:45."""
    clock.advance(-30 * MINUTE_MS)
    added = hand.add(run_at=START_MS, repeat=repeat)
    clock.advance(30 * MINUTE_MS + 15 * MINUTE_MS)
    hand.take()
    clock.advance(30 * MINUTE_MS)

    job = hand.finish(added)

    assert (job.id, job.state, iso(job.run_at)) == (added, State.QUEUED, next_run)
    clock.advance(job.run_at - clock() - 1)
    assert hand.take() is None
    clock.advance(1)
    taken = hand.take()
    assert taken is not None
    assert taken.id == added


@pytest.mark.parametrize(
    ("repeat", "next_run"),
    [
        ("HOURLY", "2026-11-15T14:30:00.000Z"),
        ("DAILY", "2026-11-16T13:30:00.000Z"),
        ("WEEKLY", "2026-11-22T13:30:00.000Z"),
        ("finished, +1 day, start of day, +4 hours", "2026-11-16T04:00:00.000Z"),
        ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-16T06:00:00.000Z"),
        ("SCHEDULED, START OF HOUR, +90 SECONDS", "2026-11-15T13:01:30.000Z"),
    ],
)
def test_the_documents_other_examples(queue: Queue, clock: MovedClock, repeat: str, next_run: str) -> None:
    """Canned forms and modifiers, of a job due at 1:00 and finished at 1:30."""
    added = queue.add("work", repeat=repeat)
    job = take(queue)
    clock.advance(30 * MINUTE_MS)

    job.done()

    assert iso(added.get().run_at) == next_run


def test_missed_slots_are_caught_up_one_by_one(hand: Hand, clock: MovedClock) -> None:
    """SCHEDULED keeps every slot that passed; the next one after them is in the future."""
    added = hand.add(repeat="SCHEDULED, +1 HOUR")
    clock.advance(3 * HOUR_MS + 30 * MINUTE_MS)

    slots = []
    while (job := hand.take()) is not None:
        slots.append((job.run_at - START_MS) // HOUR_MS)
        hand.finish(job.id)

    assert slots == [0, 1, 2, 3]
    assert hand.queue.get(added).run_at == START_MS + 4 * HOUR_MS


def test_a_repeat_carries_its_data_on(queue: Queue) -> None:
    """What a run leaves is what the next one finds."""
    added = queue.add("work", {"n": 0}, repeat="FINISHED, +0 SECONDS")
    for n in range(3):
        job = take(queue)
        assert (job.id, job.data) == (added.id, {"n": n})
        job.done(data={"n": n + 1})

    assert queue.data(added) == {"n": 3}


RETRIES: dict[str, Callable[[ClaimedJob, MovedClock], Any]] = {
    "retry": lambda job, _clock: job.retry("10m"),
    "error": lambda job, _clock: job.done(error="broke"),
    "release": lambda job, _clock: job.release(),
    "lapse": lambda _job, clock: clock.advance(MINUTE_MS),
}


@pytest.mark.parametrize("end", RETRIES)
def test_a_run_that_is_repeated_does_not_shift_the_slots(queue: Queue, clock: MovedClock, end: str) -> None:
    """A SCHEDULED repeat counts from the time it was due, however late its run came to an end."""
    added = queue.add("work", repeat="SCHEDULED, +1 HOUR")
    RETRIES[end](take(queue), clock)
    clock.advance(20 * MINUTE_MS)

    take(queue).done()

    assert added.get().run_at == START_MS + HOUR_MS


def test_a_failure_does_not_end_a_repeat(queue: Queue) -> None:
    """Natively: the run failed, not the job. Neither do attempts or losses that are used up."""
    ends: list[Callable[[ClaimedJob], Any]] = [lambda job: job.fail(), lambda job: job.done(error="broke")]
    for end in ends:
        added = queue.add("work", repeat="FINISHED, +1 HOUR", attempts=1)
        end(take(queue))

        job = added.get()
        assert (job.state, job.run_at, job.attempts) == (State.QUEUED, START_MS + HOUR_MS, 0)
        assert len(job.errors) == 1


def test_a_failure_ends_a_repeat_of_the_port(queue: Queue) -> None:
    """There a FAILED job is picked up by nobody."""
    port = Port(queue)
    added = port.add(repeat="FINISHED, +1 HOUR")
    port.take()

    assert port.fail(added).state == State.FAILED


def test_at_the_port_a_repeat_goes_before_the_delay_of_a_retry(queue: Queue) -> None:
    """RetryJob ignores both time and delay where the job repeats."""
    port = Port(queue)
    added = port.add(repeat="FINISHED, +1 HOUR")
    port.take()

    assert port.retry(added, delay_ms=5).run_at == START_MS + HOUR_MS


def test_a_repeat_may_be_given_up(queue: Queue) -> None:
    """By the finish that says so, by an operator who clears it, and by a wish to stop."""
    ignored, cleared, stopped = (queue.add(name, repeat="DAILY") for name in ("a", "b", "c"))
    hand = Port(queue)
    job = take(queue, "a")
    hand.held[job.id] = Hand(queue).hold_of(job.record)
    hand.finish(job.id, ignore_repeat=True)
    queue.update(cleared, repeat="")
    take(queue, "b").done()
    job = take(queue, "c")
    queue.cancel(stopped)
    job.done()

    assert [state_of(queue, job) for job in (ignored, cleared, stopped)] == [State.FINISHED] * 3


def test_a_new_repeat_moves_a_job_that_waits(queue: Queue) -> None:
    """To the time that it gives, from the one that it was due."""
    added = queue.add("work")

    queue.update(added, repeat="SCHEDULED, +1 DAY")

    assert (added.get().run_at, nothing(queue)) == (START_MS + DAY_MS, True)


def test_a_repeat_without_an_end_in_time_fails_its_job(queue: Queue) -> None:
    """A time beyond the year 2248 cannot be kept: the reason names the repeat."""
    added = queue.add("work", repeat="FINISHED, +999 YEARS")

    take(queue).done()

    assert added.get().state == State.FAILED
    assert "+999 YEARS" in added.get().reason


# ── retry_after ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("retry_after", ["+5 MINUTES", 5 * MINUTE_MS])
def test_a_job_with_a_retry_after_is_handed_out_again_unless_it_is_answered(
    hand: Hand, clock: MovedClock, retry_after: Any
) -> None:
    """RUNQUEUED from its hand-out on; the new holder's answer counts, and each loss is counted."""
    added = hand.add(retry_after=retry_after)
    first = hand.take()
    assert first is not None
    assert (hand.state(added), first.lease_until) == (State.RUNQUEUED, START_MS + 5 * MINUTE_MS)
    clock.advance(5 * MINUTE_MS - 1)
    assert hand.take() is None
    clock.advance(1)

    again = hand.take()

    assert again is not None
    assert (again.id, again.claim, again.losses) == (added, 2, 1)
    assert hand.state(added) == State.RUNQUEUED
    assert hand.finish(added).state == State.FINISHED


def test_a_job_that_is_handed_out_ten_times_in_vain_fails(hand: Hand, clock: MovedClock) -> None:
    """The eleventh time it is FAILED instead."""
    added = hand.add(retry_after="+1 MINUTE")
    for _ in range(10):
        assert hand.take() is not None
        clock.advance(MINUTE_MS)

    assert hand.take() is None

    assert hand.state(added) == State.FAILED
    assert "quarantined: 10 runs" in hand.queue.get(added).reason


def test_an_answer_forgives_the_hand_outs_before_it(queue: Queue, clock: MovedClock) -> None:
    """Of a job that repeats."""
    added = queue.add("work", retry_after="1m", repeat="FINISHED, +1 HOUR")
    take(queue)
    clock.advance(MINUTE_MS)
    job = take(queue)
    assert job.record.losses == 1

    job.done()

    assert (added.get().losses, added.get().state) == (0, State.QUEUED)


def test_a_job_whose_retry_after_leads_nowhere_fails(hand: Hand) -> None:
    """Where the time of its next hand-out cannot be told; and it holds up nobody else."""
    bad, good = hand.add(retry_after="+999 YEARS"), hand.add()

    taken = hand.take()

    assert taken is not None
    assert (taken.id, hand.state(bad)) == (good, State.FAILED)
    assert "+999 YEARS" in hand.queue.get(bad).reason


def test_a_retry_after_of_nothing_hands_out_at_once(queue: Queue) -> None:
    """`+0 SECOND` is legal."""
    port = Port(queue)
    added = port.add(retry_after="+0 SECOND")

    assert [job.id for job in (port.take(), port.take()) if job is not None] == [added, added]


def test_a_lease_is_as_long_as_the_retry_after(queue: Queue, clock: MovedClock) -> None:
    """Whatever the claim asks for; an extend makes it so long again."""
    queue.add("work", retry_after="5m")
    job = take(queue, lease="1h")
    assert job.record.lease_until == START_MS + 5 * MINUTE_MS
    clock.advance(MINUTE_MS)

    job.extend("1h")

    assert queue.get(job).lease_until == START_MS + 6 * MINUTE_MS


# ── timeout ──────────────────────────────────────────────────────────────────────────────────────


def test_no_lease_goes_beyond_the_timeout(queue: Queue, clock: MovedClock) -> None:
    """It counts from the start, extends do not move it, and past it there is none; but for the answer."""
    queue.add("work", timeout="90s", backoff=STEADY)
    job = take(queue, lease="1m")
    assert job.record.lease_until == START_MS + MINUTE_MS
    clock.advance(MINUTE_MS - 1)
    job.extend()
    assert queue.get(job).lease_until == START_MS + 90_500
    clock.advance(30_501)

    with unchanged(queue), pytest.raises(LeaseLost, match="past its timeout of 90000 ms"):
        job.extend()

    assert take(queue).record.losses == 1


def test_a_job_past_its_timeout_may_still_finish_before_another_has_it(
    queue: Queue, clock: MovedClock
) -> None:
    """The work is done, so it counts."""
    added = queue.add("work", timeout="90s")
    job = take(queue, lease="1h")
    clock.advance(90_500)
    upkeep(queue)
    assert state_of(queue, added) == State.QUEUED

    job.done("slow")

    assert added.result() == "slow"


def test_a_claim_of_the_port_has_a_lease_only_where_the_job_asks_for_one(
    queue: Queue, clock: MovedClock
) -> None:
    """With neither `retry_after` nor `timeout` it is held for ever."""
    port = Port(queue)
    plain, timed = port.add("plain"), port.add("timed", timeout_ms=MINUTE_MS)
    port.take("plain")
    port.take("timed")

    clock.advance(365 * DAY_MS)
    upkeep(queue)

    assert (port.state(plain), queue.get(plain).lease_until) == (State.RUNNING, 0)
    assert (port.state(timed), queue.get(timed).losses) == (State.QUEUED, 1)
    assert "without a lease" in queue.why(plain)
    assert port.finish(plain).state == State.FINISHED
