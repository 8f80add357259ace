"""`holdfast.testing`: a clock that moves, everything due in this thread, what was added."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import holdfast
from holdfast import BadInput, testing
from holdfast.store.common.clock import monotonic_s


@pytest.fixture
def queue():
    """A queue in memory."""
    with testing.queue() as queue:
        yield queue


def test_what_is_due_is_run_in_order_and_what_that_makes_due(queue):
    """By priority, then age; with results, and nothing that is not due."""

    @queue.task()
    def first(n: int) -> int:
        second.add(n + 1)
        return n

    @queue.task()
    def second(n: int) -> int:
        return n * 10

    first.add(1)
    second.using(priority=900).add(7)
    later = second.using(delay="1h").add(8)

    ran = testing.run_due(queue)

    assert [(run.task, run.result, str(run.state)) for run in ran] == [
        ("second", 70, "FINISHED"),
        ("first", 1, "FINISHED"),
        ("second", 20, "FINISHED"),
    ]
    assert later.get().state == "QUEUED"


def test_the_clock_is_moved_from_moment_to_moment_up_to_a_bound(queue):
    """A delay, retries with their backoff, a schedule; it stands at the bound afterwards."""
    moments: list[tuple[str, datetime]] = []

    @queue.task(attempts=3)
    def flaky() -> str:
        moments.append(("flaky", queue.clock.now))
        if len([name for name, _ in moments if name == "flaky"]) < 3:
            raise OSError("not now")
        return "done"

    @queue.task()
    def hourly() -> None:
        moments.append(("hourly", queue.clock.now))

    flaky.using(delay="30m").add()
    queue.schedule("every-hour", hourly, cron="0 * * * *")

    ran = testing.run_due(queue, advance="2h 30m")

    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert moments == [
        ("flaky", at.replace(minute=30)),
        ("flaky", at.replace(minute=30, second=1)),
        ("flaky", at.replace(minute=30, second=3)),
        ("hourly", at.replace(hour=13)),
        ("hourly", at.replace(hour=14)),
    ]
    assert [run.error for run in ran][:3] == ["OSError: not now", "OSError: not now", ""]
    assert queue.clock.now == at.replace(hour=14, minute=30)


def test_a_coroutine_is_run_to_its_end(queue):
    """Also by a queue that is not for asyncio."""

    @queue.task()
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    later.add(1)

    assert [run.result for run in testing.run_due(queue)] == [2]


def test_a_coroutine_is_run_inside_an_async_test(queue):
    """On another loop, because that of the test cannot be run twice."""

    @queue.task(attempts=1)
    async def soon(n: int) -> int:
        await asyncio.sleep(0)
        return n

    async def scenario() -> None:
        job = soon.add(3)
        (ran,) = testing.run_due(queue)
        assert (ran.job.id, ran.result) == (job.id, 3)

    asyncio.run(scenario())


def test_runs_are_told_where_no_ended_job_is_kept():
    """Without their results."""
    with testing.queue(retention=0) as queue:

        @queue.task()
        def five() -> int:
            return 5

        five.add()

        assert [(str(ran.state), ran.result) for ran in testing.run_due(queue)] == [("FINISHED", None)]


def test_a_moment_is_a_bound_too_and_only_one_may_be_given(queue):
    @queue.task()
    def tick() -> None: ...

    tick.using(delay="1d").add()

    assert testing.run_due(queue, until="2026-01-02T11:59") == []
    assert len(testing.run_due(queue, until="2026-01-02T12:00Z")) == 1
    with pytest.raises(BadInput, match="until"):
        testing.run_due(queue, until="2026-01-03", advance="1h")


def test_a_lease_that_nobody_renews_runs_out_by_the_clock(queue):
    """What was claimed and dropped comes back."""

    @queue.task()
    def lost() -> str:
        return "found"

    job = lost.add()
    assert queue.next(renew=False) is not None

    assert testing.run_due(queue) == []
    assert testing.run_due(queue, advance="1h")[-1].result == "found"
    assert job.get().losses == 1


def test_a_chain_without_end_is_told(queue):
    @queue.task()
    def again() -> None:
        again.add()

    again.add()

    with pytest.raises(holdfast.Timeout, match=r"no end to it: 50 runs.*'again'"):
        testing.run_due(queue, most=50)


def test_a_task_that_the_queue_does_not_know_is_left_waiting(queue):
    job = queue.add("elsewhere")

    assert testing.run_due(queue, advance="1d") == []
    assert job.get().claim == 0


def test_a_task_that_is_asked_for_and_not_known_is_refused(queue):
    """A mistyped name would run nothing, and a test that expects nothing would pass."""
    queue.task(name="known")(lambda: None)

    with pytest.raises(BadInput, match="tasks is 'unknwon', and must be some of known"):
        testing.run_due(queue, tasks=["known", "unknwon"])


def test_what_is_no_queue_is_refused():
    with pytest.raises(BadInput, match=r"queue is 'str', and must be one of holdfast\.connect"):
        testing.in_memory("jobs.db").__enter__()  # type: ignore[arg-type]


def test_a_clock_that_does_not_move_is_refused_with_the_way_out():
    with holdfast.connect("memory://") as plain, pytest.raises(BadInput, match=r"testing\.queue\(\)"):
        testing.run_due(plain, advance="1h")


async def run_durable_coroutine(queue: holdfast.AsyncQueue) -> list[testing.Ran]:
    """A function that sleeps, waits and is tried again, with the clock that the test moves."""
    with testing.in_memory(queue) as clock:
        start = clock.now

        @queue.task
        async def order(ctx: holdfast.AsyncContext, number: int) -> str:
            await ctx.sleep("7 days")
            answer = await ctx.wait_for("answer", timeout="1 day", default="none")
            if ctx.attempt == 1:
                raise OSError("not now")
            return f"{number}: {answer}"

        await order.add(7)
        (ran,) = await testing.run_due_async(queue)
        assert ran.job.waits_for is not None
        ran_later = await testing.run_due_async(queue, advance="9 days")
        assert clock.now - start == timedelta(days=9)
        return ran_later


def test_jobs_of_a_queue_for_asyncio_are_run_by_the_clock():
    """As with `run_due`, nothing sleeps."""
    queue = holdfast.connect_async("memory://")
    began_s = monotonic_s()

    ran = asyncio.run(run_durable_coroutine(queue))

    assert [(run.task, run.result, run.error) for run in ran] == [
        ("order", None, ""),
        ("order", None, "OSError: not now"),
        ("order", "7: none", ""),
    ]
    assert monotonic_s() - began_s < 5


def test_a_queue_of_the_other_kind_is_refused(queue):
    with pytest.raises(BadInput, match=r"AsyncQueue.*run_due_async"):
        testing.run_due(holdfast.connect_async("memory://"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="ClockedQueue"):
        asyncio.run(testing.run_due_async(queue))


def test_an_applications_queue_is_put_into_memory_and_back(tmp_path):
    """Its own store is not touched, and as it was afterwards."""
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        double = queue.task(name="double")(lambda n: n * 2)
        before = double.add(n=1)

        with testing.in_memory(queue) as clock:
            double.using(delay="1h").add(n=2)
            assert testing.run_due(queue) == []
            clock.advance("1h")
            assert [run.result for run in testing.run_due(queue)] == [4]

        assert [job.id for job in queue.jobs()] == [before.id]
        assert before.get().state == "QUEUED"


def test_what_was_added_is_told_with_its_options(queue):
    """Ended jobs too, in the order in which they were added."""
    queue.task(name="resize")(lambda path: path)
    queue.add("resize", {"path": "a.png"}, priority=900, delay="30s", domain="cdn", unique="a")
    queue.add("resize", {"path": "b.png"}, attempts=3, timeout="2m")
    queue.add("raw", b"\x00")
    testing.run_due(queue, advance="1m")

    told = [(one.task, one.data, one.options) for one in testing.added(queue)]

    assert told == [
        ("resize", {"path": "a.png"}, {"priority": 900, "delay": 30.0, "domain": "cdn", "unique": "a"}),
        ("resize", {"path": "b.png"}, {"attempts": 3, "timeout": 120.0}),
        ("raw", b"\x00", {}),
    ]
    assert [one.task for one in testing.added(queue, "raw")] == ["raw"]


def test_an_assertion_finds_the_job_or_shows_what_was_there(queue):
    queue.add("resize", {"path": "a.png", "width": 200}, priority=900)
    queue.add("resize", {"path": "b.png", "width": 200})

    assert testing.assert_added(queue, "resize", path="a.png").options == {"priority": 900}
    with pytest.raises(AssertionError) as wrong:
        testing.assert_added(queue, "resize", path="c.png")

    assert "no job was added of resize with {'path': 'c.png'}" in str(wrong.value)
    assert "resize {'path': 'a.png', 'width': 200} {'priority': 900}" in str(wrong.value)
    with pytest.raises(AssertionError, match="there are none"), testing.queue() as empty:
        testing.assert_added(empty, "resize")


def test_a_clock_moves_as_people_say_and_only_forward():
    clock = testing.Clock("2026-11-15T18:00")

    clock.advance("1h 30m")
    clock.advance(30)
    clock.advance_to("2026-11-15T12:00")

    assert clock.now == datetime(2026, 11, 15, 19, 30, 30, tzinfo=UTC)
    with pytest.raises(BadInput, match="by"):
        clock.advance(-1)
