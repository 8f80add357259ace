"""What goes back: steps that are undone, and those from which a job is requeued."""

import asyncio
from datetime import UTC, datetime

import pytest

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.errors import BadInput, Refused, TooLarge
from holdfast.core.job import State
from holdfast.queue.answers import Failed
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import Queue
from holdfast.queue.replay import error_text
from holdfast.testing.clock import MovedClock

from .functions import kinds, run_all
from .tools import HOUR_MS, MINUTE_MS, SECOND_MS, ask, hold_of, take


def test_steps_are_undone_in_reverse_order(queue: Queue, clock: MovedClock) -> None:
    """When the job fails for good, and not before; once, though a run is lost between."""
    did: list[str] = []

    @queue.task(attempts=2, backoff="1s")
    def order(ctx: Context, way: str) -> str:
        for name in ("book", "charge"):
            ctx.step(name, did.append, name)
            ctx.compensate(name, did.append, f"-{name}")
        ctx.sleep("1m")
        if way == "fails":
            raise Failed("sold out")
        if way == "raises":
            raise ValueError("broken")
        return way

    for way, reason in (("fails", "sold out"), ("raises", "gave up after 2 attempts: ValueError: broken")):
        did.clear()
        job = order.add(way)
        run_all(queue)
        clock.advance(MINUTE_MS)
        run_all(queue)
        assert did == ["book", "charge"] + ([] if way == "raises" else ["-charge", "-book"])
        clock.advance(MINUTE_MS)
        run_all(queue)
        assert did == ["book", "charge", "-charge", "-book"]
        assert (job.get().state, job.get().reason) == (State.FAILED, reason)
        assert kinds(queue, job)[-3:] == ["undo undo", "step undo charge", "step undo book"]
    did.clear()
    job = order.add("well")
    run_all(queue)
    clock.advance(MINUTE_MS)
    run_all(queue)
    assert (job.result(), did) == ("well", ["book", "charge"])


def test_undoing_goes_on_after_a_lost_run(queue: Queue, clock: MovedClock) -> None:
    """It does not go forward any more; what could not be undone is tried again when the job is requeued."""
    did: list[str] = []
    broken = [True]

    def undo(name: str) -> None:
        if name == "a" and broken[0]:
            raise ConnectionError("away")
        did.append(name)

    @queue.task(attempts=1)
    async def order(ctx: AsyncContext) -> None:
        for name in ("a", "b"):
            await ctx.step(name, did.append, f"do {name}")
            ctx.compensate(name, undo, name)
        await ctx.step("pay", fail)

    def fail() -> None:
        raise ValueError("no money")

    job = order.add()
    lost = take(queue, lease="10s")
    ctx = Context(lost, queue)
    for name in ("a", "b"):
        ctx.step(name, did.append, f"do {name}")
    ask(
        queue, c.Step(hold=hold_of(lost), name="undo", kind="undo", result=error_text(ValueError("no money")))
    )
    clock.advance(11 * SECOND_MS)
    run_all(queue)
    assert did == ["do a", "do b", "b"]
    assert job.get().reason == "no money; not undone: a (ConnectionError: away)"
    broken[0] = False
    queue.requeue(job)
    run_all(queue)

    assert did == ["do a", "do b", "b", "a"]
    assert (job.get().state, job.get().reason) == (State.FAILED, "no money")


