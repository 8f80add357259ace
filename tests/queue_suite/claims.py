"""Leases: who holds a job, until when, and what becomes of one whose holder is late, gone or told to stop."""

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import LeaseLost, Refused
from holdfast.core.job import State
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .tools import (
    MINUTE_MS,
    ask,
    hold_of,
    nothing,
    state_of,
    states,
    take,
    unchanged,
    until,
    upkeep,
)

# All that the holder of a job may say of it.
SAID: dict[str, Callable[[ClaimedJob], Any]] = {
    "done": lambda job: job.done("late", data={"n": 9}),
    "error": lambda job: job.done(error="late"),
    "fail": lambda job: job.fail("late"),
    "retry": lambda job: job.retry(),
    "release": lambda job: job.release(),
    "extend": lambda job: job.extend(),
    "progress": lambda job: job.progress(0.9, "late"),
    "update": lambda job: job.update({"late": True}),
    "child": lambda job: job.add("late"),
}
each_verb = pytest.mark.parametrize("verb", SAID)


# ── the late worker ──────────────────────────────────────────────────────────────────────────────


@each_verb
def test_a_late_worker_is_refused_once_another_has_the_job(
    make_queue: MakeQueue, clock: MovedClock, verb: str
) -> None:
    """Whatever it says changes nothing, and from then on it knows that it lost the job."""
    early, late = make_queue(), make_queue()
    early.add("work", {"n": 1}, domain="x")
    slow = take(early, lease=10)
    clock.advance(10_000)
    quick = take(late, lease=10)
    assert (slow.id, slow.claim, quick.claim) == (quick.id, 1, 2)

    with unchanged(late), pytest.raises(LeaseLost, match=f"{slow.id}.*claim 2"):
        SAID[verb](slow)

    assert (slow.lost, slow.answered) == (True, True)
    with pytest.raises(LeaseLost):
        slow.done()
    assert quick.done("in time").state == State.FINISHED
    assert late.result(quick) == "in time"


@each_verb
def test_a_claim_ends_with_a_requeue_a_forced_cancel_and_a_delete(queue: Queue, verb: str) -> None:
    """Then its holder is refused, although nobody else has the job."""
    ends: list[Callable[[int], Any]] = [
        queue.requeue,
        lambda job_id: queue.cancel(job_id, force=True),
        partial(_gone, queue),
    ]
    for end in ends:
        queue.add("work")
        job = take(queue)
        end(job.id)

        with unchanged(queue), pytest.raises(LeaseLost, match=str(job.id)):
            SAID[verb](job)
        for left in queue.jobs():
            queue.delete(left)


def _gone(queue: Queue, job_id: int) -> None:
    queue.cancel(job_id, force=True)
    queue.delete(job_id)


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
def test_a_late_finish_stands_while_nobody_else_has_the_job(
    queue: Queue, clock: MovedClock, noticed: bool
) -> None:
    """Whether upkeep has already put the job back or not."""
    queue.add("work")
    job = take(queue, lease=10)
    clock.advance(MINUTE_MS)
    if noticed:
        upkeep(queue)
        assert state_of(queue, job) == State.QUEUED

    assert job.done("late, but in time").state == State.FINISHED

    assert queue.result(job) == "late, but in time"
    assert nothing(queue)


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
def test_an_extend_takes_a_lapsed_job_back(queue: Queue, clock: MovedClock, noticed: bool) -> None:
    """And its loss with it."""
    queue.add("work")
    job = take(queue, lease=10)
    clock.advance(MINUTE_MS)
    if noticed:
        upkeep(queue)

    job.extend()

    assert nothing(queue)
    record = queue.get(job)
    assert (record.state, record.losses, record.claim) == (State.RUNNING, 0, 1)
    assert record.lease_until == START_MS + MINUTE_MS + 10_000


