"""Unique jobs: one key, one job, and what a second add does to the first."""

from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Refused
from holdfast.core.job import State
from holdfast.queue.context import Context
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .functions import run_all
from .hands import Native, Port
from .tools import MINUTE_MS, ask, hold_of, nothing, state_of, take, unchanged, upkeep

# ── keep ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_add_of_a_key_is_the_first_job(make_queue: MakeQueue) -> None:
    """Of whichever queue, while it waits and while it runs; nothing of it changes."""
    queue, other = make_queue(), make_queue()
    first = queue.add("work", {"n": 1}, unique="key")

    with unchanged(queue):
        again = other.add("work", {"n": 2}, unique="key", priority=1_000)
    assert (first.is_new, again.is_new, again.id) == (True, False, first.id)
    take(queue)
    with unchanged(queue):
        assert other.add("work", {"n": 3}, unique=b"key").id == first.id


def test_a_key_is_one_of_its_task_and_tenant(make_queue: MakeQueue) -> None:
    """Other tasks and tenants have keys of their own."""
    queue, acme = make_queue(), make_queue(tenant="acme")

    jobs = [queue.add("a", unique="key"), queue.add("b", unique="key"), acme.add("a", unique="key")]

    assert len({job.id for job in jobs}) == 3


def test_two_of_a_key_in_one_batch_are_one_job(queue: Queue) -> None:
    """And the batch answers with the same number twice."""
    first, second, third = queue.add_many([("a", 1), ("b", 2), ("a", 3)], unique="key")

    assert first.id == third.id != second.id
    assert (first.is_new, second.is_new, third.is_new) == (True, True, False)
    assert queue.data(first) == 1


@pytest.mark.parametrize("end", ["done", "fail", "cancel", "delete"])
def test_a_key_is_free_once_its_job_has_ended(queue: Queue, end: str) -> None:
    """However it ended."""
    first = queue.add("work", unique="key")
    if end in ("done", "fail"):
        getattr(take(queue), end)()
    else:
        getattr(queue, end)(first)

    assert queue.add("work", unique="key").id != first.id


def test_a_repeating_job_keeps_its_key(queue: Queue) -> None:
    """Between its runs too."""
    first = queue.add("work", unique="key", repeat="FINISHED, +1 HOUR")
    take(queue).done()

    assert queue.add("work", unique="key").id == first.id


def test_a_key_may_be_held_on_after_the_end(queue: Queue, clock: MovedClock) -> None:
    """For `unique_for`, to the millisecond; meanwhile the ended job is the answer."""
    first = queue.add("work", unique="key", unique_for="10m")
    clock.advance(MINUTE_MS)
    take(queue).done("once")

    clock.advance(10 * MINUTE_MS - 1)
    upkeep(queue)
    with unchanged(queue):
        assert queue.add("work", unique="key").id == first.id
    clock.advance(1)

    assert queue.add("work", unique="key").id != first.id


def test_a_key_that_is_held_on_outlives_a_forgetful_archive(make_queue: MakeQueue, clock: MovedClock) -> None:
    """With `retention=0` nothing is left of the job but its key."""
    queue = make_queue(retention=0)
    first = queue.add("work", unique="key", unique_for="10m")
    take(queue).done()

    assert queue.add("work", unique="key").id == first.id
    clock.advance(10 * MINUTE_MS)
    assert queue.add("work", unique="key").id != first.id


def test_a_key_goes_with_the_job_that_an_operator_deletes(queue: Queue) -> None:
    """Otherwise an add would return a job that is not there."""
    first = queue.add("work", unique="key", unique_for="10m")
    take(queue).done()

    queue.delete(first)

    assert queue.add("work", unique="key").id != first.id


def test_cancelling_a_failed_job_leaves_its_key_as_it_is(queue: Queue, clock: MovedClock) -> None:
    """It had ended before: `unique_for` does not begin again, and the key may have another holder by now."""
    failed = [queue.add("work", unique=key, unique_for="10m") for key in ("free", "taken")]
    for _ in failed:
        take(queue).fail()
    clock.advance(11 * MINUTE_MS)
    holder = queue.add("work", unique="taken")

    assert [queue.cancel(job).state for job in failed] == [State.CANCELLED] * 2

    assert queue.add("work", unique="free").id != failed[0].id
    assert queue.add("work", unique="taken").id == holder.id