def test_a_cancelled_job_undoes_its_steps(queue: Queue) -> None:
    """Also if it sleeps or waits: it runs once more for that. By force it does not."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context, way: str) -> None:
        ctx.step("book", did.append, "book")
        ctx.compensate("book", did.append, "-book")
        if way == "sleep":
            ctx.sleep("1h")
        elif way == "signal":
            ctx.wait_for("go")
        else:
            queue.cancel(ctx.job_id)
            ctx.progress(0.5)
            ctx.sleep("1h")

    for way in ("sleep", "signal", "running"):
        did.clear()
        job = order.add(way)
        run_all(queue)
        if way != "running":
            assert queue.cancel(job).state == State.QUEUED
            run_all(queue)
        assert (job.get().state, did) == (State.CANCELLED, ["book", "-book"])
    did.clear()
    job = order.add("sleep")
    run_all(queue)
    with pytest.raises(Refused, match=r"a function with steps to undo, .* cancel it first"):
        queue.delete(job)
    assert queue.cancel(job, force=True).state == State.CANCELLED
    assert did == ["book"]


@pytest.mark.parametrize("way", ["expires", "expires while it runs", "is lost", "is lost again"])
def test_a_job_that_fails_between_runs_undoes_its_steps(queue: Queue, clock: MovedClock, way: str) -> None:
    """It runs once more for that, and does not go forward. If that run is lost too, the job has failed."""
    did: list[str] = []

    @queue.task(expires="1h", losses=2)
    def order(ctx: Context) -> None:
        ctx.step("book", did.append, "book")
        ctx.compensate("book", did.append, "-book")
        ctx.sleep("10m")
        ctx.step("pay", did.append, "pay")
        ctx.compensate("pay", did.append, "-pay")
        ctx.sleep("2h")

    job = order.add()
    run_all(queue)
    if way == "expires":
        clock.advance(10 * MINUTE_MS)
        run_all(queue)
    else:
        for _ in range(1 if "expires" in way else 2):
            clock.advance(10 * MINUTE_MS)
            lost = Context(take(queue, lease="10s"), queue)
            lost.step("book", did.append, "twice")
            lost.compensate("book", did.append, "-book")
            lost.step("pay", did.append, "pay")
    clock.advance(HOUR_MS if "expires" in way else MINUTE_MS)
    if way == "is lost again":
        assert take(queue, lease="10s").record.undoes
        clock.advance(MINUTE_MS)
    run_all(queue)

    undone = {"expires": ["-pay", "-book"], "is lost again": []}.get(way, ["-pay", "-book"])
    assert did == ["book", "pay", *undone]
    assert job.get().state == State.FAILED
    assert job.get().reason.partition(":")[0] == ("expired" if "expires" in way else "quarantined")
    assert run_all(queue) == 0


def test_a_job_is_requeued_from_a_step(queue: Queue, clock: MovedClock) -> None:
    """By name or number: what came before is kept, the rest is done again, with new children."""
    calls: list[str] = []

    @queue.task
    def half(number: int) -> int:
        return number // 2

    @queue.task(attempts=1)
    def steps(ctx: Context) -> None:
        for name in ("a", "b"):
            ctx.step(name, calls.append, name)
        calls.append(str(ctx.call(half, 8)))
        ctx.step("c", calls.append, "c")
        raise ValueError

    job = steps.add()
    run_all(queue)
    assert kinds(queue, job) == ["step a", "step b", "call", "step c"]
    assert "undone" not in queue.why(job)
    full = queue.get(job)
    queue.requeue(job, from_step="c")
    run_all(queue)
    assert queue.get(job).step_bytes == full.step_bytes
    queue.requeue(job, from_step=3)
    run_all(queue)
    queue.requeue(job, from_step="b")
    assert kinds(queue, job) == ["step a"]
    run_all(queue)

    assert calls == [*"ab4c", *"4c", *"4c", *"b4c"]
    assert queue.get(job).step_bytes == full.step_bytes
    with pytest.raises(BadInput, match=r"a step of job \d+: the last are a, b, c"):
        queue.requeue(job, from_step="d")


def test_what_cannot_be_undone_is_tried_again(queue: Queue, clock: MovedClock) -> None:
    """As often as the job has attempts, after its backoff; also if it was cancelled."""
    did: list[str] = []
    left = [0]

    def undo() -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError("away")
        did.append("-pay")

    @queue.task(attempts=3, backoff="1m")
    def order(ctx: Context, way: str) -> None:
        ctx.step("pay", did.append, "pay")
        ctx.compensate("pay", undo)
        if way == "fails":
            raise Failed("sold out")
        ctx.sleep("1d")

    failed, cancelled = State.FAILED, State.CANCELLED
    for way, broken, ended in (("fails", 2, failed), ("fails", 3, failed), ("cancel", 2, cancelled)):
        did.clear()
        left[0] = broken
        job = order.add(way)
        run_all(queue)
        if way == "cancel":
            queue.cancel(job)
            run_all(queue)
        assert (job.get().state, did) == (State.QUEUED, ["pay"])
        for _ in range(2):
            clock.advance(HOUR_MS)
            run_all(queue)
        assert job.get().state == ended
        assert did == (["pay"] if broken == 3 else ["pay", "-pay"])
        not_undone = "; not undone: pay (ConnectionError: away)" if broken == 3 else ""
        assert job.get().reason == ("cancelled" if way == "cancel" else f"sold out{not_undone}")
        if broken == 3:
            assert job.why().endswith("It has undone none of its steps: a plain requeue tries again.")


def test_a_result_that_json_would_change_needs_an_annotation(queue: Queue) -> None:
    """Otherwise the type that the function returns, and what a type checker says, were not true."""

    def moment() -> datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)

    @queue.task(attempts=2)
    def order(ctx: Context, how: str) -> str:
        if how == "annotated":
            assert ctx.step("when", moment) == moment()
        elif how == "plain":
            assert ctx.step("when", lambda: {"at": [1, None, "x"]}) == {"at": [1, None, "x"]}
        else:
            ctx.step("when", lambda: (moment(),))
        return how

    jobs = [order.add(how) for how in ("annotated", "plain", "changed")]
    run_all(queue)

    assert [job.get().state for job in jobs] == [State.FINISHED, State.FINISHED, State.FAILED]
    assert (jobs[2].get().reason or "").startswith("result of step when is 'tuple', and must be what JSON")


def test_steps_that_were_undone_are_not_kept(queue: Queue) -> None:
    """By a requeue from a later step: it would go on with a payment that was given back."""
    did: list[str] = []

    @queue.task(attempts=1)
    def order(ctx: Context) -> None:
        for name in ("look", "pay", "ship"):
            ctx.step(name, did.append, name)
            if name == "pay":
                ctx.compensate(name, did.append, "-pay")
        if len(did) == 4:
            raise ValueError

    job = order.add()
    did.append("begin")
    run_all(queue)
    assert did == ["begin", "look", "pay", "ship", "-pay"]
    assert queue.why(job).endswith(
        "It has undone 'pay': a plain requeue undoes only what is left; from such a step, or from one before"
        " it, it goes forward again."
    )
    needed = "from_step is 'ship', and must be 'pay', or a step before it: what was undone is 'pay'"
    with pytest.raises(BadInput, match=needed):
        queue.requeue(job, from_step="ship")
    queue.requeue(job, from_step="pay")
    run_all(queue)

    assert did[5:] == ["pay", "ship"]
    assert job.get().state == State.FINISHED


def test_a_signal_that_does_not_fit_or_come_fails_the_job_at_once(queue: Queue, clock: MovedClock) -> None:
    """Another attempt would find the same; a function may catch it, and wait for the next."""

    @queue.task
    def strict(ctx: Context) -> int:
        return ctx.wait_for("go", type=int, timeout="1h")

    @queue.task
    def patient(ctx: Context) -> int:
        while True:
            try:
                return ctx.wait_for("go", type=int)
            except BadInput:
                continue

    jobs = [strict.add(), strict.add(), patient.add()]
    run_all(queue)
    for job, value in ((jobs[0], "x"), (jobs[2], "x"), (jobs[2], 5)):
        queue.signal(job, "go", value)
        run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert (
        jobs[0]
        .get()
        .reason.startswith("data of signal go is of another type, and must be as the function waits")
    )
    assert jobs[1].get().reason == "signal 'go' did not come within 1h"
    assert jobs[2].result() == 5


def test_a_cancel_that_no_run_has_seen_undoes_all_the_same(queue: Queue, clock: MovedClock) -> None:
    """Whether the run then sleeps, raises, or waits for its next attempt; a lost run goes on with it."""
    did: list[str] = []

    @queue.task(backoff="1h")
    def order(ctx: Context, way: str) -> None:
        for number in (1, 2):
            ctx.compensate("room", did.append, f"-room {number}")
        ctx.step("book", did.append, "book")
        if way in ("sleeps", "raises"):
            queue.cancel(ctx.job_id)
        if way == "sleeps":
            ctx.sleep("1h")
        raise ValueError

    for way in ("sleeps", "raises", "retries"):
        did.clear()
        job = order.add(way)
        take(queue).run()
        if way == "retries":
            queue.cancel(job)
        lost = queue.next(lease="10s", renew=False)
        if lost is not None:
            clock.advance(11 * SECOND_MS)
        clock.advance(2 * HOUR_MS)
        run_all(queue)
        assert (job.get().state, did) == (State.CANCELLED, ["book", "-room 2", "-room 1"])


def test_a_job_with_all_its_steps_can_undo_them(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """These are more than it may have otherwise."""
    monkeypatch.setattr("holdfast.queue.durable.STEPS_KEPT", 3)
    monkeypatch.setattr(bounds, "STEPS_KEPT", 3)
    did: list[int] = []

    @queue.task
    def many(ctx: Context) -> None:
        for number in range(9):
            ctx.step(f"s{number}", did.append, number)
            ctx.compensate(f"s{number}", did.append, -number)

    job = many.add()
    run_all(queue)

    assert did == [0, 1, 2, -2, -1, 0]
    assert "the job has 3 steps already" in job.get().reason


def test_a_result_that_cannot_be_written_undoes_the_steps(queue: Queue) -> None:
    """It fails the job."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context) -> object:
        ctx.step("book", did.append, "book")
        ctx.compensate("book", did.append, "-book")
        return object()

    job = order.add()
    run_all(queue)

    assert did == ["book", "-book"]
    assert "result" in job.get().reason


