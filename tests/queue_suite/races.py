"""Every two-party race of the rules, forced step by step, and then left to chance.

In `collide` the first party has read and written all that it will, and has not committed, when the
second sets out. A store with one writer lets the second wait; one that locks rows lets it wait at the
first that both need; one that checks versions lets both go on, and one of them do it again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import HoldfastError, LeaseLost
from holdfast.core.job import State
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import collide, nothing, outcome, state_of, take, take_all, together, upkeep

ROUNDS = 20

either_order = pytest.mark.parametrize("swapped", [False, True], ids=["in order", "swapped"])

Party = tuple[Queue, Callable[[], Any]]


def _met(one: Party, other: Party, swapped: bool) -> tuple[Any, Any]:
    """What the two came to, in the order given, whichever of them was first."""
    if not swapped:
        return collide(one, other)
    late, early = collide(other, one)
    return early, late


def _family(queue: Queue, other: Queue) -> tuple[int, ClaimedJob, ClaimedJob]:
    """A parent that waits, and its last two children, held by two queues."""
    queue.add("parent")
    parent = take(queue, "parent")
    parent.add("child")
    parent.add("child")
    parent.done()
    return parent.id, take(queue, "child"), take(other, "child")


# ── the two last children ────────────────────────────────────────────────────────────────────────


def test_the_two_last_children_finish_at_once(make_queue: MakeQueue) -> None:
    """One of them resumes the parent; it does not sleep for ever, and it runs once."""
    queue, other = make_queue(), make_queue()
    parent, first, second = _family(queue, other)

    ended = collide((queue, first.done), (other, second.done))

    assert [job.state for job in ended] == [State.FINISHED] * 2
    assert take(queue).id == parent
    assert nothing(other)


@either_order
@pytest.mark.parametrize("end", ["fail", "cancel", "retry"])
def test_the_two_last_children_end_differently_at_once(
    make_queue: MakeQueue, swapped: bool, end: str
) -> None:
    """The parent is resumed exactly when neither is left."""
    queue, other = make_queue(), make_queue()
    parent, first, second = _family(queue, other)
    ends: dict[str, Callable[[], Any]] = {
        "fail": second.fail,
        "cancel": lambda: other.cancel(second.id, force=True),
        "retry": lambda: second.retry("1d"),
    }

    _met((queue, first.done), (other, ends[end]), swapped)

    assert state_of(queue, parent) == (State.PAUSED if end == "retry" else State.QUEUED)


def test_many_children_finish_at_once(make_queue: MakeQueue) -> None:
    """Left to chance, again and again: the parent is resumed every time, once."""
    queue, other = make_queue(), make_queue()
    for _ in range(ROUNDS):
        parent, first, second = _family(queue, other)

        together([first.done, second.done])

        again = take_all(queue)
        assert [job.id for job in again] == [parent]
        again[0].done()


# ── a child and its parent ───────────────────────────────────────────────────────────────────────


@either_order
def test_a_child_is_added_while_its_parent_finishes(make_queue: MakeQueue, swapped: bool) -> None:
    """By the parent's holder: it is born in time and will run, or it is refused. It never is lost."""
    queue, other = make_queue(), make_queue()
    queue.add("parent")
    parent = take(queue)
    twin = ClaimedJob(other, c.Claimed(job=parent.record, data=parent.body), 60_000, renew=False)

    finished, child = _met((queue, parent.done), (other, lambda: twin.add("child")), swapped)

    if isinstance(child, LeaseLost):
        assert finished.state == State.FINISHED
        assert queue.jobs() == []
    else:
        assert finished.state == State.PAUSED
        assert state_of(queue, child) == State.QUEUED


@either_order
def test_a_sibling_is_added_while_the_last_child_finishes(make_queue: MakeQueue, swapped: bool) -> None:
    """By an operator, on behalf of a parent that waits: it is its child, or refused."""
    queue, other = make_queue(), make_queue()
    queue.add("parent")
    parent = take(queue)
    parent.add("child")
    parent.done()
    last = take(queue)

    _, child = _met((queue, last.done), (other, lambda: other.add("child", parent=parent.id)), swapped)

    if isinstance(child, HoldfastError):
        assert state_of(queue, parent.id) == State.QUEUED
        assert queue.jobs(task="child", state="QUEUED") == []
    else:
        assert state_of(queue, parent.id) == State.PAUSED
        take(queue, "child").done()
        assert state_of(queue, parent.id) == State.QUEUED


# ── unique keys ──────────────────────────────────────────────────────────────────────────────────