# ── leases ───────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_runs_from_the_claim_and_from_each_extend(queue: Queue, clock: MovedClock) -> None:
    """For as long as the queue, the claim or the extend says."""
    queue.add_many([("work", n) for n in range(2)])

    assert take(queue).record.lease_until == START_MS + 60_000
    job = take(queue, lease="30s")
    assert job.record.lease_until == START_MS + 30_000
    clock.advance(10_000)
    job.extend()
    assert queue.get(job).lease_until == START_MS + 40_000
    job.extend("2m")
    assert queue.get(job).lease_until == START_MS + 10_000 + 2 * MINUTE_MS


def test_a_queue_may_have_leases_of_its_own(make_queue: MakeQueue) -> None:
    """Of the length that `connect` was told."""
    queue = make_queue(lease="5m")
    queue.add("work")

    assert take(queue).record.lease_until == START_MS + 5 * MINUTE_MS


def test_a_job_whose_lease_ran_out_is_handed_out_again_in_its_old_turn(
    queue: Queue, clock: MovedClock
) -> None:
    """Before what was added later; it counts as a loss, not as an attempt."""
    first = queue.add("work")
    clock.advance(1)
    queue.add("work")
    take(queue, lease=10)
    clock.advance(9_999)
    assert take(queue).id != first.id
    clock.advance(1)

    again = take(queue)

    assert (again.id, again.claim, again.attempt) == (first.id, 2, 1)
    assert (again.record.losses, again.record.attempts) == (1, 0)


def test_claims_are_numbered_and_the_numbers_only_go_up(queue: Queue, clock: MovedClock) -> None:
    """Through release, retry, loss and requeue: the fence for whatever else a job writes to."""
    added = queue.add("work")
    seen = []
    for end in (
        lambda job: job.release(),
        lambda job: job.retry(0),
        lambda _job: clock.advance(MINUTE_MS),
        queue.requeue,
        lambda job: job.done(),
    ):
        job = take(queue)
        seen.append(job.claim)
        end(job)

    assert seen == [1, 2, 3, 4, 5]
    assert added.get().claim == 5


def test_a_released_job_counts_as_never_started(queue: Queue, clock: MovedClock) -> None:
    """It keeps its turn, and spends neither an attempt nor a loss."""
    first = queue.add("work", delay=1)
    clock.advance(1_000)
    queue.add("work")

    take(queue).release()

    job = take(queue)
    assert (job.id, job.record.attempts, job.record.losses) == (first.id, 0, 0)


def test_a_process_that_is_known_to_be_dead_loses_its_job_at_once(queue: Queue) -> None:
    """It counts as a loss, and nobody is left who could still answer."""
    queue.add("work")
    job = take(queue)

    ask(queue, c.Release(hold=hold_of(job), lost=True))

    with unchanged(queue), pytest.raises(LeaseLost):
        job.done()
    assert take(queue).record.losses == 1


def test_a_job_is_answered_once(queue: Queue) -> None:
    """Whatever is said after it is refused."""
    queue.add("work")
    job = take(queue)
    job.done(1)

    for say in SAID.values():
        with unchanged(queue), pytest.raises(Refused, match="answered already"):
            say(job)


# ── renewing ─────────────────────────────────────────────────────────────────────────────────────


def test_a_claimed_job_renews_its_own_lease(queue: Queue, clock: MovedClock) -> None:
    """Well before it ends, until it is answered."""
    queue.add("work")
    job = queue.next(lease=0.06)
    assert job is not None

    clock.advance(50)
    until(lambda: job.record.lease_until == START_MS + 110)
    clock.advance(50)
    until(lambda: job.record.lease_until == START_MS + 160)

    assert nothing(queue)
    job.done()


def test_a_job_that_was_dropped_comes_back_by_itself(queue: Queue, clock: MovedClock) -> None:
    """Nobody renews the lease of a job that nobody holds any more."""
    added = queue.add("work")
    job = queue.next(lease=0.06)
    del job
    gc.collect()

    clock.advance(60)

    assert take(queue).id == added.id


def test_a_job_hears_of_its_loss_when_it_renews(make_queue: MakeQueue) -> None:
    """So that a handler can stop."""
    queue, operator = make_queue(), make_queue()
    queue.add("work")
    job = queue.next(lease=0.06)
    assert job is not None

    operator.requeue(job.id)
    until(lambda: job.lost)

    with pytest.raises(LeaseLost):
        job.done()


