"""Parents and children: two waves, siblings, and every way in which a child may end."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import LeaseLost, NotFound, Refused
from holdfast.core.job import State
from holdfast.core.queries import HasUnfinished
from holdfast.queue import asks
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS
from .tools import (
    HOUR_MS,
    MINUTE_MS,
    ask,
    ask_all,
    hold_of,
    nothing,
    state_of,
    states,
    take,
    take_all,
    unchanged,
    upkeep,
)


def _parent(queue: Queue, **options: Any) -> ClaimedJob:
    """A parent that runs."""
    queue.add("parent", **options)
    return take(queue, "parent")


def _released(queue: Queue, children: int = 2, **options: Any) -> tuple[int, list[int]]:
    """A parent that waits for its children, which are queued."""
    parent = _parent(queue, **options)
    born = [parent.add("child", n).id for n in range(children)]
    parent.done()
    return parent.id, born


# ── two waves ────────────────────────────────────────────────────────────────────────────────────


def test_children_run_when_their_parent_has_finished_its_run(queue: Queue) -> None:
    """Until then they wait PAUSED; then the parent does."""
    parent = _parent(queue)
    children = [parent.add("child"), parent.add("child")]
    assert states(queue, children) == [State.PAUSED] * 2
    assert nothing(queue)
    assert f"waits for its parent {parent.id}" in children[0].why()

    assert parent.done().state == State.PAUSED

    assert states(queue, children) == [State.QUEUED] * 2
    assert "waits for 2 of its children" in queue.why(parent.id)
    assert nothing(queue, "parent")


def test_a_parent_goes_through_two_waves(queue: Queue, clock: MovedClock) -> None:
    """It is resumed by the last child of each, sees how they ended, and is done after the second."""
    parent, first_wave = _released(queue)
    clock.advance(MINUTE_MS)
    take(queue, "child").done("one")
    assert state_of(queue, parent) == State.PAUSED
    take(queue, "child").done("two")
    assert state_of(queue, parent) == State.QUEUED

    job = take(queue)
    assert (job.id, [child.id for child in job.children()]) == (parent, first_wave)
    assert [queue.result(child) for child in job.children()] == ["one", "two"]
    second = job.add("child")
    job.done()
    # Of the first wave it has seen enough: they are in the archive, beside nobody.
    assert [child.id for child in queue.jobs(parent=parent)] == [second.id]
    assert {child.id for child in queue.jobs(archived=True)} == set(first_wave)
    take(queue, "child").done("three")

    job = take(queue)
    assert [child.id for child in job.children()] == [second.id]
    job.done("all")
    assert (queue.result(parent), queue.jobs()) == ("all", [])


def test_a_resumed_parent_is_due_at_once(queue: Queue, clock: MovedClock) -> None:
    """In its old turn, before what came after its last start."""
    parent, _ = _released(queue, children=1)
    clock.advance(1)
    queue.add("later")
    take(queue, "child").done()

    assert take(queue).id == parent


def test_a_child_adds_a_sibling_on_its_parents_behalf(queue: Queue) -> None:
    """Which is queued at once; the parent waits for it too."""
    parent, _ = _released(queue, children=1)
    child = take(queue, "child")

    sibling = child.add("child", {"born": "of a child"}, parent=parent)
    assert (sibling.get().parent_id, sibling.get().state) == (parent, State.QUEUED)
    child.done()
    assert state_of(queue, parent) == State.PAUSED
    take(queue, "child").done()

    assert state_of(queue, parent) == State.QUEUED


def test_a_child_keeps_its_own_time(queue: Queue, clock: MovedClock) -> None:
    """A delay counts from its birth; a child that is released before it waits on."""
    parent = _parent(queue)
    child = parent.add("child", delay="1m")
    clock.advance(30_000)
    parent.done()

    assert (state_of(queue, child), nothing(queue)) == (State.QUEUED, True)
    clock.advance(30_000)
    assert take(queue).id == child.id


def test_a_parent_that_is_retried_leaves_its_children_waiting(queue: Queue) -> None:
    """Its next run finds them, may add more, and lets them run."""
    parent = _parent(queue)
    child = parent.add("child")

    parent.retry(0)
    assert state_of(queue, child) == State.PAUSED
    again = take(queue, "parent")
    assert [born.id for born in again.children()] == [child.id]
    other = again.add("child")
    again.done()

    assert states(queue, [child, other]) == [State.QUEUED] * 2


def test_a_parent_whose_lease_runs_out_leaves_its_children_waiting(queue: Queue, clock: MovedClock) -> None:
    """It is handed out again, and its late holder can add no more."""
    late = _parent(queue)
    child = late.add("child")
    clock.advance(MINUTE_MS)
    again = take(queue, "parent")
    assert state_of(queue, child) == State.PAUSED

    with unchanged(queue), pytest.raises(LeaseLost):
        late.add("child")
    again.done()

    assert state_of(queue, child) == State.QUEUED


@pytest.mark.parametrize("ends", ["error", "death"])
def test_a_resumed_parent_whose_run_breaks_sees_its_children_again(
    queue: Queue, clock: MovedClock, ends: str
) -> None:
    """A finish archives them; a handler that adds children if it has none must not add them twice."""
    _, wave = _released(queue)
    ask_all(queue, [c.Answer(hold=hold_of(child)) for child in take_all(queue)])
    broken = take(queue)
    if ends == "error":
        broken.done(error=ValueError("broken"))
    clock.advance(MINUTE_MS)

    again = take(queue)
    assert [child.id for child in again.children()] == wave
    again.done()
    assert queue.jobs() == []


def test_a_parent_of_many_children_releases_them_all(queue: Queue) -> None:
    """More than one transaction takes; upkeep goes on, and the parent resumes once, at the last."""
    parent = _parent(queue)
    new = tuple(c.NewJob(task="child", parent_id=parent.id) for _ in range(1_200))
    born = ask(queue, c.Add(jobs=new, hold=hold_of(parent)))
    parent.done()
    upkeep(queue)
    upkeep(queue)

    *most, last = take_all(queue)
    assert sorted([last.id, *(job.id for job in most)]) == born
    ask_all(queue, [c.Answer(hold=hold_of(job)) for job in most])
    assert state_of(queue, parent.id) == State.PAUSED
    last.done()

    again = take(queue)
    assert (again.id, [child.id for child in again.children()]) == (parent.id, born)
    first = again.children(limit=999)
    assert [child.id for child in (*first, *again.children(after=first[-1]))] == born
    again.done()
    upkeep(queue)
    upkeep(queue)
    assert queue.jobs() == []


def test_a_parent_that_expires_meanwhile_releases_all_its_children_too(
    queue: Queue, clock: MovedClock
) -> None:
    """It has finished the run that added them, and the first of them are queued already."""
    parent = _parent(queue, expires="1m")
    new = tuple(c.NewJob(task="child", parent_id=parent.id) for _ in range(1_200))
    born = ask(queue, c.Add(jobs=new, hold=hold_of(parent)))
    parent.done()
    clock.advance(MINUTE_MS)
    upkeep(queue)
    assert state_of(queue, parent.id) == State.FAILED
    upkeep(queue)

    assert sorted(job.id for job in take_all(queue)) == born


# ── how children end ─────────────────────────────────────────────────────────────────────────────


def _deleted(queue: Queue, child: ClaimedJob) -> None:
    child.release()
    queue.delete(child.id)


_ENDS: dict[str, Callable[[Queue, ClaimedJob], Any]] = {
    "done": lambda _queue, child: child.done(),
    "fail": lambda _queue, child: child.fail("in vain"),
    "cancel": lambda queue, child: queue.cancel(child.id, force=True),
    "delete": _deleted,
}


@pytest.mark.parametrize("end", _ENDS)
def test_a_native_parent_resumes_when_its_last_child_has_ended(queue: Queue, end: str) -> None:
    """However that was, and it sees how."""
    parent, children = _released(queue)
    take(queue, "child").done()
    _ENDS[end](queue, take(queue, "child"))

    job = take(queue, "parent")

    seen = {child.id: child.state for child in job.children()}
    expected = {"done": State.FINISHED, "fail": State.FAILED, "cancel": State.CANCELLED}
    assert seen == {
        children[0]: State.FINISHED,
        **({children[1]: expected[end]} if end in expected else {}),
    }
    assert job.done().state == State.FINISHED
    assert job.id == parent


def test_a_parent_may_wait_for_its_failed_children(queue: Queue) -> None:
    """With `when_child_fails="wait"`, until each is put right: requeued, cancelled or deleted."""
    for mend in ("requeue", "cancel", "delete"):
        parent, (first, second) = _released(queue, when_child_fails="wait")
        assert take(queue, "child").id == first
        take(queue, "child").fail()
        queue.cancel(first, force=True)
        assert state_of(queue, parent) == State.PAUSED
        assert "1 of its children FAILED" in queue.why(parent)

        getattr(queue, mend)(second)
        if mend == "requeue":
            assert state_of(queue, parent) == State.PAUSED
            take(queue, "child").done()

        take(queue, "parent").done()
        assert state_of(queue, parent) == State.FINISHED


def test_a_failed_child_that_is_requeued_makes_its_parent_wait_again(queue: Queue) -> None:
    """A parent that has not been resumed yet counts it as pending."""
    parent, (first, second) = _released(queue)
    take(queue, "child").fail()

    queue.requeue(first)
    jobs = {job.id: job for job in take_all(queue)}
    jobs[second].done()
    assert state_of(queue, parent) == State.PAUSED
    jobs[first].done()

    assert state_of(queue, parent) == State.QUEUED


def test_a_repeating_child_keeps_its_parent_waiting_until_it_is_cancelled(
    queue: Queue, clock: MovedClock
) -> None:
    """It never is FINISHED."""
    parent = _parent(queue)
    child = parent.add("child", repeat="FINISHED, +1 HOUR")
    parent.done()
    for _ in range(3):
        take(queue, "child").done()
        assert (state_of(queue, child), state_of(queue, parent.id)) == (State.QUEUED, State.PAUSED)
        clock.advance(HOUR_MS)

    queue.cancel(child)

    assert state_of(queue, parent.id) == State.QUEUED


def test_a_child_that_fails_and_is_tried_again_has_not_ended(queue: Queue, clock: MovedClock) -> None:
    """Its parent waits through its attempts."""
    parent, (child,) = _released(queue, children=1)
    take(queue).done(error="broke")
    assert (state_of(queue, child), state_of(queue, parent)) == (State.QUEUED, State.PAUSED)
    clock.advance(HOUR_MS)

    take(queue).done()

    assert state_of(queue, parent) == State.QUEUED


def test_an_expired_child_resumes_its_parent(queue: Queue, clock: MovedClock) -> None:
    """As any other that failed."""
    parent = _parent(queue)
    child = parent.add("child", expires="1m")
    parent.done()
    clock.advance(MINUTE_MS)

    assert take(queue).id == parent.id
    assert (child.get().state, child.get().reason) == (State.FAILED, "expired")


def test_a_parent_may_expire_while_it_waits(queue: Queue, clock: MovedClock) -> None:
    """It is over; its children run on, and end for themselves."""
    parent, (first, second) = _released(queue, expires="1m")
    clock.advance(MINUTE_MS)
    upkeep(queue)
    assert queue.get(parent).reason == "expired"

    take(queue).done()
    take(queue).fail()

    assert states(queue, [parent, first, second]) == [State.FAILED, State.FINISHED, State.FAILED]
    assert nothing(queue)


def test_a_failed_child_outlives_its_parent(queue: Queue) -> None:
    """And may be run again, for nobody's sake."""
    parent, (child,) = _released(queue, children=1)
    take(queue).fail()
    take(queue).done()
    assert states(queue, [parent, child]) == [State.FINISHED, State.FAILED]

    queue.requeue(child)
    take(queue).done("late")

    assert queue.result(child) == "late"
    assert queue.jobs() == []