def test_two_adds_of_one_unique_key_are_one_job(make_queue: MakeQueue) -> None:
    """Both hear its number."""
    queue, other = make_queue(), make_queue()

    one, two = collide(
        (queue, lambda: queue.add("work", 1, unique="key")),
        (other, lambda: other.add("work", 2, unique="key")),
    )

    assert one.id == two.id
    assert [job.id for job in queue.jobs()] == [one.id]


@either_order
def test_a_unique_key_is_added_while_its_holder_ends(make_queue: MakeQueue, swapped: bool) -> None:
    """It is the old job or a new one; never none, and never two."""
    queue, other = make_queue(), make_queue()
    old = queue.add("work", unique="key")
    job = take(queue)

    _, new = _met((queue, job.done), (other, lambda: other.add("work", unique="key")), swapped)

    waiting = [job.id for job in queue.jobs()]
    assert waiting == ([] if new.id == old.id else [new.id])


@either_order
def test_a_replace_reaches_a_job_that_finishes(make_queue: MakeQueue, swapped: bool) -> None:
    """Whoever was first: there is one more run, with the new data."""
    queue, other = make_queue(), make_queue()
    queue.add("work", 1, unique="key")
    job = take(queue)

    _met(
        (queue, job.done), (other, lambda: other.add("work", 2, unique="key", on_conflict="replace")), swapped
    )

    again = take(queue)
    assert again.data == 2
    again.done()
    assert nothing(queue)


@either_order
def test_a_failed_job_is_requeued_while_its_key_is_taken(make_queue: MakeQueue, swapped: bool) -> None:
    """One of them has it."""
    queue, other = make_queue(), make_queue()
    failed = queue.add("work", unique="key")
    take(queue).fail()

    requeued, added = _met(
        (queue, lambda: queue.requeue(failed)), (other, lambda: other.add("work", unique="key")), swapped
    )

    if isinstance(requeued, HoldfastError):
        assert added.id != failed.id
    else:
        assert added.id == failed.id
    assert len(take_all(queue)) == 1


def test_many_adds_of_one_key_are_one_job(make_queue: MakeQueue) -> None:
    """Left to chance."""
    queues = [make_queue() for _ in range(4)]
    for n in range(ROUNDS):
        added = together([partial(queue.add, "work", unique=str(n)) for queue in queues])
        assert len(set(added)) == 1

    assert len(queues[0].jobs(limit=1_000)) == ROUNDS


# ── the last permit ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate": 1}], ids=str)
def test_two_starts_on_the_last_permit_are_one(make_queue: MakeQueue, limit: dict[str, Any]) -> None:
    """The other gets nothing, and its job waits. On shards either may come to that of the domain first."""
    queue, other = make_queue(), make_queue()
    queue.limit("api", **limit)
    queue.add_many([("work", n) for n in range(2)], domain="api")

    found = collide(
        (queue, lambda: queue.claim(limit=2, renew=False)), (other, lambda: other.claim(limit=2, renew=False))
    )

    assert sorted(len(jobs) for jobs in found) == [0, 1]
    assert len(queue.jobs(state="RUNNING")) == 1


@either_order
def test_a_start_meets_the_end_of_the_one_before_it(make_queue: MakeQueue, swapped: bool) -> None:
    """It gets the permit or does not; afterwards it is there to be had."""
    queue, other = make_queue(), make_queue()
    queue.limit("api", concurrency=1)
    queue.add_many([("work", n) for n in range(2)], domain="api")
    job = take(queue)

    _, found = _met((queue, job.done), (other, lambda: other.claim(renew=False)), swapped)

    assert len([*found, *take_all(queue)]) == 1


@either_order
@pytest.mark.one_shard
def test_a_limit_is_lowered_while_a_job_starts(make_queue: MakeQueue, swapped: bool) -> None:
    """It started before, or not at all."""
    queue, other = make_queue(), make_queue()
    queue.limit("api", concurrency=1)
    queue.add("work", domain="api")

    _, found = _met(
        (queue, lambda: queue.limit("api", concurrency=0)), (other, lambda: other.claim(renew=False)), swapped
    )

    assert len(queue.jobs(state="RUNNING")) == len(found) == (1 if swapped else 0)
    assert nothing(queue)


def test_no_more_start_than_are_allowed_whoever_asks(make_queue: MakeQueue) -> None:
    """Left to chance: four queues ask at once, and answer, again and again."""
    queues = [make_queue() for _ in range(4)]
    queues[0].limit("api", concurrency=3)
    queues[0].add_many([("work", n) for n in range(60)], domain="api")
    done = 0
    while done < 60:
        found = together([partial(queue.claim, limit=2, renew=False) for queue in queues])
        jobs = [job for batch in found if isinstance(batch, list) for job in batch]
        assert 1 <= len(jobs) <= 3
        together([job.done for job in jobs])
        done += len(jobs)