class Killed(BaseException):
    """Ends a run as a dead process does: without an answer."""


def killed() -> None:
    """A step that never returns."""
    raise Killed


def test_a_job_whose_next_step_kills_its_process_undoes_the_steps_before(
    queue: Queue, clock: MovedClock
) -> None:
    """The store knows before that step that there is something to undo."""
    did: list[str] = []

    @queue.task(losses=2)
    def order(ctx: Context) -> None:
        ctx.step("charge", did.append, "charge")
        ctx.compensate("charge", did.append, "-charge")
        ctx.step("print", killed)

    job = order.add()
    for _ in range(2):
        with pytest.raises(Killed):
            take(queue, lease="10s").run()
        clock.advance(11 * SECOND_MS)
    run_all(queue)

    assert (job.get().state, did) == (State.FAILED, ["charge", "-charge"])
    assert kinds(queue, job) == ["step charge", "undo undo", "step undo charge"]


@pytest.mark.parametrize("way", ["is changed", "is lost"])
def test_a_cancel_stays_until_the_steps_are_undone(queue: Queue, clock: MovedClock, way: str) -> None:
    """Though the job is changed meanwhile, or is lost too often; it does not repeat."""
    did: list[str] = []

    @queue.task(losses=1)
    def order(ctx: Context) -> None:
        ctx.step("book", did.append, "book")
        ctx.compensate("book", did.append, "-book")
        if way == "is lost":
            ctx.step("print", killed)
        ctx.sleep("1h")

    job = order.using(repeat="DAILY").add()
    if way == "is lost":
        with pytest.raises(Killed):
            take(queue, lease="10s").run()
        queue.cancel(job)
        clock.advance(11 * SECOND_MS)
    else:
        run_all(queue)
        queue.cancel(job)
        queue.update(job, priority=7)
    run_all(queue)

    assert (job.get().state, did) == (State.CANCELLED, ["book", "-book"])


