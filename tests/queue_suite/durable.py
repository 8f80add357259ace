"""Functions that sleep, wait and call: each goes on where it was, whatever happens between its runs."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.bounds import WAKE_EARLY_MS
from holdfast.core.checks import check_command
from holdfast.core.errors import BadInput, NotFound, Refused, Timeout, TooLarge
from holdfast.core.job import Code, State
from holdfast.queue.answers import Failed, Suspended
from holdfast.queue.context import AsyncContext, Context
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.queue.replay import StepFailed
from holdfast.store.common.clock import monotonic_s
from holdfast.testing.clock import MovedClock

from .functions import Approval, kinds, run_all
from .tools import HOUR_MS, MINUTE_MS, SECOND_MS, ask, complaints, hold_of, nothing, see, take, upkeep


class Declined(Exception):
    """An error whose class wants more arguments than it passes on."""

    def __init__(self, card: str, *, code: int) -> None:
        super().__init__(f"{card} was declined")
        self.card, self.code = card, code


def test_a_sleep_needs_neither_a_worker_nor_an_attempt(queue: Queue, clock: MovedClock) -> None:
    """Nor does it end later because a run was lost."""
    woken: list[int] = []

    @queue.task(attempts=1, losses=2)
    def nap(ctx: Context) -> None:
        ctx.sleep(timedelta(hours=1))
        woken.append(clock())
        if len(woken) == 1:
            ctx.sleep("1 minute")

    job, began = nap.add(), clock()
    take(queue).run()
    assert nothing(queue)
    assert (queue.get(job).run_at, queue.get(job).attempts) == (began + HOUR_MS, 0)
    clock.advance(HOUR_MS)
    lost = take(queue, lease="10s")
    clock.advance(11 * SECOND_MS)
    run_all(queue)

    assert lost.answered is False
    assert woken == [began + HOUR_MS + 11 * SECOND_MS]
    assert nothing(queue)
    clock.advance(MINUTE_MS)
    run_all(queue)
    assert (job.get().state, len(woken)) == (State.FINISHED, 2)


def test_a_sleeping_job_is_claimed_a_little_early_and_waits_for_the_rest(
    queue: Queue, clock: MovedClock
) -> None:
    """So that it goes on at its time, and not when a claim has been made."""

    @queue.task
    def nap(ctx: Context) -> str:
        ctx.sleep("1h")
        return "slept"

    job = nap.add()
    take(queue).run()
    clock.advance(HOUR_MS - WAKE_EARLY_MS - 1)
    assert nothing(queue)
    clock.advance(1)
    early, began_s = take(queue), monotonic_s()
    early.run()

    assert monotonic_s() - began_s >= WAKE_EARLY_MS / 1000
    assert job.result() == "slept"


def test_a_signal_that_does_not_come(queue: Queue, clock: MovedClock) -> None:
    """After the timeout the function goes on with a default, or an error; what comes later is not lost."""

    @queue.task
    def wait(ctx: Context) -> list[Any]:
        found = [ctx.wait_for("go", timeout="1h", default=None), ctx.wait_for("go")]
        try:
            ctx.wait_for("go", timeout="1h")
        except Timeout as error:
            found.append(str(error))
        return found

    job = wait.add()
    run_all(queue)
    assert "until" in job.why()
    clock.advance(HOUR_MS)
    # It is due, but no run has seen that yet, and then one was lost that has.
    take(queue, lease="1s")
    clock.advance(2 * SECOND_MS)
    upkeep(queue)
    queue.signal(job, "go", "late")
    run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert job.result() == [None, "late", "signal 'go' did not come within 1h"]


def test_a_signal_of_another_type_is_told(queue: Queue) -> None:
    """In the handler, which may wait for the next one."""

    @queue.task
    def wait(ctx: Context) -> Approval:
        while True:
            try:
                return ctx.wait_for("approval", type=Approval)
            except BadInput as error:
                assert "signal approval" in str(error)  # noqa: PT017
                assert "bob" not in str(error)  # noqa: PT017

    job = wait.add()
    queue.signal(job, "approval", {"by": "bob"})
    queue.signal(job, "approval", {"by": "ann", "amount": 1})
    run_all(queue)

    assert job.result() == Approval("ann", 1)


def test_a_signal_is_refused_for_good_reasons(queue: Queue) -> None:
    """Unknown jobs, ended ones, names and data that cannot be, and more than a job keeps."""

    @queue.task(attempts=1)
    def wait(ctx: Context) -> None:
        raise Failed(ctx.wait_for("end"))

    job = wait.add()
    for name, data, error in (
        ("", None, BadInput),
        ("x" * 256, None, BadInput),
        ("go", b"bytes", BadInput),
        ("go", object(), BadInput),
        ("go", "x" * bounds.SIGNAL_BYTES, TooLarge),
    ):
        with pytest.raises(error):
            queue.signal(job, name, data)
    for number in range(bounds.SIGNAL_NAMES):
        queue.signal(job, f"n{number}")
    with pytest.raises(TooLarge, match="names of signals"):
        queue.signal(job, "end", "enough")
    take(queue).run()
    queue.signal(job, "end", "enough")
    run_all(queue)

    assert job.get().reason == "enough"
    with pytest.raises(Refused, match="FAILED"):
        queue.signal(job, "end")
    queue.cancel(job)
    with pytest.raises(Refused, match=r"cannot signal .* CANCELLED and archived, .* that has not ended"):
        queue.signal(job, "end")
    with pytest.raises(NotFound):
        queue.signal(1 << 40, "end")
    assert [name for name in see(queue).records if name[0] == "signals"] == []


def test_a_called_job_that_cannot_be_fails_its_caller(queue: Queue) -> None:
    """Nothing of the call is left, and the job says why."""

    @queue.task
    def other(text: str) -> str:
        return text

    @queue.task
    def caller(ctx: Context, way: str) -> Any:
        if way == "repeat":
            return ctx.call(other.using(repeat="HOURLY").call("x"))
        if way == "step":
            return ctx.step("inside", lambda: ctx.sleep(1))
        return ctx.call(other, 5)  # type: ignore[call-overload]

    for way, text in (
        ("repeat", "absent in a job that is called"),
        ("step", "outside of steps"),
        ("", "text"),
    ):
        job = caller.using(attempts=1).add(way)
        take(queue).run()
        assert text in job.get().reason
    assert "other" not in queue.counts()
    assert complaints(queue) == []


def test_a_child_that_is_deleted_or_requeued_meanwhile(queue: Queue) -> None:
    """The caller goes on with what there is when it runs, and waits for what runs again."""

    @queue.task(attempts=1)
    def flaky(number: int) -> int:
        runs[number] += 1
        if runs[number] == 1:
            raise ValueError
        return number

    runs: Counter[int] = Counter()

    @queue.task
    def caller(ctx: Context) -> list[Any]:
        found = ctx.gather(flaky.call(1), flaky.call(2), return_exceptions=True)
        return [getattr(one, "reason", one) for one in found]

    job = caller.add()
    take(queue).run()
    for _ in range(2):
        take(queue, "flaky").run()
    first, second = queue.jobs(task="flaky")
    queue.delete(first)
    queue.requeue(second)
    run_all(queue)

    assert job.result() == ["it was deleted", 2]


def test_errors_of_steps_that_were_caught_come_again(queue: Queue, clock: MovedClock) -> None:
    """Of their class, with their attributes, in their order, and only if the function went on after them."""
    calls: Counter[str] = Counter()

    def charge(card: str) -> str:
        calls[card] += 1
        if calls[card] < 3:
            raise Declined(card, code=calls[card])
        return f"charged {card}"

    @queue.task(backoff="1s")
    def pay(ctx: Context) -> Any:
        seen: list[Any] = []
        for again in range(3):
            try:
                seen.append(ctx.step("charge", charge, "visa"))
            except Declined as error:
                seen.append([error.card, error.code, str(error)])
                if again:
                    ctx.sleep("1 minute")
        if ctx.attempt == 1:
            raise ValueError
        return [seen, ctx.step("charge", charge, "visa")]

    job = pay.add()
    run_all(queue)
    assert kinds(queue, job) == ["error charge", "error charge", "sleep"]
    clock.advance(MINUTE_MS)
    run_all(queue)
    assert kinds(queue, job)[3:] == ["step charge"]
    clock.advance(MINUTE_MS)
    run_all(queue)

    said = "visa was declined"
    assert job.result() == [[["visa", 1, said], ["visa", 2, said], "charged visa"], "charged visa"]
    assert calls == {"visa": 3}


def test_an_error_whose_class_is_gone(queue: Queue, clock: MovedClock) -> None:
    """It is told as a StepFailed; one that no later entry depends on is not kept at all."""

    class Gone(Exception):
        pass

    calls: list[None] = []

    def fail() -> None:
        calls.append(None)
        raise Gone("for good")

    @queue.task(backoff="1s")
    def tried(ctx: Context) -> str:
        try:
            ctx.step("fail", fail)
        except (Gone, StepFailed) as error:
            text = f"{type(error).__name__}: {error}"
        if len(calls) == 1:
            raise ValueError(text)
        ctx.sleep(1)
        return text

    job = tried.add()
    for _ in range(3):
        run_all(queue)
        clock.advance(MINUTE_MS)

    assert len(calls) == 2
    assert job.result().startswith("StepFailed: ")


def test_a_function_that_has_changed_is_told_where(queue: Queue, clock: MovedClock) -> None:
    """It fails, and goes on when it is put back; behind a version both ways are known."""
    way = ["sleep"]

    @queue.task
    def changed(ctx: Context) -> str:
        ctx.step("begin", lambda: None)
        if way[0] == "sleep":
            ctx.sleep("1h")
        elif way[0] == "signal" or (ctx.version("approved") and ctx.version("approved")):
            ctx.wait_for("approval")
        else:
            ctx.sleep("1h")
        ctx.sleep("1h")
        return way[0]

    job = changed.add()
    run_all(queue)
    way[0] = "signal"
    clock.advance(HOUR_MS)
    run_all(queue)
    assert "step 2 was sleep, is now wait_for approval: the function has changed" in job.get().reason
    # With the line that waits, and none of Holdfast's own.
    assert "replay.py" not in job.get().errors[-1].traceback
    way[0] = "both"
    queue.requeue(job)
    run_all(queue)
    fresh = changed.add()
    run_all(queue)
    assert fresh.get().state == State.PAUSED
    queue.signal(fresh, "approval")
    run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert [job.result(), fresh.result()] == ["both", "both"]


def test_a_wait_that_is_caught_ends_the_run_all_the_same(queue: Queue, clock: MovedClock) -> None:
    """In a `finally`, an `except BaseException`, a task group, and in a group with a step beside it."""
    cleaned: list[str] = []
    steps: list[None] = []

    @queue.task
    def catches(ctx: Context) -> str:
        try:
            ctx.sleep("1h")
        except BaseException as error:
            cleaned.append(type(error).__name__)
        try:
            ctx.step("never before it is over", steps.append, None)
        except Suspended:
            raise ValueError("it was cleaned up") from None
        return "over"

    @queue.task
    async def grouped(ctx: AsyncContext) -> str:
        async def slow() -> None:
            await asyncio.sleep(0.01)
            steps.append(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("slow", slow))
            group.create_task(ctx.sleep("1h"))
        await asyncio.gather(ctx.step("slow", slow), ctx.sleep("1h"))
        return "over"

    jobs = [catches.add(), grouped.add()]
    assert run_all(queue) == 2
    assert [queue.get(job).state for job in jobs] == [State.QUEUED] * 2
    assert kinds(queue, jobs[1]) in (["step slow", "sleep"], ["sleep"])
    for _ in range(2):
        clock.advance(HOUR_MS)
        run_all(queue)

    assert [job.result() for job in jobs] == ["over", "over"]
    assert cleaned == ["Suspended"]


def test_a_hook_is_told_that_a_run_goes_on_later(queue: Queue, clock: MovedClock) -> None:
    """That is no exception: what a hook opened around the run is closed as after any other."""
    seen: list[Any] = []

    @queue.around_run
    def note(job: ClaimedJob) -> Iterator[None]:
        seen.append((yield))

    @queue.task
    async def nap(ctx: AsyncContext) -> str:
        await ctx.sleep("1h")
        return "rested"

    job = nap.add()
    run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert [type(seen[0]), seen[1], job.result()] == [c.Suspension, "rested", "rested"]


def test_it_begins_again_under_the_same_id(queue: Queue) -> None:
    """Without what it has done, with new data or the same."""

    @queue.task
    def loop(ctx: Context, page: int = 0) -> int:
        found = ctx.step("page", lambda: page)
        if found < 3:
            ctx.restart({"page": found + 1})
        return found

    job = loop.add()
    assert run_all(queue) == 4
    assert (job.result(), queue.get(job).claim) == (3, 4)


def test_new_data_begins_it_again(queue: Queue, clock: MovedClock) -> None:
    """A replace or merge while it sleeps, waits, or just before it would."""

    @queue.task
    def wait(ctx: Context, text: str) -> str:
        ctx.step("seen", lambda: text)
        if text == "b":
            ctx.wait_for("go")
        else:
            ctx.sleep("1h")
        return ctx.step("seen", lambda: text)

    adding = wait.using(unique="one", on_conflict="replace")
    job = adding.add("a")
    run_all(queue)
    assert adding.add("b") == job
    run_all(queue)
    assert (queue.steps(job), job.get().state) == ({"seen": "b"}, State.PAUSED)
    assert adding.add("c") == job
    running = take(queue)
    assert adding.add("d") == job
    running.run()
    assert queue.steps(job) == {}
    run_all(queue)
    clock.advance(HOUR_MS)
    run_all(queue)

    assert job.result() == "d"


def test_children_of_its_own_run_while_it_sleeps(queue: Queue, clock: MovedClock) -> None:
    """It waits for them at its end, as always; cancelled ones and a cancelled caller too."""

    @queue.task
    def child(ctx: Context, name: str) -> str:
        ctx.sleep("1h")
        return name

    @queue.task
    def parent(ctx: Context) -> list[Any]:
        if not queue.jobs(parent=ctx.job_id):
            ctx.add(child, {"name": "added"})
        ctx.sleep("1m")
        return [ctx.call(child, "called")]

    job = parent.add()
    run_all(queue)
    assert queue.counts()["child"] == {"QUEUED": 1}
    clock.advance(MINUTE_MS)
    run_all(queue)
    assert "waits for 2 of 2 jobs" in job.why()
    clock.advance(HOUR_MS)
    run_all(queue)
    assert job.result() == ["called"]


def test_a_step_beyond_the_limit_is_not_even_called(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job fails: its next run could not record it either."""
    monkeypatch.setattr("holdfast.queue.durable.STEPS_KEPT", 5)
    calls: list[int] = []

    @queue.task
    def many(ctx: Context) -> None:
        for number in range(9):
            ctx.step(f"s{number}", calls.append, number)

    job = many.add()
    run_all(queue)

    assert calls == [0, 1, 2, 3, 4]
    assert "the job has 5 steps already; ctx.restart begins without them" in job.get().reason