# ── claims, answers and operators ────────────────────────────────────────────────────────────────


@pytest.mark.one_shard
def test_two_claims_of_one_job_are_one(make_queue: MakeQueue) -> None:
    """The other gets nothing."""
    queue, other = make_queue(), make_queue()
    queue.add("work")

    found = collide((queue, lambda: queue.claim(renew=False)), (other, lambda: other.claim(renew=False)))

    assert [len(jobs) for jobs in found] == [1, 0]


@either_order
@pytest.mark.parametrize("force", [False, True])
def test_an_operators_cancel_meets_a_finish(make_queue: MakeQueue, swapped: bool, force: bool) -> None:
    """One of them is what happened, and both hear which."""
    queue, operator = make_queue(), make_queue()
    added = queue.add("work")
    job = take(queue)

    done, cancelled = _met(
        (queue, lambda: job.done("result")), (operator, lambda: operator.cancel(added, force=force)), swapped
    )

    if isinstance(done, LeaseLost):
        assert (force, swapped) == (True, True)
        assert cancelled.state == state_of(queue, added) == State.CANCELLED
    else:
        assert done.state == state_of(queue, added) == State.FINISHED
        assert queue.result(added) == "result"


@either_order
@pytest.mark.parametrize("verb", ["requeue", "delete"])
def test_an_operators_verb_meets_a_finish(make_queue: MakeQueue, swapped: bool, verb: str) -> None:
    """A requeue before it takes the job away; a delete of what runs is refused, and of what ended is not."""
    queue, operator = make_queue(), make_queue()
    added = queue.add("work")
    job = take(queue)

    done, other = _met((queue, job.done), (operator, lambda: getattr(operator, verb)(added)), swapped)

    if verb == "requeue":
        assert isinstance(done, LeaseLost) == swapped
        assert isinstance(other, HoldfastError) != swapped
        assert nothing(queue) != swapped
    else:
        assert done.state == State.FINISHED
        assert isinstance(other, HoldfastError) == swapped


@either_order
def test_a_late_finish_meets_the_claim_of_another(
    make_queue: MakeQueue, clock: MovedClock, swapped: bool
) -> None:
    """The job is finished, or handed out again; not both."""
    queue, other = make_queue(), make_queue()
    queue.add("work")
    late = take(queue, lease=1)
    clock.advance(1_000)

    done, found = _met((queue, late.done), (other, lambda: other.claim(renew=False)), swapped)

    assert isinstance(done, LeaseLost) == bool(found) == swapped
    assert len(queue.jobs(state="RUNNING")) == len(found)


@either_order
def test_a_late_extend_meets_upkeep(make_queue: MakeQueue, clock: MovedClock, swapped: bool) -> None:
    """Nobody else has the job, so its holder has it again either way."""
    queue, other = make_queue(), make_queue()
    added = queue.add("work")
    late = take(queue, lease=1)
    clock.advance(1_000)

    _met((queue, late.extend), (other, lambda: upkeep(other)), swapped)

    assert (state_of(queue, added), added.get().losses) == (State.RUNNING, 0)


def test_a_job_is_never_claimed_twice_at_once(make_queue: MakeQueue) -> None:
    """Left to chance: callers race for a hundred jobs, and together they get each exactly once."""
    queues = [make_queue() for _ in range(4)]
    added = [job.id for job in queues[0].add_many([("work", n) for n in range(100)])]

    taken = together([partial(take_all, queue, limit=7) for queue in queues])

    assert sorted(job.id for jobs in taken if isinstance(jobs, list) for job in jobs) == added


def test_an_answer_counts_once_whoever_gives_it(make_queue: MakeQueue) -> None:
    """Left to chance: a finish, a cancel, a requeue and an upkeep at once leave one clear state."""
    queue, other = make_queue(), make_queue()
    for _ in range(ROUNDS):
        added = queue.add("work")
        job = take(queue)

        verbs: list[Callable[[], Any]] = [job.done, partial(upkeep, other)]
        verbs += [partial(other.cancel, added, force=True), partial(other.requeue, added)]

        ended = together(verbs)

        state = state_of(queue, added)
        assert state in (State.FINISHED, State.CANCELLED, State.QUEUED)
        assert (state == State.FINISHED) == (not isinstance(ended[0], Exception))
        outcome(partial(queue.delete, added))
