"""Waiting: for a job to claim and for a result, woken at once by whoever brings it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from holdfast.core.errors import Closed, JobFailed, NotFound, Timeout
from holdfast.core.job import State
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.store.common.clock import monotonic_s
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import LONG_S, MINUTE_MS, nothing, outcome, take, waiting

# Long enough that a wake-up which does not come is told from one that does.
SOON_S = LONG_S / 2


def _woken(queue: Queue, change: Callable[[], Any], *tasks: str) -> ClaimedJob:
    """The job that a waiting claim gets after a change, long before its wait is over."""
    began_s = monotonic_s()
    with waiting(lambda: queue.next(tasks or None, wait=LONG_S, renew=False)) as claim:
        change()
        job = claim.result(LONG_S)
    assert monotonic_s() - began_s < SOON_S
    assert job is not None
    return job


# ── for a job ────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_claim_is_woken_by_an_add(queue: Queue) -> None:
    """In the same process."""
    added: list[Any] = []

    job = _woken(queue, lambda: added.append(queue.add("work")))

    assert job.id == added[0].id


def test_a_waiting_claim_is_woken_by_another_queue(make_queue: MakeQueue) -> None:
    """Through the store."""
    queue, other = make_queue(), make_queue()
    added: list[Any] = []

    job = _woken(queue, lambda: added.append(other.add("work")))

    assert job.id == added[0].id


@pytest.mark.parametrize("by", ["itself", "another"])
def test_a_waiting_claim_is_woken_by_whatever_lets_a_job_run(make_queue: MakeQueue, by: str) -> None:
    """A permit given back, a limit raised, a pause lifted, a job put back, a parent's children released."""
    queue = make_queue()
    other = queue if by == "itself" else make_queue()
    queue.limit("api", concurrency=1)
    queue.add_many([("work", n) for n in range(3)], domain="api")
    first = take(other)

    second = _woken(queue, first.done)
    third = _woken(queue, lambda: other.limit("api", concurrency=2))
    other.pause("mail")
    mail = queue.add("mail")
    assert _woken(queue, lambda: other.resume("mail")).id == mail.id
    assert _woken(queue, lambda: other.requeue(mail)).claim == 2
    assert (
        _woken(queue, second.release if by == "itself" else lambda: other.requeue(second.id)).id == second.id
    )
    third.done()
    queue.add("parent")
    parent = take(queue, "parent")
    child = parent.add("child")

    assert _woken(queue, parent.done, "child").id == child.id


def test_a_waiting_claim_is_woken_when_its_time_comes(queue: Queue, clock: MovedClock) -> None:
    """By the next look at the clock: here, that of somebody else's add."""
    delayed = queue.add("work", delay="1m")

    def pass_time() -> None:
        clock.advance(MINUTE_MS)
        queue.add("other")

    assert _woken(queue, pass_time, "work").id == delayed.id


def test_a_claim_that_waited_in_vain_gets_nothing(queue: Queue) -> None:
    """Of its own tasks; what is there for others stays."""
    other = queue.add("other")

    assert queue.next(["work"], wait=0.01) is None
    assert queue.claim(["work"], wait="10ms") == []

    assert other.get().state == State.QUEUED


def test_a_hundred_wait_and_one_gets_the_job(queue: Queue) -> None:
    """Exactly one; the others wait on, until the queue is closed."""
    started = threading.Semaphore(0)

    def wait() -> Any:
        started.release()
        job = queue.next(wait=3 * LONG_S, renew=False)
        got.set()
        return job

    got = threading.Event()
    with ThreadPoolExecutor(100) as pool:
        futures = [pool.submit(outcome, wait) for _ in range(100)]
        for _ in range(100):
            assert started.acquire(timeout=LONG_S)
        added = queue.add("work")
        assert got.wait(LONG_S)
        queue.close()
        found = [future.result(LONG_S) for future in futures]

    jobs = [job for job in found if isinstance(job, ClaimedJob)]
    assert [job.id for job in jobs] == [added.id]
    assert sum(isinstance(error, Closed) for error in found) == 99


def test_those_who_wait_are_served_in_turn_and_together(queue: Queue) -> None:
    """Ten wait, ten jobs come, each gets one."""
    with ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(queue.next, wait=LONG_S, renew=False) for _ in range(10)]
        added = queue.add_many([("work", n) for n in range(10)])
        jobs = [future.result(LONG_S) for future in futures]

    assert sorted(job.id for job in jobs if job is not None) == [job.id for job in added]


