"""Every state, and what each verb makes of it: the table of spec/bedrock.md §3 and what it refuses.

A job is brought into a state, and each verb is tried on one such job. Where native jobs and those of the
job-command port differ, the table says both.
"""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.core.job import State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from ..model.view import differences
from .hands import Hand, Native, Port
from .tools import MINUTE_MS, nothing, see, unchanged, upkeep

# What a verb leaves: a state, GONE for no trace, or REFUSED, and then nothing has changed.
GONE, REFUSED = "gone", "refused"

Start = Callable[[Hand, MovedClock], int]


# ── into each state ──────────────────────────────────────────────────────────────────────────────


def queued(hand: Hand, _clock: MovedClock) -> int:
    """A job that waits."""
    return hand.add()


def running(hand: Hand, _clock: MovedClock) -> int:
    """A job that was handed out."""
    return _taken(hand, hand.add())


def runqueued(hand: Hand, _clock: MovedClock) -> int:
    """A job that was handed out with a `retry_after`."""
    return _taken(hand, hand.add(retry_after=MINUTE_MS))


def runqueued_again(hand: Hand, clock: MovedClock) -> int:
    """One whose `retry_after` has passed without a word."""
    job_id = runqueued(hand, clock)
    clock.advance(MINUTE_MS)
    upkeep(hand.queue)
    return job_id


def failed(hand: Hand, _clock: MovedClock) -> int:
    """A job that ended in vain."""
    job_id = _taken(hand, hand.add())
    hand.fail(job_id)
    return job_id


def paused_parent(hand: Hand, _clock: MovedClock) -> int:
    """A parent that waits for its children."""
    return _family(hand)[0]


def paused_child(hand: Hand, _clock: MovedClock) -> int:
    """A child that waits for its parent."""
    parent = _taken(hand, hand.add("parent"))
    return hand.add(parent=parent)


def queued_child(hand: Hand, _clock: MovedClock) -> int:
    """A child whose parent has finished its run."""
    return _family(hand)[1]


def running_child(hand: Hand, _clock: MovedClock) -> int:
    """A child that was handed out."""
    return _taken(hand, _family(hand)[1])


def finished_child(hand: Hand, clock: MovedClock) -> int:
    """A child that is done, beside a parent that waits for another."""
    child = running_child(hand, clock)
    hand.finish(child)
    return child


def cancelled_child(hand: Hand, clock: MovedClock) -> int:
    """A child that was cancelled."""
    child = queued_child(hand, clock)
    hand.cancel(child)
    return child


def failed_child(hand: Hand, clock: MovedClock) -> int:
    """A child that ended in vain."""
    child = running_child(hand, clock)
    hand.fail(child)
    return child


def _taken(hand: Hand, job_id: int) -> int:
    """The job, handed out; others of its task are waited for by nobody."""
    task = hand.queue.get(job_id).task
    while (job := hand.take(task)) is not None:
        if job.id == job_id:
            return job_id
    raise AssertionError(f"job {job_id} was not handed out")


def _family(hand: Hand) -> tuple[int, int]:
    """A PAUSED parent, and one of its two QUEUED children."""
    parent = _taken(hand, hand.add("parent"))
    child = hand.add(parent=parent)
    hand.add("other", parent=parent)
    hand.finish(parent)
    return parent, child


# ── what follows ─────────────────────────────────────────────────────────────────────────────────

_VERBS = ("take", "finish", "retry", "fail", "release", "cancel", "delete", "requeue")

Q, R, RQ, P = State.QUEUED, State.RUNNING, State.RUNQUEUED, State.PAUSED
FIN, FAIL, CAN = State.FINISHED, State.FAILED, State.CANCELLED
NO = (REFUSED, REFUSED, REFUSED, REFUSED)
_ENDS = (FIN, Q, FAIL, Q)

#                       from   take  finish … release  cancel   delete   requeue
TABLE: dict[Start, tuple[Any, ...]] = {
    queued: (Q, R, *NO, CAN, GONE, Q),
    running: (R, R, *_ENDS, R, REFUSED, Q),
    runqueued: (RQ, RQ, *_ENDS, CAN, GONE, Q),
    runqueued_again: (RQ, RQ, *_ENDS, CAN, GONE, Q),
    failed: (FAIL, FAIL, *NO, CAN, GONE, Q),
    paused_parent: (P, P, *NO, REFUSED, REFUSED, Q),
    paused_child: (P, P, *NO, CAN, REFUSED, Q),
    queued_child: (Q, R, *NO, CAN, GONE, Q),
    running_child: (R, R, *_ENDS, R, REFUSED, Q),
    finished_child: (FIN, FIN, *NO, FIN, GONE, Q),
    cancelled_child: (CAN, CAN, *NO, CAN, GONE, Q),
    failed_child: (FAIL, FAIL, *NO, CAN, GONE, Q),
}
# A PAUSED child is not cancelled at the port: nothing happens there.
AT_THE_PORT = {(paused_child, "cancel"): P}


