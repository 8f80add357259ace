"""A function that sleeps, waits for a signal and calls other jobs, as every store must run it."""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.errors import ChildFailed, LeaseLost, Refused
from holdfast.core.job import Code, Place, State
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, ask, complaints, hold_of, nothing, see, take


@dataclass
class Approval:
    """What a signal brings."""

    by: str
    amount: int


def run_all(queue: Queue) -> int:
    """Run what may run now, until there is nothing left; how many runs that were."""
    count = 0
    while (job := queue.next(renew=False)) is not None:
        job.run()
        count += 1
    assert complaints(queue) == []
    return count


def kinds(queue: Queue, job: Any) -> list[str]:
    """What a job has done, in order."""
    return [f"{entry.kind} {entry.name}".strip() for entry in queue.timeline(job)]


def test_the_example_goes_on_wherever_it_was(queue: Queue, clock: MovedClock) -> None:
    """It sleeps, waits for a person, calls other jobs, and each part is done once."""
    done: Counter[str] = Counter()

    def create_account(user: str) -> list[str]:
        done["create"] += 1
        return [f"{user}/a", f"{user}/bb"]

    @queue.task
    def size(path: str) -> int:
        done[path] += 1
        return len(path)

    @queue.task
    async def render(sizes: list[int]) -> str:
        done["render"] += 1
        return "+".join(map(str, sizes))

    @queue.task
    async def onboard(ctx: AsyncContext, user: str) -> str:
        done["runs"] += 1
        files = await ctx.step("create", create_account, user)
        await ctx.sleep("3 days")
        approval = await ctx.wait_for("approval", timeout="7 days", type=Approval)
        sizes = await ctx.gather(*[size.call(path) for path in files])
        report = await ctx.call(render, sizes)
        return f"{report} by {approval.by}"

    job = onboard.add("ann")
    assert run_all(queue) == 1
    assert (queue.get(job).place, queue.get(job).run_at) == (Place.SCHEDULED, clock() + 3 * DAY_MS)
    assert "It sleeps until" in job.why()
    clock.advance(3 * DAY_MS)
    assert run_all(queue) == 1
    assert "waited for the signal 'approval' since" in job.why()
    queue.signal(job, "approval", {"by": "bob", "amount": 5})
    runs = run_all(queue)

    assert job.result() == "5+6 by bob"
    assert done == {"create": 1, "ann/a": 1, "ann/bb": 1, "render": 1, "runs": 5}
    assert runs == 6
    assert queue.get(job).attempts == 0


def test_signals_are_kept_in_order_until_they_are_waited_for(queue: Queue) -> None:
    """By name, also those that come before the job first runs; each is taken once."""

    @queue.task
    def collect(ctx: Context) -> list[Any]:
        return [ctx.wait_for(name) for name in ("a", "b", "a", "a")]

    job = collect.add()
    queue.signal(job, "a", 1)
    queue.signal(job, "b", {"x": None})
    queue.signal(job, "a", 2)
    assert run_all(queue) == 4
    assert (job.get().state, kinds(queue, job)) == (
        State.PAUSED,
        ["signal a", "signal b", "signal a", "signal a"],
    )
    queue.signal(job, "b", "nobody wants it")
    assert nothing(queue)
    queue.signal(job, "a", 3)
    run_all(queue)

    assert job.result() == [1, {"x": None}, 2, 3]
    assert [name for name in see(queue).records if name[0] == "signals"] == []
    assert [entry.result for entry in queue.timeline(job)] == ["1", '{"x":null}', "2", "3"]


def test_a_job_is_found_by_its_unique_key(queue: Queue) -> None:
    """So that a signal can go to the order, whatever the id of its job; of its task and domain alone."""

    @queue.task
    def order(ctx: Context, number: int) -> str:
        return ctx.wait_for("paid", type=str)

    job = order.using(unique="7").add(7)
    other = order.using(unique="7", domain="shop").add(7)
    run_all(queue)

    assert (queue.find(order, unique="7"), queue.find("order", unique=b"7", domain="shop")) == (job, other)
    assert [queue.find("other", unique="7"), queue.find(order, unique="8")] == [None, None]
    found = queue.find(order, unique="7")
    assert found is not None
    queue.signal(found, "paid", "in cash")
    run_all(queue)
    assert (job.result(), queue.find(order, unique="7")) == ("in cash", None)


