"""`crash_points`: a handler that is right survives all of them, and one that is wrong is found out."""

import asyncio
from pathlib import Path

import pytest

import holdfast
from holdfast import BadInput, ClaimedJob, Job, Queue, testing


def _application() -> Queue:
    """A parent of two, and a job besides, all under unique keys: whatever it adds twice is added once."""
    queue = holdfast.connect("memory://")

    @queue.task()
    def album(job: Job) -> int:
        assert isinstance(job, ClaimedJob)
        job.progress(0.5)
        for n in (1, 2):
            job.add("photo", {"n": n}, unique=f"photo {n}", unique_for="1h")
        queue.add("mail", unique="mail", unique_for="1h")
        return len(job.children())

    @queue.task()
    def photo(n: int) -> int:
        return n

    @queue.task()
    def mail() -> None: ...

    return queue


@pytest.mark.parametrize("kill", [False, True], ids=["exception", "SIGKILL"])
def test_only_the_jobs_that_a_scenario_returns_must_be_finished(kill):
    """Others may wait for longer than a history takes, in either kind of crash."""
    queue = holdfast.connect("memory://")

    @queue.task()
    def order() -> None:
        queue.add("remind", delay="3d", unique="remind")

    assert len(testing.crash_points(lambda: queue, lambda _: order.add(), kill=kill)) == 4
    with pytest.raises(AssertionError, match="of remind is QUEUED, and must be FINISHED"):
        testing.crash_points(lambda: queue, lambda _: str(order.add()), kill=kill)


@pytest.mark.parametrize("kill", [False, True], ids=["exception", "SIGKILL"])
def test_a_handler_that_is_right_survives_every_point(kill):
    """Before and after each of its commands, and those of the jobs that it makes."""
    seen: list[tuple[int, int]] = []

    def look(queue: Queue) -> None:
        seen.append((len(testing.added(queue, "photo")), len(testing.added(queue, "mail"))))

    points = testing.crash_points(_application, lambda queue: queue.add("album"), look, kill=kill)

    said = [point.what for point in points if point.when == "before"]
    assert said[:5] == ["report", "add photo", "add photo", "add mail", "answer ok"]
    assert said.count("answer ok") == 5
    assert len(points) == 2 * len(said)
    assert set(seen) == {(2, 1)}


def test_a_handler_that_does_things_twice_is_found_out(tmp_path):
    """It writes before it answers, and does not look whether it had: the error names the point."""
    sent = tmp_path / "sent"
    queue = holdfast.connect("memory://")

    @queue.task()
    def pay() -> None:
        with sent.open("a") as file:
            file.write("paid\n")

    def scenario(queue: Queue) -> None:
        sent.unlink(missing_ok=True)
        queue.add("pay")

    def paid_once(_queue: Queue) -> None:
        assert Path(sent).read_text() == "paid\n"

    with pytest.raises(AssertionError) as wrong:
        testing.crash_points(lambda: queue, scenario, paid_once)

    assert wrong.value.__notes__ == ["the handler had been killed before command 1, answer ok"]


def test_a_parent_that_takes_half_its_children_for_all_is_found_out():
    """It looks whether it has made any; killed between the two, it never makes the second."""
    queue = holdfast.connect("memory://")

    @queue.task()
    def album(job: Job) -> None:
        assert isinstance(job, ClaimedJob)
        if not job.children():
            job.add("photo", {"n": 1})
            job.add("photo", {"n": 2})

    @queue.task()
    def photo(n: int) -> int:
        return n

    with pytest.raises(AssertionError) as wrong:
        testing.crash_points(
            lambda: queue,
            lambda queue: queue.add("album"),
            lambda queue: testing.assert_added(queue, "photo", n=2),
        )

    assert wrong.value.__notes__ == ["the handler had been killed after command 1, add photo"]


def test_a_job_that_does_not_survive_is_found_out():
    """One that allows for no loss is set aside after the first."""
    queue = holdfast.connect("memory://")

    @queue.task(losses=1)
    def fragile() -> None: ...

    with pytest.raises(AssertionError, match="is FAILED, and must be FINISHED: quarantined"):
        testing.crash_points(lambda: queue, lambda queue: queue.add("fragile"))


def test_nothing_is_said_after_the_crash():
    """As if the process were gone: neither `finally` nor `except` reaches the queue."""
    queue = holdfast.connect("memory://")

    @queue.task()
    def tidy() -> None:
        try:
            queue.add("note")
        finally:
            queue.add("tidied", unique="tidied", unique_for="1h")

    @queue.task()
    def note() -> None: ...

    @queue.task()
    def tidied() -> None: ...

    testing.crash_points(
        lambda: queue, lambda queue: queue.add("tidy"), lambda queue: testing.assert_added(queue, "note")
    )


def test_the_commands_of_a_coroutine_are_points_too():
    """They are awaited, and sent in another way."""
    queue = holdfast.connect("memory://")
    done: list[int] = []

    @queue.task()
    async def steps(ctx: holdfast.AsyncContext) -> None:
        await ctx.progress(0.5)
        await ctx.step("one", lambda: done.append(1))

    points = testing.crash_points(lambda: queue, lambda queue: steps.add())

    said = [point.what for point in points if point.when == "before"]
    assert (said[0], said[-1], len(said)) == ("report", "answer ok", 3)
    # Once in each history, with a crash or without, and twice in that where its step was not kept.
    assert len(done) == len(points) + 2


@pytest.mark.parametrize("kill", [False, True], ids=["exception", "SIGKILL"])
def test_a_queue_for_asyncio_is_crashed_at_every_point(kill):
    """In one loop, so that what a hook has opened there lasts; the scenario and the check are awaited."""
    queue = holdfast.connect_async("memory://")
    added: list[int] = []

    @queue.task
    async def order(ctx: holdfast.AsyncContext) -> None:
        await ctx.step("one", asyncio.sleep, 0)
        await ctx.sleep("1h")
        await queue.add("mail", unique="mail", unique_for="1d")

    @queue.task(every="5s")
    async def mail() -> None: ...

    async def scenario(queue: holdfast.AsyncQueue) -> holdfast.AsyncHandle[None]:
        return await order.add()

    async def check(queue: holdfast.AsyncQueue) -> None:
        added.append(len(await queue.jobs(task="mail", state="FINISHED")))

    points = testing.crash_points(lambda: queue, scenario, check, kill=kill)

    assert [point.what for point in points[::2]] == ["step", "answer suspend", "add mail", *["answer ok"] * 2]
    assert added == [1] * (len(points) + 1)


def test_schedules_do_not_fire_in_a_history():
    """They would go on for ever, and have nothing to do with the scenario."""
    queue = holdfast.connect("memory://")

    @queue.task(every="5s")
    def tick() -> None: ...

    @queue.task
    def order() -> None: ...

    assert len(testing.crash_points(lambda: queue, lambda _: order.add())) == 2


def test_a_scenario_that_runs_nothing_is_refused():
    queue = holdfast.connect("memory://")
    with pytest.raises(BadInput, match="scenario"):
        testing.crash_points(lambda: queue, lambda queue: None)
    with pytest.raises(BadInput, match="make"):
        testing.crash_points(lambda: None, lambda queue: None)  # type: ignore[type-var]