def test_a_running_job_hears_that_it_should_stop(make_queue: MakeQueue) -> None:
    """An operator's cancel is a wish until the next word of the holder; then he knows."""
    queue, operator = make_queue(), make_queue()
    queue.add("work")
    job = take(queue)
    assert operator.cancel(job.id).state == State.RUNNING
    assert "asked to stop" in queue.why(job.id)

    job.extend()

    assert job.cancelled
    assert job.retry(0).state == State.CANCELLED
    assert nothing(queue)


@pytest.mark.parametrize("end", ["retry", "release", "error", "lapse"])
def test_a_job_that_was_asked_to_stop_does_not_run_again(queue: Queue, clock: MovedClock, end: str) -> None:
    """Whatever would have put it back ends it CANCELLED; only a finish or fail is what it says."""
    added = queue.add("work")
    job = take(queue)
    queue.cancel(added)

    if end == "lapse":
        clock.advance(MINUTE_MS)
        upkeep(queue)
    else:
        SAID[end](job)

    assert state_of(queue, added) == State.CANCELLED


# ── closing and leaving ──────────────────────────────────────────────────────────────────────────


def test_what_a_closed_queue_held_comes_back_when_its_leases_end(
    make_queue: MakeQueue, clock: MovedClock
) -> None:
    """Not before: its jobs may still be running."""
    mine, theirs = make_queue(), make_queue()
    added = mine.add("work")
    take(mine, lease=10)

    mine.close()

    assert nothing(theirs)
    clock.advance(10_000)
    assert take(theirs).id == added.id


def test_a_with_block_answers_for_its_job(queue: Queue) -> None:
    """Done at its end, ERROR when it raised, released when it was interrupted."""
    fine, broken, interrupted = (queue.add(name) for name in ("fine", "broken", "interrupted"))

    with take(queue, "fine"):
        pass
    with pytest.raises(ZeroDivisionError), take(queue, "broken"):
        raise ZeroDivisionError("by zero")
    with pytest.raises(KeyboardInterrupt), take(queue, "interrupted"):
        raise KeyboardInterrupt

    assert states(queue, [fine, broken, interrupted]) == [State.FINISHED, State.QUEUED, State.QUEUED]
    assert (broken.get().attempts, interrupted.get().attempts) == (1, 0)
    assert "by zero" in broken.get().errors[0].error


def test_a_with_block_leaves_an_answer_alone(queue: Queue) -> None:
    """Its own answer counts, also where the block raises after it."""
    added = queue.add("work")

    with pytest.raises(ZeroDivisionError), take(queue) as job:  # noqa: PT012
        job.done("said")
        raise ZeroDivisionError

    assert added.result() == "said"


def test_progress_is_seen_while_a_job_runs(queue: Queue) -> None:
    """And gone when it waits again."""
    added = queue.add("work")
    job = take(queue)

    job.progress(0.4, "half way")

    progress = added.get().progress
    assert progress is not None
    assert (progress.fraction, progress.note) == (0.4, "half way")
    job.release()
    assert added.get().progress is None


@pytest.mark.parametrize("end", ["done", "fail", "cancel"])
def test_the_last_progress_stays_on_a_job_that_has_ended(queue: Queue, end: str) -> None:
    """Until it is requeued."""
    added = queue.add("work", attempts=1)
    job = take(queue)
    job.progress(0.4, "half way")

    if end == "cancel":
        added.cancel(force=True)
    else:
        job.fail("no") if end == "fail" else job.done()

    progress = added.get().progress
    assert progress is not None
    assert (progress.fraction, progress.note) == (0.4, "half way")
    if end == "fail":
        assert queue.requeue(added).progress is None


def test_a_holder_changes_the_data_of_its_next_run(queue: Queue) -> None:
    """By `update` while it runs, or with its answer."""
    queue.add("work", {"n": 1}, repeat="FINISHED, +0 SECONDS")
    job = take(queue)
    job.update({"n": 2})
    job.done()
    job = take(queue)
    assert job.data == {"n": 2}

    job.done(data={"n": 3})

    assert take(queue).data == {"n": 3}