def test_a_repeating_job_that_has_expired_undoes_its_steps_and_ends(queue: Queue, clock: MovedClock) -> None:
    """As one does that has nothing to undo."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context) -> None:
        ctx.compensate("book", did.append, "-book")
        ctx.sleep("2h")

    job = order.using(repeat="DAILY", expires="1h").add()
    run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert (job.get().state, job.get().reason, did) == (State.FAILED, "expired", ["-book"])


def test_a_job_that_expires_before_its_next_attempt_undoes_its_steps(queue: Queue, clock: MovedClock) -> None:
    """Also if it was not to be seen when its run began."""
    did: list[str] = []

    @queue.task(expires="1h", backoff="10m")
    def order(ctx: Context) -> None:
        ctx.step("book", did.append, "book")
        ctx.compensate("book", did.append, "-book")
        clock.advance(55 * MINUTE_MS)
        raise ValueError

    job = order.add()
    take(queue).run()
    run_all(queue)

    assert (job.get().state, job.get().reason, did) == (State.FAILED, "expired", ["book", "-book"])


def test_each_compensation_is_done_whatever_its_name(queue: Queue) -> None:
    """Also if a step has that name, or another one has the name with a number; with `undo ` it must fit."""
    did: list[str] = []

    @queue.task
    def order(ctx: Context) -> None:
        ctx.step("undo a", did.append, "step")
        with pytest.raises(TooLarge, match="at most 255 bytes"):
            ctx.compensate("x" * 251, print)
        for number, name in enumerate(("a", "b #2", "b", "b", "b")):
            ctx.compensate(name, did.append, f"-{number}")
        raise Failed("no")

    order.add()
    run_all(queue)

    assert did == ["step", "-4", "-3", "-2", "-1", "-0"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_run_that_has_lost_its_job_undoes_no_more(
    queue: Queue, clock: MovedClock, *, is_async: bool
) -> None:
    """The next run does: no step is undone by both."""
    did: list[str] = []

    def undo(name: str) -> None:
        did.append(f"-{name}")
        if did == ["-b"]:
            clock.advance(HOUR_MS)
            take(queue, lease="10s")

    def order(ctx: Context) -> None:
        for name in ("a", "b"):
            ctx.compensate(name, undo, name)
        raise Failed("no")

    async def order_async(ctx: AsyncContext) -> None:
        for name in ("a", "b"):
            ctx.compensate(name, undo, name)
        raise Failed("no")

    job = (queue.task(order_async) if is_async else queue.task(order)).add()
    with pytest.raises(Failed):
        take(queue, lease="10s").run()
    assert did == ["-b"]
    clock.advance(11 * SECOND_MS)
    run_all(queue)

    assert (job.get().state, did) == (State.FAILED, ["-b", "-b", "-a"])


def test_a_gather_of_another_number_of_jobs_has_changed(queue: Queue) -> None:
    """The job fails with a sentence that says so, and goes on when the function is put back."""
    numbers = [1, 2]

    @queue.task
    def half(number: int) -> float:
        return number / 2

    @queue.task
    def halves(ctx: Context) -> list[float]:
        return ctx.gather(*[half.call(number) for number in numbers])

    job = halves.add()
    take(queue).run()
    numbers.append(3)
    run_all(queue)
    assert "step 1 was a call of 2 jobs, is now of 3: the function has changed" in job.get().reason
    numbers.pop()
    queue.requeue(job)
    run_all(queue)

    assert job.result() == [0.5, 1.0]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_others_are_undone_if_one_is_cancelled(queue: Queue, *, is_async: bool) -> None:
    """As by what it awaits: it could not be undone."""
    did: list[str] = []

    def undo(name: str) -> None:
        if name == "b":
            raise asyncio.CancelledError
        did.append(name)

    def order(ctx: Context) -> None:
        for name in ("a", "b", "c"):
            ctx.compensate(name, undo, name)
        raise Failed("no")

    async def order_async(ctx: AsyncContext) -> None:
        for name in ("a", "b", "c"):
            ctx.compensate(name, undo, name)
        raise Failed("no")

    task = queue.task(attempts=1)
    job = (task(order_async) if is_async else task(order)).add()
    run_all(queue)

    assert did == ["c", "a"]
    assert job.get().reason == "no; not undone: b (CancelledError: )"