# ── merge and replace ────────────────────────────────────────────────────────────────────────────


def test_merge_merges_the_data_as_rfc_7396_says(queue: Queue) -> None:
    """Objects merge, null deletes, all else replaces; the time stays."""
    first = queue.add("work", {"a": 1, "b": {"c": 2, "d": 3}, "e": [1]}, unique="key", delay=60)

    again = queue.add(
        "work", {"b": {"c": None, "x": 9}, "e": [2]}, unique="key", on_conflict="merge", priority=900
    )

    assert again.id == first.id
    assert queue.data(first) == {"a": 1, "b": {"d": 3, "x": 9}, "e": [2]}
    assert (first.get().priority, first.get().run_at) == (900, START_MS + MINUTE_MS)


def test_a_merge_that_changes_nothing_changes_nothing(queue: Queue) -> None:
    """Also where the key order differs, or a priority was given."""
    queue.add("work", {"a": 1, "b": 2}, unique="key")

    with unchanged(queue):
        queue.add("work", {"b": 2, "a": 1}, unique="key", on_conflict="merge", priority=900)


def test_a_merge_without_priority_and_repeat_leaves_them(queue: Queue) -> None:
    """What is not said stays."""
    first = queue.add("work", {"a": 1}, unique="key", priority=900, repeat="DAILY")

    queue.add("work", {"a": 2}, unique="key", on_conflict="merge")

    assert (first.get().priority, first.get().repeat) == (900, "DAILY")


def test_replace_takes_data_and_time_anew(queue: Queue, clock: MovedClock) -> None:
    """A debounce: the job runs once, so long after the last add."""
    first = queue.add("work", {"n": 1}, unique="key", delay=10)
    for n in (2, 3):
        clock.advance(9_000)
        assert nothing(queue)
        assert queue.add("work", {"n": n}, unique="key", delay=10, on_conflict="replace").id == first.id

    clock.advance(9_999)
    assert nothing(queue)
    clock.advance(1)
    assert take(queue).data == {"n": 3}
    assert nothing(queue)


def test_replace_begins_anew(queue: Queue, clock: MovedClock) -> None:
    """With all its attempts, without the steps of the old data, and with the expiry of the new add."""
    first = queue.add("work", {"n": 1}, unique="key", attempts=2, backoff=60, expires="5m")
    job = take(queue)
    ask(queue, c.Step(hold=hold_of(job), name="half", result="1"))
    job.done(error="broke")
    clock.advance(4 * MINUTE_MS)
    queue.add("work", {"n": 2}, unique="key", on_conflict="replace", delay="4m", expires="1h")
    assert (first.get().attempts, first.get().steps) == (0, 0)
    clock.advance(4 * MINUTE_MS)

    assert take(queue).done(error="broke again").state == State.QUEUED


# ── what reaches a job that runs ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["replace", "merge"])
def test_what_reaches_a_running_job_makes_it_run_once_more(queue: Queue, how: Any) -> None:
    """With the new data; what it has at hand is the old."""
    first = queue.add("work", {"n": 1}, unique="key")
    job = take(queue)

    assert queue.add("work", {"n": 2}, unique="key", on_conflict=how).id == first.id
    assert (job.data, state_of(queue, first)) == ({"n": 1}, State.RUNNING)
    assert job.done("first").state == State.QUEUED

    again = take(queue)
    assert (again.id, again.data) == (first.id, {"n": 2})
    again.done("second")
    assert first.result() == "second"
    assert nothing(queue)


