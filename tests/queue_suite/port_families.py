"""Families of the job-command port, where the documents' rules hold to the letter (spec/bedrock.md §5)."""

import pytest

from holdfast.core.errors import NotFound, Refused
from holdfast.core.job import Job, State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .hands import Port
from .tools import HOUR_MS, MINUTE_MS, unchanged, upkeep


@pytest.fixture
def port(queue: Queue) -> Port:
    """The job-command port of a fresh store."""
    return Port(queue)


def _taken(port: Port, task: str) -> Job:
    job = port.take(task)
    assert job is not None
    return job


def _released(port: Port) -> tuple[int, int, int]:
    """A parent that waits, and its two children, which run."""
    parent = port.add("parent")
    port.take("parent")
    first, second = port.add("child", parent=parent), port.add("child", parent=parent)
    port.finish(parent)
    assert {_taken(port, "child").id, _taken(port, "child").id} == {first, second}
    return parent, first, second


def test_a_failed_child_keeps_its_parent_waiting_at_the_port(port: Port) -> None:
    """Even the last one."""
    parent, first, second = _released(port)
    port.finish(first)

    port.fail(second)

    assert (port.state(parent), port.state(second)) == (State.PAUSED, State.FAILED)


@pytest.mark.parametrize("mend", ["cancel", "delete", "requeue"])
def test_a_parent_that_waits_for_a_failed_child_is_freed_by_mending_it(port: Port, mend: str) -> None:
    """Cancelled, deleted, or requeued and then finished."""
    parent, first, second = _released(port)
    port.finish(first)
    port.fail(second)

    getattr(port, mend)(second)
    if mend == "requeue":
        port.finish(_taken(port, "child").id)

    assert port.state(parent) == State.QUEUED


def test_a_sibling_that_finishes_after_a_failure_resumes_the_parent(port: Port) -> None:
    """FAILED is not pending. But that parent is not finished before the failed child is put right."""
    parent, first, second = _released(port)
    port.fail(first)
    port.finish(second)
    assert port.state(parent) == State.QUEUED
    port.take("parent")

    with unchanged(port.queue), pytest.raises(Refused, match=f"{parent}.*outstanding children"):
        port.finish(parent)
    port.delete(first)

    assert port.finish(parent).state == State.FINISHED


def test_a_child_of_the_port_ends_only_while_its_parent_waits(port: Port, queue: Queue) -> None:
    """One that was requeued early runs, and is neither finished nor retried before; it may fail."""
    parent = port.add("parent")
    port.take("parent")
    child = port.add("child", parent=parent)
    port.requeue(child)
    port.take("child")

    for verb in ("finish", "retry"):
        with unchanged(queue), pytest.raises(Refused, match=f"{child}.*whose parent is RUNNING"):
            getattr(port, verb)(child)
    port.finish(parent)

    assert port.finish(child).state == State.FINISHED
    assert port.state(parent) == State.QUEUED


def test_a_child_is_created_only_for_a_parent_that_runs_or_waits_for_children(port: Port) -> None:
    """The state goes before the generation, and an unknown parent before both."""
    parent = port.add("parent")
    with unchanged(port.queue), pytest.raises(Refused, match=str(parent)):
        port.add("child", parent=parent)
    with unchanged(port.queue), pytest.raises(NotFound, match="parent job 12345"):
        port.add("child", parent=12345)
    port.take("parent")
    child = port.add("child", parent=parent)
    port.finish(parent)
    port.take("child")

    with unchanged(port.queue), pytest.raises(Refused, match=f"{child}.*itself a child"):
        port.add("grandchild", parent=child)


def test_a_parent_with_a_retry_after_keeps_its_children_when_it_runs_out(
    port: Port, clock: MovedClock
) -> None:
    """RUNQUEUED, it is handed out again, and they are still PAUSED; it may have more meanwhile."""
    parent = port.add("parent", retry_after="+5 MINUTES")
    port.take("parent")
    first = port.add("child", parent=parent)
    clock.advance(5 * MINUTE_MS)
    upkeep(port.queue)
    second = port.add("child", parent=parent)
    assert (port.state(parent), port.state(first), port.state(second)) == (
        State.RUNQUEUED,
        State.PAUSED,
        State.PAUSED,
    )

    assert _taken(port, "parent").id == parent
    port.finish(parent)

    assert (port.state(first), port.state(second)) == (State.QUEUED, State.QUEUED)


def test_a_parent_retried_at_the_port_leaves_its_children_waiting(port: Port) -> None:
    """RetryJob lets nobody go."""
    parent = port.add("parent")
    port.take("parent")
    child = port.add("child", parent=parent)

    port.retry(parent)

    assert (port.state(parent), port.state(child)) == (State.QUEUED, State.PAUSED)


def test_a_child_cancelled_while_its_parent_runs_goes_with_that_runs_finish(port: Port) -> None:
    """FinishJob deletes all that are FINISHED or CANCELLED, whichever run saw them."""
    parent = port.add("parent")
    port.take("parent")
    first, second = port.add("child", parent=parent), port.add("child", parent=parent)
    port.queue.cancel(first, force=True)

    assert port.finish(parent).state == State.PAUSED

    assert [job.id for job in port.queue.jobs(parent=parent)] == [second]


def test_a_parent_that_repeats_waits_for_its_children_first(port: Port, clock: MovedClock) -> None:
    """Its repeat is considered when they have ended, and counts from that finish."""
    parent = port.add("parent", repeat="FINISHED, +1 HOUR")
    port.take("parent")
    child = port.add("child", parent=parent)
    assert port.finish(parent).state == State.PAUSED
    clock.advance(HOUR_MS)
    port.take("child")
    port.finish(child)
    port.take("parent")

    job = port.finish(parent)

    assert (job.state, job.run_at) == (State.QUEUED, clock() + HOUR_MS)
    assert port.queue.jobs(parent=parent) == []


def test_the_children_of_a_failed_parent_stay(port: Port) -> None:
    """FailJob has no effect on them; a requeue of the parent brings the family back."""
    parent = port.add("parent")
    port.take("parent")
    child = port.add("child", parent=parent)

    port.fail(parent)
    assert (port.state(parent), port.state(child)) == (State.FAILED, State.PAUSED)
    port.requeue(parent)
    port.take("parent")
    port.finish(parent)

    assert (port.state(parent), port.state(child)) == (State.PAUSED, State.QUEUED)