def test_a_claim_until_empty_ends_when_nothing_is_left(queue: Queue) -> None:
    """At once where there is nothing; not while a job still runs and may come back."""
    assert queue.next(until_empty=True) is None
    queue.add("work")
    running = take(queue)

    assert _until_empty(queue, lambda: running.retry(0)) == running.id
    assert _until_empty(queue, lambda: None) is None


def test_a_claim_until_empty_does_not_wait_for_a_paused_task(queue: Queue) -> None:
    """But for its jobs that run."""
    queue.add("work")
    queue.add("work", delay="1h")
    running = take(queue)
    queue.pause("work")

    assert _until_empty(queue, running.done) is None


def test_a_claim_until_empty_does_not_wait_for_what_only_an_operator_can_move(queue: Queue) -> None:
    """Children behind a FAILED parent, and a parent whose FAILED children keep it."""
    queue.add("parent")
    parent = take(queue)
    parent.add("child")
    parent.fail("no")
    queue.add("parent", when_child_fails="wait")
    second = take(queue)
    second.add("child")
    second.done()
    take(queue, "child").fail("no")
    assert [job.state for job in queue.jobs()].count(State.PAUSED) == 2

    assert _until_empty(queue, lambda: None) is None
    assert _until_empty(queue, lambda: queue.requeue(parent.id)) == parent.id


def test_a_claim_until_empty_waits_for_a_family_that_moves(queue: Queue) -> None:
    """A parent waits for children that run elsewhere, and is not at an end."""
    queue.add("parent")
    parent = take(queue)
    parent.add("child")
    parent.done()
    child = take(queue, "child")

    with waiting(lambda: queue.next(["parent"], until_empty=True, renew=False)) as claim:
        child.done()
        resumed = claim.result(LONG_S)

    assert resumed is not None
    assert resumed.id == parent.id


def _until_empty(queue: Queue, change: Callable[[], Any]) -> int | None:
    with waiting(lambda: queue.next(until_empty=True, renew=False)) as claim:
        change()
        job = claim.result(LONG_S)
    if job is None:
        return None
    job.done()
    return job.id


# ── for a result ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", ["itself", "another"])
def test_who_waits_for_a_result_is_woken_by_it(make_queue: MakeQueue, by: str) -> None:
    """Whichever queue the job is answered by."""
    queue = make_queue()
    other = queue if by == "itself" else make_queue()
    added = queue.add("work")
    job = take(other)
    began_s = monotonic_s()

    with waiting(lambda: added.result(wait=LONG_S)) as result:
        job.done({"n": 7})
        assert result.result(LONG_S) == {"n": 7}

    assert monotonic_s() - began_s < SOON_S


def test_who_waits_for_a_result_hears_of_a_failure(queue: Queue) -> None:
    """And of a cancellation; a retry is not the end yet."""
    for end in ("fail", "cancel"):
        added = queue.add("work")
        job = take(queue)
        with waiting(partial(added.result, wait=LONG_S)) as result:
            job.retry(0)
            job = take(queue)
            if end == "fail":
                job.fail("in vain")
            else:
                queue.cancel(added, force=True)
            with pytest.raises(JobFailed, match=r"in vain|cancelled"):
                result.result(LONG_S)


def test_who_waits_for_a_job_that_is_deleted_is_told(queue: Queue) -> None:
    """It will never end."""
    added = queue.add("work")

    with waiting(partial(added.result, wait=LONG_S)) as result:
        queue.delete(added)
        with pytest.raises(NotFound, match=str(added.id)):
            result.result(LONG_S / 2)


def test_who_waits_when_the_queue_is_closed_is_told(queue: Queue) -> None:
    """For a job and for a result."""
    added = queue.add("other")
    assert nothing(queue, "work")

    with (
        waiting(lambda: queue.next(["work"], wait=LONG_S)) as claim,
        waiting(lambda: added.result(wait=LONG_S)) as result,
    ):
        queue.close()
        for future in (claim, result):
            with pytest.raises(Closed, match="closed"):
                future.result(LONG_S)


def test_a_wait_for_a_result_ends_in_time(queue: Queue) -> None:
    """With a Timeout, which is one of Python's own too."""
    added = queue.add("work")

    with pytest.raises(TimeoutError) as raised:
        added.result(wait="20ms")

    assert isinstance(raised.value, Timeout)