def test_a_replaced_child_waits_for_its_new_time(queue: Queue, clock: MovedClock) -> None:
    """Also if it still waits for its parent: it is not due at the time that it had before."""
    queue.add("parent")
    parent = take(queue, "parent")
    for old, new in ((3_600, 0), (0, 3_600)):
        first = parent.add("child", unique=str(old), delay=old)
        parent.add("child", unique=str(old), delay=new, on_conflict="replace")
        assert first.get().run_at == START_MS + new * 1_000
    parent.done()

    take(queue, "child").done()
    assert nothing(queue, "child")
    clock.advance(60 * MINUTE_MS)
    take(queue, "child").done()


def test_a_replace_of_a_running_job_keeps_its_time_in_mind(queue: Queue, clock: MovedClock) -> None:
    """The run that follows comes when the last add said."""
    first = queue.add("work", unique="key")
    job = take(queue)
    queue.add("work", unique="key", on_conflict="replace", delay=30)

    job.done()

    assert (first.get().run_at, nothing(queue)) == (START_MS + 30_000, True)
    clock.advance(30_000)
    take(queue).done()
    assert state_of(queue, first) == State.FINISHED


def test_a_replace_of_a_job_that_was_asked_to_stop_runs(queue: Queue) -> None:
    """The request was about the work before it."""
    first = queue.add("work", {"n": 1}, unique="key")
    job = take(queue)
    queue.cancel(first)
    queue.add("work", {"n": 2}, unique="key", on_conflict="replace")

    job.done()

    assert take(queue).data == {"n": 2}


@pytest.mark.parametrize("end", ["fail", "error", "lapse"])
def test_a_replace_of_a_running_job_outlives_a_run_that_did_not_go_well(
    queue: Queue, clock: MovedClock, end: str
) -> None:
    """Somebody asked for another run, so there is one."""
    first = queue.add("work", {"n": 1}, unique="key", attempts=1, losses=1)
    job = take(queue, lease=1)
    queue.add("work", {"n": 2}, unique="key", on_conflict="replace")

    if end == "lapse":
        clock.advance(1_000)
    elif end == "fail":
        job.fail()
    else:
        job.done(error="broke")

    again = take(queue)
    assert (again.id, again.data) == (first.id, {"n": 2})
    again.done()
    assert state_of(queue, first) == State.FINISHED


@pytest.mark.parametrize("end", ["release", "lapse"])
def test_a_replaced_job_that_comes_back_waits_for_its_new_time(
    queue: Queue, clock: MovedClock, end: str
) -> None:
    """A debounce holds also where the run that it reached came to nothing."""
    first = queue.add("work", unique="key")
    job = take(queue, lease=1)
    queue.add("work", unique="key", on_conflict="replace", delay=30)

    if end == "lapse":
        clock.advance(1_000)
        upkeep(queue)
    else:
        job.release()

    assert (first.get().run_at, nothing(queue)) == (START_MS + 30_000, True)
    clock.advance(30_000)
    assert take(queue).done().state == State.FINISHED


@pytest.mark.parametrize("late", [True, False], ids=["answered late", "handed out again"])
def test_a_replace_reaches_a_job_that_lapsed(queue: Queue, clock: MovedClock, late: bool) -> None:
    """Whether its late holder still answers or another has it: one run has the new data, and one only."""
    first = queue.add("work", {"n": 1}, unique="key")
    job = take(queue, lease=1)
    clock.advance(1_000)
    upkeep(queue)
    queue.add("work", {"n": 2}, unique="key", on_conflict="replace")
    if late:
        job.done()

    again = take(queue)
    assert (again.id, again.data) == (first.id, {"n": 2})
    assert again.done().state == State.FINISHED


def test_what_follows_a_job_keeps_to_its_own_key(queue: Queue) -> None:
    """A job that is there already is what follows; the finish stands."""
    waiting = queue.add("second", 1, unique="key", domain="d")
    queue.add("first", domain="d", then=queue.call("second", unique="key", domain="d"))

    assert take(queue, "first").done(2).state == State.FINISHED

    assert [job.id for job in queue.jobs()] == [waiting.id]