# ── what a family does not do ────────────────────────────────────────────────────────────────────


def test_a_child_has_children_of_its_own(queue: Queue) -> None:
    """Each level waits for the next, and is resumed by its own children alone."""
    parent, _ = _released(queue, children=2)
    child = take(queue, "child")
    grandchildren = [child.add("grandchild"), child.add("grandchild")]
    assert {one.get().parent_id for one in grandchildren} == {child.id}
    assert nothing(queue, "grandchild")

    child.done("first run")
    take(queue, "child").done()
    assert (state_of(queue, parent), state_of(queue, child.id)) == (State.PAUSED, State.PAUSED)
    assert queue.why(child.id) == "It waits for 2 of its children."
    deepest = take(queue, "grandchild")
    deepest.add("great-grandchild")
    deepest.done(1)
    take(queue, "grandchild").done(2)
    assert state_of(queue, child.id) == State.PAUSED
    take(queue, "great-grandchild").done()
    again = take(queue, "grandchild")
    assert again.id == deepest.id
    again.done(3)

    again = take(queue, "child")
    assert again.id == child.id
    assert sorted(queue.result(one.id) for one in again.children()) == [2, 3]
    again.done("second run")
    assert state_of(queue, parent) == State.QUEUED
    last = take(queue, "parent")
    assert "second run" in [queue.result(one.id) for one in last.children() if one.has_result]
    last.done()
    assert queue.jobs() == []


