"""`at_most_once=True`: a job that may be lost, but whose handler never starts twice."""

from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import BadInput
from holdfast.core.job import State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .tools import HOUR_MS, ask, hold_of, nothing, state_of, take, unchanged, upkeep


@pytest.mark.parametrize("end", ["error", "retry", "lease over", "died", "died beside others", "interrupted"])
def test_a_job_at_most_once_is_failed_however_its_run_ends_badly(
    queue: Queue, clock: MovedClock, end: str
) -> None:
    """It is FAILED and says why; nothing runs it again."""
    added = queue.add("charge", at_most_once=True)
    job = take(queue)

    if end == "error":
        job.done(error="no")
    elif end == "retry":
        job.retry("1s")
    elif end == "lease over":
        clock.advance(HOUR_MS)
        upkeep(queue)
    elif end == "interrupted":
        with pytest.raises(KeyboardInterrupt), job:
            raise KeyboardInterrupt
    else:
        ask(queue, c.Release(hold=hold_of(job), lost=True, crowd=1 if end == "died" else 3))

    assert (state_of(queue, added), nothing(queue)) == (State.FAILED, True)
    assert queue.get(added).reason


def test_a_job_at_most_once_that_is_given_back_before_its_handler_starts_is_run(queue: Queue) -> None:
    """Nothing of it has happened yet. Once it has started it is not given back."""
    added = queue.add("charge", at_most_once=True)
    ask(queue, c.Release(hold=hold_of(take(queue))))
    assert state_of(queue, added) == State.QUEUED

    ask(queue, c.Release(hold=hold_of(take(queue)), lost=True, crowd=0))

    assert state_of(queue, added) == State.FAILED


def test_a_task_may_be_at_most_once_and_a_call_of_it_not(queue: Queue) -> None:
    """What the call says goes before what the decorator says, in either direction, and for its claim too."""

    @queue.task(at_most_once=True)
    def charge() -> None: ...

    @queue.task(attempts=5, losses=5)
    def mail() -> None: ...

    jobs = [charge.add(), charge.using(attempts=3).add(), charge.using(at_most_once=False).add()]
    jobs += [mail.add(), mail.using(at_most_once=True).add()]

    limits = [(job.max_attempts, job.max_losses) for job in map(queue.get, jobs)]
    assert limits == [(1, 1), (3, 10), (10, 10), (5, 5), (1, 1)]
    claimed = {job.id: job.record for job in queue.claim(limit=len(jobs))}
    assert [(claimed[job.id].max_attempts, claimed[job.id].max_losses) for job in jobs] == limits


def test_at_most_once_beside_attempts_or_losses_is_refused(queue: Queue) -> None:
    """They contradict each other."""
    both: list[Any] = [{"attempts": 2}, {"losses": 2}]
    for options in both:
        with unchanged(queue), pytest.raises(BadInput, match=f"{next(iter(options))}.*at_most_once=True"):
            queue.add("charge", at_most_once=True, **options)


def test_no_losses_at_all_is_refused_and_says_what_to_write_instead(queue: Queue) -> None:
    """It was taken for no limit, where people meant that a job must not run twice."""
    with unchanged(queue), pytest.raises(BadInput, match=r"losses.*at_most_once=True"):
        queue.add("charge", losses=0)