def test_a_signal_with_a_key_is_sent_once(queue: Queue, clock: MovedClock) -> None:
    """Within a day, also when the job has ended meanwhile; the keys of different names are apart."""

    @queue.task
    def wait(ctx: Context) -> list[Any]:
        return [ctx.wait_for("a"), ctx.wait_for("b")]

    # In one domain, and so in one shard.
    job = wait.using(domain="d").add()
    for _ in range(2):
        queue.signal(job, "a", 1, key="k")
        queue.signal(job, "b", 2, key="k")
    run_all(queue)
    queue.signal(job, "a", 1, key="k")

    assert job.result() == [1, 2]
    clock.advance(2 * DAY_MS)
    other = wait.using(domain="d").add()
    queue.signal(other, "a", key="k")
    assert len([name for name in see(queue).records if name[0] == "signal_key"]) == 1


def test_called_jobs_are_added_once_and_their_failures_told(queue: Queue, clock: MovedClock) -> None:
    """A run that is lost after they were added adds no others; each result is read once, then archived."""

    @queue.task(attempts=1)
    def half(number: int) -> float:
        if number % 2:
            raise ValueError(f"{number} is odd")
        return number / 2

    @queue.task(backoff="1s")
    def sums(ctx: Context) -> Any:
        assert ctx.gather() == []
        first = ctx.gather(*[half.call(number) for number in range(4)], return_exceptions=True)
        try:
            ctx.call(half, 7)
        except ChildFailed as error:
            failed = [error.reason, queue.get(error.job_id).task, getattr(error.outcome, "error", None)]
        if ctx.attempt == 1:
            raise ValueError("again")
        return [[str(one) if isinstance(one, Exception) else one for one in first], failed]

    job = sums.add()
    take(queue).run()
    assert "waits for 4 of 4 jobs that it has called" in job.why()
    run_all(queue)
    assert {child.state for child in queue.jobs(parent=job)} == {State.FAILED}
    clock.advance(MINUTE_MS)
    run_all(queue)

    odd = "job {} ended without a result: gave up after 1 attempt: ValueError: {} is odd"
    failed = sorted(child.id for child in queue.jobs(task="half"))
    found = job.result()
    assert found[0] == [0.0, odd.format(failed[0], 1), 1.0, odd.format(failed[1], 3)]
    assert found[1] == ["gave up after 1 attempt: ValueError: 7 is odd", "half", "ValueError: 7 is odd"]
    assert queue.counts()["half"] == {"FINISHED": 2, "FAILED": 3}


def test_a_wait_that_comes_after_the_end_of_its_job_is_refused(queue: Queue) -> None:
    """With the record of its run, which still has a signal."""

    @queue.task
    def wait(ctx: Context) -> None:
        ctx.wait_for("go")

    added = wait.add()
    queue.signal(added, "go")
    job = take(queue)
    held = job.record
    job.done()

    late = c.Suspension(kind="signal", name="go")
    with pytest.raises(LeaseLost):
        ask(queue, c.Answer(hold=hold_of(job), held=held, code=Code.SUSPEND, suspend=late))
    assert queue.get(added).state == State.FINISHED


def test_suspended_functions_are_counted_by_what_they_wait_for(queue: Queue, clock: MovedClock) -> None:
    @queue.task
    def idle() -> None:
        """Nothing to do."""

    @queue.task
    def waits(ctx: Context, what: str) -> None:
        if what == "sleep":
            ctx.sleep("1h")
        elif what == "call":
            ctx.call(idle)
        else:
            ctx.wait_for("go", timeout=what, default=None)

    def suspended() -> dict[str, int]:
        return dict(queue.connection.ask(q.GetOverview()).suspended.get("waits", {}))

    added = [waits.add(what) for what in ("sleep", "call", "1d", "2d")]
    queue.pause("idle")
    run_all(queue)
    assert suspended() == {"sleep": 1, "call": 1, "signal": 2}
    assert queue.counts()["waits"] == {"QUEUED": 3, "PAUSED": 1}
    clock.advance(HOUR_MS)
    queue.signal(added[2], "go", 1)
    queue.resume("idle")
    ask(queue, c.Upkeep())
    assert suspended() == {"call": 1, "signal": 1}
    run_all(queue)
    assert suspended() == {"signal": 1}
    queue.cancel(added[3])

    assert suspended() == {}
    assert complaints(queue) == []