def test_a_child_that_has_not_run_has_no_children(queue: Queue) -> None:
    """It waits for its parent's run, and would be resumed by its child before that."""
    parent = _parent(queue)
    child = parent.add("child")

    with unchanged(queue), pytest.raises(Refused, match=f"{child.id}.*waits for its parent"):
        queue.add("grandchild", parent=child)


def test_a_parent_that_runs_again_leaves_the_children_that_wait_for_their_own(queue: Queue) -> None:
    """An operator puts back the parent: its finish queues children that wait for it, and no others."""
    parent, _ = _released(queue, children=1)
    child = take(queue, "child")
    child.add("grandchild")
    child.done()
    queue.requeue(parent)
    again = take(queue, "parent")
    born = again.add("child")
    again.done()

    assert (state_of(queue, child.id), state_of(queue, born)) == (State.PAUSED, State.QUEUED)
    take(queue, "grandchild").done()
    assert state_of(queue, child.id) == State.QUEUED


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_whose_child_fails_goes_on_or_waits_as_it_was_told(queue: Queue, waits: bool) -> None:
    """`when_child_fails` is decided on each level; the parent above waits for its child in any case."""
    top = _parent(queue)
    top.add("child", when_child_fails="wait" if waits else "resume")
    parent = top.id
    top.done()
    child = take(queue, "child")
    bad = child.add("grandchild")
    child.done()
    take(queue, "grandchild").fail("no")

    assert state_of(queue, child.id) == (State.PAUSED if waits else State.QUEUED)
    assert state_of(queue, parent) == State.PAUSED
    if waits:
        assert not queue.connection.ask(HasUnfinished(tenants=("",), tasks=None))
        queue.cancel(bad)
    take(queue, "child").done()
    assert state_of(queue, parent) == State.QUEUED