def test_a_function_with_steps_to_undo_is_not_replaced(queue: Queue) -> None:
    """What undoes its steps may depend on its data. Others start over; a follow-up is not added."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context, item: str, is_undone: bool) -> None:
        ctx.step("book", did.append, item)
        if is_undone:
            ctx.compensate("book", did.append, f"-{item}")
        ctx.sleep("1h")

    plain = order.using(unique="plain").add("tea", False)
    begun = order.using(unique="begun").add("rum", True)
    run_all(queue)
    again = order.using(unique="plain", on_conflict="replace").add("gin", False)
    for way in ("replace", "merge"):
        with pytest.raises(
            Refused, match=f"cannot {way} job {begun.id}: .* with steps to undo, .* cancel it first"
        ):
            order.using(unique="begun", on_conflict=way).add("gin", True)
    follow_up = order.using(unique="begun", on_conflict="replace").call("ale", True)
    queue.add("first", then=follow_up)
    assert take(queue, "first").done().state == State.FINISHED
    assert (again.id, begun.get().steps) == (plain.id, 2)
    queue.cancel(begun)
    run_all(queue)

    assert did == ["tea", "rum", "gin", "-rum"]
    assert order.using(unique="begun", on_conflict="replace").add("gin", True).is_new


# ── back from the dead ───────────────────────────────────────────────────────────────────────────


def test_a_failed_job_whose_key_was_taken_is_not_put_back(queue: Queue) -> None:
    """The error names who has it now; once that has ended it may."""
    first = queue.add("work", unique="key")
    take(queue).fail()
    second = queue.add("work", unique="key")

    with unchanged(queue), pytest.raises(Refused, match=f"{first.id}.*{second.id} holds now"):
        queue.requeue(first)
    take(queue).done()

    assert queue.requeue(first).state == State.QUEUED
    assert queue.add("work", unique="key").id == first.id


def test_at_the_port_a_failed_job_holds_its_key(queue: Queue) -> None:
    """Any live job does there; natively the key is free."""
    for hand, is_same in ((Port(queue), True), (Native(queue), False)):
        first = hand.add(hand.name, unique=b"key")
        hand.take(hand.name)
        hand.fail(first)

        assert (hand.add(hand.name, unique=b"key") == first) is is_same


def test_at_the_port_a_merge_never_moves_a_job(queue: Queue) -> None:
    """State and time stay, of one that runs too: it does not run once more."""
    port = Port(queue)
    first = port.add(unique=b"key", data='{"a":1}', run_at=START_MS + MINUTE_MS)
    port.add(unique=b"key", data='{"b":2}', on_conflict="merge", priority=0)
    job = queue.get(first)
    assert (job.run_at, job.priority, queue.data(first)) == (START_MS + MINUTE_MS, 0, {"a": 1, "b": 2})

    second = port.add("other", unique=b"key", data='{"a":1}')
    port.take("other")
    assert port.add("other", unique=b"key", data='{"a":2}', on_conflict="merge") == second

    assert port.finish(second).state == State.FINISHED


def test_mocked_jobs_have_keys_of_their_own(queue: Queue) -> None:
    """A mocked job never stands in for a real one."""
    real, mocked = queue.add("work", unique="key"), queue.add("work", unique="key", mock=True)

    assert real.id != mocked.id
    assert queue.add("work", unique="key", mock=True).id == mocked.id


def test_a_childs_key_belongs_to_its_parent(queue: Queue) -> None:
    """Children of another may have the same, and a job without a parent."""
    queue.add_many([("parent", n) for n in range(2)])
    first, second = take(queue), take(queue)
    child = first.add("work", unique="key")

    assert first.add("work", unique="key").id == child.id
    assert len({child.id, second.add("work", unique="key").id, queue.add("work", unique="key").id}) == 3


def test_a_key_belongs_to_a_domain(queue: Queue) -> None:
    """The same in another domain, or in none, is another key."""
    domains = [None, "d", "e", "x" * 65]
    added = [queue.add("work", unique="key", domain=domain) for domain in domains]

    assert [queue.add("work", unique="key", domain=domain).id for domain in domains] == [
        job.id for job in added
    ]
    assert len(queue.jobs()) == len(domains)