def test_a_claim_brings_the_steps_of_its_job(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are many; then its run asks for them."""

    @queue.task
    def short(ctx: Context) -> int:
        return ctx.step("one", lambda: 1) + ctx.wait_for("go", type=int)

    # The one is claimed by the store alone, the other by the rules.
    queue.limit("limited", concurrency=1)
    jobs = [short.add(), short.using(domain="limited").add()]
    run_all(queue)
    for job in jobs:
        queue.signal(job, "go", 1)
    for most in (2, 1):
        monkeypatch.setattr("holdfast.core.bounds.CLAIMED_STEPS", most)
        claimed = ask(queue, c.Claim(limit=1, lease_ms=60_000)) + ask(
            queue, c.Claim(limit=1, lease_ms=60_000)
        )
        assert [len(one.steps) for one in claimed] == [2 if most == 2 else 0] * 2
        assert all(list(one.steps) in ([], queue.timeline(one.job.id)) for one in claimed)
        for one in claimed:
            ask(queue, c.Release(hold=c.hold_of(one.job)))
    running = take(queue)
    monkeypatch.undo()
    running.run()
    # Whoever would ask for steps now fails.
    monkeypatch.setattr("holdfast.queue.durable.q.GetSteps", None)
    run_all(queue)

    assert [job.result() for job in jobs] == [2, 2]


@pytest.mark.parametrize("way", ["requeue", "update"])
def test_who_runs_a_sleeping_job_now_ends_its_sleep(queue: Queue, clock: MovedClock, way: str) -> None:
    """Also for the runs after that; another time is the end of the sleep. A wait for a signal goes on."""

    @queue.task
    def nap(ctx: Context) -> str | None:
        ctx.sleep("1h")
        return ctx.wait_for("go", type=str, timeout="1h", default=None)

    job, began = nap.add(), clock()
    run_all(queue)
    if way == "update":
        queue.update(job, run_at=datetime.fromtimestamp((began + 2 * HOUR_MS) / 1000, UTC))
        clock.advance(2 * HOUR_MS - SECOND_MS)
        assert nothing(queue)
        clock.advance(SECOND_MS)
    else:
        queue.requeue(job)
    run_all(queue)
    began, wait = clock(), queue.timeline(job)[-1]
    assert (wait.kind, job.get().run_at) == ("signal", began + HOUR_MS)
    queue.requeue(job)
    run_all(queue)
    assert job.get().run_at == began + HOUR_MS
    clock.advance(HOUR_MS)
    run_all(queue)

    assert (job.get().state, job.result()) == (State.FINISHED, None)


def test_what_can_be_done_to_a_job_that_waits(queue: Queue) -> None:
    """It is cancelled, deleted, requeued; its priority changes and it waits on."""

    @queue.task
    def wait(ctx: Context) -> str:
        return ctx.wait_for("go", type=str)

    jobs = [wait.add() for _ in range(4)]
    run_all(queue)
    assert queue.cancel(jobs[0]).state == State.CANCELLED
    queue.delete(jobs[1])
    queue.requeue(jobs[2])
    assert run_all(queue) == 1
    queue.update(jobs[3], priority=900)
    for job in jobs[2:]:
        queue.signal(job, "go", "gone")
    run_all(queue)

    assert [job.result() for job in jobs[2:]] == ["gone", "gone"]
    assert queue.counts() == {"wait": {"FINISHED": 2, "CANCELLED": 1}}


def test_a_signal_that_no_run_has_seen_is_not_passed_over_by_a_cancel(queue: Queue) -> None:
    """The job runs once more, in which it may find that it has something to undo; and takes no others."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context) -> None:
        event = ctx.wait_for("paid", type=str)
        ctx.compensate("payment", did.append, f"refund of {event}")
        ctx.step("ship", did.append, "shipped")

    job = order.add()
    run_all(queue)
    queue.signal(job, "paid", "evt-1")
    assert queue.cancel(job).state == State.QUEUED
    with pytest.raises(Refused, match="it is being cancelled, and must be a job that goes on"):
        queue.signal(job, "paid", "evt-2")
    run_all(queue)

    assert (job.get().state, did) == (State.CANCELLED, ["refund of evt-1"])


def test_older_code_gives_back_a_job_that_newer_code_has_begun(
    queue: Queue, make_queue: MakeQueue, clock: MovedClock
) -> None:
    """It is no attempt, and the job does not fail: old and new workers may run side by side."""
    old = make_queue()

    @queue.task
    def review(ctx: Context) -> str:
        if ctx.version("ask first"):
            ctx.wait_for("approval")
        ctx.sleep("1h")
        return "done"

    @old.task(name="review", attempts=1)
    def old_review(ctx: Context) -> str:
        ctx.sleep("1h")
        return "done"

    job = review.add()
    take(queue).run()
    queue.signal(job, "approval")
    take(old).run()
    found = job.get()
    assert (found.state, found.attempts) == (State.QUEUED, 0)
    assert found.outcome is not None
    assert found.outcome.error == "it has gone past the version 'ask first', which this worker does not have"
    clock.advance(MINUTE_MS)
    take(queue).run()
    clock.advance(HOUR_MS)
    take(queue).run()

    assert job.result() == "done"