def test_a_context_sees_all_children(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are more than a page, as those of a group may be; in coroutines too."""
    monkeypatch.setattr(asks, "PAGE_JOBS", 2)

    @queue.task
    def part(n: int) -> int:
        return n

    @queue.task
    def total(ctx: Context) -> list[int]:
        assert len(ctx.children(limit=1)) == 1
        return [queue.result(child) for child in ctx.children()]

    @queue.task
    async def awaited(ctx: AsyncContext) -> list[int]:
        return [queue.result(child) for child in await ctx.children()]

    calls = [part.call(n) for n in range(5)]
    groups = [queue.gather(calls, when_done=follower.call()) for follower in (total, awaited)]
    while job := queue.next():
        job.run()

    assert [group.follower.result() for group in groups] == [[*range(5)]] * 2


def test_a_context_adds_many_children(queue: Queue) -> None:
    """In one transaction: prepared calls, or pairs."""

    @queue.task
    def size(path: str) -> int:
        return len(path)

    @queue.task
    def total(ctx: Context, paths: list[str]) -> int:
        ended = ctx.children()
        if not ended:
            ids = ctx.add_many([size.call(paths[0]), *(("size", {"path": path}) for path in paths[1:])])
            assert len(ids) == len(paths)
            return 0
        return sum(queue.result(one) for one in ended)

    job = total.add(["a", "bb", "ccc"])
    while claimed := queue.next():
        claimed.run()
    assert job.result() == 6


def test_a_child_is_added_by_the_holder_of_its_parent_alone(queue: Queue) -> None:
    """Or by anybody while the parent waits for its children; not to one that waits, ended or never was."""
    parent = _parent(queue)
    with unchanged(queue), pytest.raises(Refused, match="PAUSED, or RUNNING and held by the caller"):
        queue.add("child", parent=parent.id)
    parent.add("child")
    parent.done()
    assert queue.add("child", parent=parent.id).get().state == State.QUEUED

    waits = queue.add("waits")
    with unchanged(queue), pytest.raises(Refused, match=f"{waits.id}.*QUEUED"):
        queue.add("child", parent=waits)
    with unchanged(queue), pytest.raises(NotFound, match="parent job 12345"):
        queue.add("child", parent=12345)
    take(queue, "waits").done()
    with unchanged(queue), pytest.raises(NotFound, match=f"parent job {waits.id}"):
        queue.add("child", parent=waits)


def test_a_parent_is_neither_cancelled_nor_deleted_over_the_heads_of_its_children(queue: Queue) -> None:
    """The refusal says how many there are."""
    parent, children = _released(queue)

    for force in (False, True):
        with unchanged(queue), pytest.raises(Refused, match=f"{parent}.*2 unfinished children"):
            queue.cancel(parent, force=force)
    with unchanged(queue), pytest.raises(Refused, match=f"{parent}.*family"):
        queue.delete(parent)
    for child in children:
        queue.cancel(child)
    assert queue.cancel(parent).state == State.CANCELLED
    assert queue.jobs() == []


def test_a_parent_that_was_asked_to_stop_gets_no_more_children(queue: Queue) -> None:
    """It could not be cancelled while they are there."""
    parent = queue.add("parent")
    job = take(queue)
    queue.cancel(parent)

    with unchanged(queue), pytest.raises(Refused, match=f"{parent.id}.*asked to stop"):
        job.add("child")
    assert job.retry().state == State.CANCELLED


def test_a_parent_that_was_asked_to_stop_waits_for_a_child_that_was_put_back(queue: Queue) -> None:
    """It cannot be cancelled over its head, also if that came after."""
    parent = queue.add("parent")
    job = take(queue)
    child = job.add("child")
    job.done()
    take(queue, "child").fail("no")
    again = take(queue, "parent")
    queue.cancel(parent)

    queue.requeue(child)
    again.retry(0)

    assert (state_of(queue, parent), parent.get().children.pending) == (State.QUEUED, 1)


def test_a_parent_of_a_requeued_family_keeps_it(queue: Queue) -> None:
    """An operator may put a PAUSED parent back; its children run on, and it is done when they are."""
    parent, _ = _released(queue)

    queue.requeue(parent)
    again = take(queue, "parent")
    again.done()
    assert state_of(queue, parent) == State.PAUSED
    for child in take_all(queue):
        child.done()

    take(queue, "parent").done()
    assert state_of(queue, parent) == State.FINISHED


def test_mocked_is_what_the_parent_is(queue: Queue) -> None:
    """In both directions, and a mocked job does not repeat."""
    parent = _parent(queue)
    assert not parent.add("child", mock=True).get().mock
    queue.add("mocked", mock=True)
    claimed = ask(queue, c.Claim(tasks=("mocked",), mock=True, lease_ms=MINUTE_MS))[0].job
    new = c.NewJob(task="child", parent_id=claimed.id, repeat="DAILY")
    hold = c.hold_of(claimed)

    child = queue.get(ask(queue, c.Add(jobs=(new,), hold=hold))[0])

    assert (child.mock, child.repeat, child.created_at) == (True, "", START_MS)
