"""Claimed is not started: what a worker has handed over ahead of time, and what it says of it later."""

import pytest

from holdfast.core import commands as c
from holdfast.core.job import Code, Job, State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS
from .tools import ask, upkeep

LEASE_MS = 10_000


def _claimed(queue: Queue) -> Job:
    """The next job, claimed as a worker does: it may start later."""
    (claimed,) = ask(queue, c.Claim(tasks=("work",), lease_ms=LEASE_MS, start=False))
    job: Job = claimed.job
    return job


def _extended(queue: Queue, job: Job, ran_ms: int | None) -> Job:
    after: Job = ask(queue, c.Extend(hold=c.hold_of(job), lease_ms=LEASE_MS, ran_ms=ran_ms))
    return after


def test_a_limit_does_not_run_before_the_handler_starts(queue: Queue, clock: MovedClock) -> None:
    """A job may wait in a worker for longer than its limit; then it has all of it."""
    queue.add("work", timeout="2s")
    job = _claimed(queue)
    assert (job.started_at, job.lease_until) == (0, START_MS + LEASE_MS)

    clock.advance(5_000)
    waiting = _extended(queue, job, None)
    clock.advance(1_000)
    running = _extended(queue, job, 500)

    assert (waiting.started_at, waiting.lease_until) == (0, START_MS + 5_000 + LEASE_MS)
    assert (running.started_at, running.lease_until) == (START_MS + 5_500, START_MS + 7_700)
    assert _extended(queue, job, 700).started_at == START_MS + 5_500


def test_a_lease_that_runs_out_before_the_start_is_no_loss(queue: Queue, clock: MovedClock) -> None:
    """Its worker is gone, and had not begun it; from then on it runs beside few others, always as many."""
    added = queue.add("work", losses=2)
    limits = set()
    for _ in range(3):
        _claimed(queue)
        clock.advance(LEASE_MS)
        upkeep(queue)
        limits.add(added.get().crowd_limit)

    assert (added.get().state, added.get().losses) == (State.QUEUED, 0)
    assert limits == {16}


def test_a_suspect_whose_process_died_runs_beside_half_as_many(queue: Queue, clock: MovedClock) -> None:
    """Its start was committed before, so it may have killed the process."""
    added = queue.add("work")
    limits = []
    for _ in range(6):
        _extended(queue, _claimed(queue), 0)
        clock.advance(LEASE_MS)
        upkeep(queue)
        limits.append(added.get().crowd_limit)

    assert limits == [16, 8, 4, 2, 1, 1]


def test_a_lease_that_runs_out_after_the_start_is_a_loss(queue: Queue, clock: MovedClock) -> None:
    """Whoever said so."""
    added = queue.add("work", losses=2)
    for _ in range(2):
        _extended(queue, _claimed(queue), 0)
        clock.advance(LEASE_MS)
        upkeep(queue)

    assert (added.get().state, added.get().losses) == (State.FAILED, 2)


def test_an_answer_tells_when_its_run_started(queue: Queue, clock: MovedClock) -> None:
    """How long it ran is known where it ran; the moment is the store's."""
    for domain in (None, "x"):
        added = queue.add("work", domain=domain)
        job = _claimed(queue)
        clock.advance(3_000)
        now_ms = job.lease_until - LEASE_MS + 3_000
        ask(queue, c.Answer(hold=c.hold_of(job), held=job, ran_ms=1_200))

        assert (added.get().started_at, added.get().finished_at) == (now_ms - 1_200, now_ms)


@pytest.mark.parametrize(
    ("crowd", "losses", "limit"), [(0, 0, 0), (1, 1, 1), (2, 0, 1), (7, 0, 4), (100, 0, 50)]
)
def test_of_a_process_that_died_only_a_job_alone_is_charged(
    queue: Queue, crowd: int, losses: int, limit: int
) -> None:
    """Of several any may have ended it: they run again, in crowds of half the size."""
    added = queue.add("work")
    ask(queue, c.Release(hold=c.hold_of(_claimed(queue)), lost=True, crowd=crowd))

    job = added.get()
    assert (job.state, job.losses, job.crowd_limit) == (State.QUEUED, losses, limit)
    assert _claimed(queue).id == added.id


def test_how_a_process_died_is_an_error_of_its_job(queue: Queue, clock: MovedClock) -> None:
    """With its time and owner, also if others may have ended it; the last one is in the reason."""
    added = queue.add("work", losses=1)
    job = _claimed(queue)
    ask(queue, c.Extend(hold=c.hold_of(job), lease_ms=LEASE_MS, ran_ms=0))
    clock.advance(700)
    ask(queue, c.Release(hold=c.hold_of(job), lost=True, crowd=3, error="it ended by signal 9"))

    after = added.get()
    (end,) = after.errors
    assert (end.error, end.owner, end.ran_ms, end.code) == ("it ended by signal 9", job.owner, 700, "error")
    assert after.outcome is None
    assert after.reason == "quarantined: 1 run ended without an answer: it ended by signal 9"


@pytest.mark.parametrize("crowd", [0, 1, 9])
def test_a_job_that_may_not_be_lost_is_failed_by_any_loss(queue: Queue, crowd: int) -> None:
    """So it never runs twice; given back before it began, it may."""
    added = queue.add("work", losses=1)
    ask(queue, c.Release(hold=c.hold_of(_claimed(queue))))
    ask(queue, c.Release(hold=c.hold_of(_claimed(queue)), lost=True, crowd=crowd))

    assert (added.get().state, added.get().losses) == (State.FAILED, 1)


def test_a_job_may_be_given_back_for_later(queue: Queue, clock: MovedClock) -> None:
    """Others go first; its repeats still count from when it was due."""
    added = queue.add("work", repeat="SCHEDULED, +1 HOUR")
    ask(queue, c.Release(hold=c.hold_of(_claimed(queue)), delay_ms=2_000))
    assert queue.next(["work"]) is None

    clock.advance(2_000)
    ask(queue, c.Answer(hold=c.hold_of(_claimed(queue)), code=Code.OK))

    assert added.get().run_at == START_MS + 3_600_000