def test_a_report_under_a_claim_that_is_over_changes_nothing(queue: Queue) -> None:
    """And one that is sent twice counts once; what a suspension may not say is refused."""

    @queue.task
    def wait(ctx: Context) -> None:
        ctx.wait_for("go")

    wait.add()
    job = take(queue)
    hold = hold_of(job)
    error = c.NewStep(kind="error", name="a", result='{"module":"m","name":"n","text":"t"}')
    for _ in range(2):
        ask(queue, c.Step(hold=hold, name="a", result="1", before=(error,)))
    assert kinds(queue, job.id) == ["error a", "step a"]
    for wrong in (
        c.Suspension(kind="sleep"),
        c.Suspension(kind="signal"),
        c.Suspension(kind="call"),
        c.Suspension(kind="sleep", delay_ms=5, jobs=(c.NewJob(task="x"),)),
        c.Suspension(kind="call", jobs=(c.NewJob(task="x", id=77),)),
        c.Suspension(kind="call", jobs=(c.NewJob(task="x", strict=True),)),
    ):
        with pytest.raises(BadInput):
            job._answer(Code.SUSPEND, suspend=wrong)
    with pytest.raises(BadInput, match="suspend"):
        check_command(c.Answer(hold=hold, code=Code.SUSPEND))
    ask(queue, c.Answer(hold=hold, code=Code.SUSPEND, suspend=c.Suspension(kind="signal", name="go")))
    with pytest.raises(Refused):
        ask(queue, c.Answer(hold=hold, code=Code.SUSPEND, suspend=c.Suspension(kind="signal", name="go")))
    assert queue.get(job).state == State.PAUSED