@pytest.mark.parametrize("start", TABLE, ids=lambda start: start.__name__)
def test_each_verb_leads_from_each_state_where_the_table_says(
    hand: Hand, clock: MovedClock, start: Start
) -> None:
    """And where it is refused, nothing has changed."""
    before, *after = TABLE[start]
    expected = dict(zip(_VERBS, after, strict=True))
    expected |= {
        verb: state for (where, verb), state in AT_THE_PORT.items() if hand.strict and where is start
    }

    found = {}
    for verb in _VERBS:
        job_id = start(hand, clock)
        assert hand.state(job_id) == before
        found[verb] = _tried(hand, job_id, verb)

    assert found == expected


def _tried(hand: Hand, job_id: int, verb: str) -> Any:
    if verb == "take":
        while hand.take("work", "parent"):
            pass
        return hand.state(job_id)
    before = see(hand.queue)
    try:
        getattr(hand, verb)(job_id)
    except HoldfastError:
        assert differences(before, see(hand.queue)) == []
        return REFUSED
    return hand.state(job_id) or GONE


# ── what the table says of two jobs, or of time ──────────────────────────────────────────────────


def test_a_repeating_job_is_queued_again_by_its_finish(hand: Hand) -> None:
    """And handed out again when its time has come, not before."""
    job_id = _taken(hand, hand.add(repeat="FINISHED, +1 HOUR"))

    assert hand.finish(job_id).state == State.QUEUED
    assert nothing(hand.queue)


def test_a_repeating_job_that_was_not_cancelled_while_it_ran_goes_on_at_the_port(queue: Queue) -> None:
    """To cancel a RUNNING job does nothing there; natively it is asked to stop, and does not come again."""
    for hand, state in ((Port(queue), State.QUEUED), (Native(queue), State.FINISHED)):
        job_id = _taken(hand, hand.add(hand.name, repeat="FINISHED, +1 HOUR"))
        hand.cancel(job_id)

        assert hand.finish(job_id).state == state


def test_a_finish_with_pending_children_pauses_the_parent_and_queues_them(hand: Hand) -> None:
    """Whether the parent was RUNNING or RUNQUEUED."""
    for options in ({}, {"retry_after": MINUTE_MS}):
        parent = _taken(hand, hand.add("parent", **options))
        child = hand.add(parent=parent)
        assert hand.state(child) == State.PAUSED

        hand.finish(parent)

        assert (hand.state(parent), hand.state(child)) == (State.PAUSED, State.QUEUED)


def test_a_child_of_a_paused_parent_is_queued_at_once(hand: Hand) -> None:
    """By a sibling that runs, on behalf of their parent."""
    parent, child = _family(hand)
    _taken(hand, child)
    hand.held[parent] = hand.hold(child) if not hand.strict else hand.hold(parent)

    sibling = hand.add(parent=parent)

    assert hand.state(sibling) == State.QUEUED
    assert hand.queue.get(sibling).parent_id == parent


def test_the_last_pending_child_resumes_its_parent_by_whichever_end(hand: Hand) -> None:
    """Finished, cancelled or deleted."""
    for end in ("finish", "cancel", "delete"):
        parent = _taken(hand, hand.add("parent"))
        first, last = hand.add(parent=parent), hand.add(parent=parent)
        hand.finish(parent)
        _taken(hand, first)
        hand.finish(first)
        assert hand.state(parent) == State.PAUSED
        if end == "finish":
            _taken(hand, last)

        getattr(hand, end)(last)

        assert hand.state(parent) == State.QUEUED
        hand.finish(_taken(hand, parent))


def test_a_parents_next_answer_sends_its_ended_children_away(hand: Hand) -> None:
    """Its finish as well as its retry; what it has not seen yet stays beside it."""
    for answer in ("finish", "retry"):
        parent, child = _family(hand)
        other = hand.queue.jobs(task="other", parent=parent)[0].id
        hand.finish(_taken(hand, child))
        hand.cancel(other)
        _taken(hand, parent)
        assert {job.id for job in hand.queue.jobs(parent=parent)} == {child, other}

        getattr(hand, answer)(parent)

        assert hand.queue.jobs(parent=parent) == []


def test_a_job_that_is_over_is_over(hand: Hand) -> None:
    """A finished job is in the archive, and neither cancelled, requeued nor answered any more."""
    job_id = _taken(hand, hand.add())
    hand.finish(job_id)

    for verb in ("finish", "retry", "fail", "release", "requeue"):
        with unchanged(hand.queue), pytest.raises(HoldfastError):
            getattr(hand, verb)(job_id)
    with unchanged(hand.queue):
        assert hand.cancel(job_id).state == State.FINISHED
    hand.delete(job_id)
    assert hand.state(job_id) is None


def test_a_mocked_job_is_finished_and_retried_in_any_state(queue: Queue) -> None:
    """At the port, which skips the check for them; and it is handed out only to who asks for such."""
    port = Port(queue)
    mocked = port.add(mock=True, repeat="FINISHED, +1 HOUR")
    assert port.take() is None

    assert port.retry(mocked).state == State.QUEUED
    assert port.finish(mocked).state == State.FINISHED


def test_verbs_of_the_port_act_only_on_jobs_that_the_port_holds(queue: Queue) -> None:
    """A job that another kind of worker holds is none of its business."""
    port = Port(queue)
    queue.add("work")
    job = queue.next(renew=False)
    assert job is not None

    for verb in ("finish", "retry", "fail"):
        with unchanged(queue), pytest.raises(HoldfastError, match=str(job.id)):
            getattr(port, verb)(job.id)

    assert job.done().state == State.FINISHED