def test_a_signal_that_came_while_the_job_was_requeued_is_not_missed(queue: Queue) -> None:
    """And none overtakes it."""

    @queue.task
    def wait(ctx: Context) -> list[Any]:
        return [ctx.wait_for("go"), ctx.wait_for("go")]

    job = wait.add()
    run_all(queue)
    queue.requeue(job)
    queue.signal(job, "go", 1)
    queue.signal(job, "go", 2)
    run_all(queue)

    assert job.result() == [1, 2]


def test_new_data_is_not_overwritten_by_a_restart(queue: Queue) -> None:
    """They came while it ran; and children that have ended are archived by then."""
    seen: list[int] = []

    @queue.task
    def child(ctx: Context) -> None:
        """Do nothing."""

    @queue.task(unique_for="0s")
    def loop(ctx: Context, number: int) -> None:
        seen.append(number)
        if number == 1:
            loop.using(unique="k", on_conflict="replace").add(50)
        if len(seen) < 5:
            ctx.add(child)
            ctx.restart({"number": number + 1})

    job = loop.using(unique="k").add(1)
    run_all(queue)

    assert seen[:5] == [1, 50, 51, 52, 53]
    assert sum(child.state == State.FINISHED for child in queue.jobs(parent=job)) <= 1


def test_a_step_within_a_step_beside_a_wait_does_not_hang(queue: Queue, clock: MovedClock) -> None:
    """The run ends; the step is done again."""

    @queue.task
    async def grouped(ctx: AsyncContext) -> list[Any]:
        async def inner() -> int:
            await asyncio.sleep(0.01)
            return await ctx.step("inner", abs, -1)

        return [*await asyncio.gather(ctx.step("outer", inner), ctx.sleep("1m"))]

    job = grouped.add()
    run_all(queue)
    clock.advance(MINUTE_MS)
    run_all(queue)

    assert job.result() == [1, None]


def test_a_version_does_not_depend_on_steps_that_are_gone(queue: Queue, clock: MovedClock) -> None:
    """Only on what comes after the place that the run has come to."""
    is_new = [False]

    @queue.task
    def changed(ctx: Context) -> list[bool]:
        if not is_new[0]:
            ctx.step("old name", abs, 1)
        ctx.step("kept", abs, 1)
        found = [ctx.version("early")] if is_new[0] else []
        ctx.sleep("1m")
        return [*found, ctx.version("late")]

    job = changed.add()
    run_all(queue)
    is_new[0] = True
    clock.advance(MINUTE_MS)
    run_all(queue)

    assert job.result() == [False, True]
