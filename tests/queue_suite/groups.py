"""Groups: jobs to wait for together, and a job that runs when all of them have ended."""

from typing import Any

import pytest

from holdfast.core.bounds import BATCH_JOBS
from holdfast.core.errors import BadInput, JobFailed, NotFound, Timeout
from holdfast.core.job import State
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.answers import Failed
from holdfast.queue.context import Context
from holdfast.queue.group import GroupProgress, JobGroup
from holdfast.queue.queue import Queue

from .aio import Tell, taken, tell  # noqa: F401
from .tools import complaints, nothing, state_of, take, take_all, upkeep


def test_a_group_has_the_results_of_its_jobs_in_order(queue: Queue) -> None:
    """When all have ended; before that it says how many have."""

    @queue.task
    def double(n: int) -> int:
        return 2 * n

    group = queue.gather([double.call(1), ("double", {"n": 2}), double.call(3)], priority=7)
    assert [handle.get().priority for handle in group] == [7, 7, 7]
    take(queue, "double").run()
    with pytest.raises(Timeout, match=r"1 of 3 jobs of the group have ended; job \d+ has not ended"):
        group.results()
    assert group.progress() == GroupProgress(3, 2, 0, 1, 0, 0, 0)
    with pytest.raises(BadInput, match="failures is 'ignore', and must be raise or return"):
        group.results(failures="ignore")  # type: ignore[call-overload]

    for _ in range(2):
        take(queue, "double").run()

    assert (group.results(wait="1s"), len(group)) == ([2, 4, 6], 3)
    with pytest.raises(AttributeError, match="the group has no follower: it was added without when_done"):
        _ = group.follower
    assert queue.gather([]).results() == []


def test_a_job_without_a_result_is_raised_or_returned(queue: Queue) -> None:
    """The first of them; and what was deleted has no result either."""

    @queue.task
    def check(n: int) -> int:
        if n == 2:
            raise Failed("no")
        return n

    group = queue.gather([check.call(n) for n in (1, 2, 3)])
    for _ in range(3):
        take(queue, "check").run()
    with pytest.raises(JobFailed, match="no"):
        group.results()
    one, failed, three = group.results(failures="return")
    assert (one, str(failed).endswith("no"), three) == (1, True, 3)
    assert group.progress() == GroupProgress(3, 0, 0, 2, 1, 0, 0)

    queue.delete(group.handles[1])
    assert group.progress() == GroupProgress(3, 0, 0, 2, 0, 0, 1)
    with pytest.raises(NotFound):
        group.results()


def test_the_follower_runs_when_all_jobs_of_a_group_have_ended(queue: Queue) -> None:
    """Also those that failed; it sees them in order. They run at once, and it does not before."""
    seen = []

    @queue.task
    def part(n: int) -> int:
        if n == 2:
            raise Failed("no")
        return n * n

    @queue.task
    def total(ctx: Context, title: str) -> int:
        seen.append([str(child.state) for child in ctx.children()])
        return sum(queue.result(child) for child in ctx.children() if child.state == State.FINISHED)

    group = queue.gather([part.call(n) for n in (1, 2, 3)], when_done=total.call("squares"))
    assert (state_of(queue, group.follower), group.progress().waiting) == ("PAUSED", 3)
    assert nothing(queue, "total")
    for _ in range(3):
        assert nothing(queue, "total")
        take(queue, "part").run()
    take(queue, "total").run()

    assert seen == [["FINISHED", "FAILED", "FINISHED"]]
    assert (group.follower.result(), group.results(failures="return")[::2]) == (10, [1, 9])
    upkeep(queue)
    assert complaints(queue) == []


def test_a_group_that_is_cancelled_runs_its_follower(queue: Queue) -> None:
    """What has ended stays as it is; what runs is asked to stop, and may still finish."""
    group = queue.gather([("part", n) for n in range(3)], when_done=("total", {"title": "x"}))
    take(queue, "part").fail("no")
    running = take(queue, "part")

    group.cancel()

    assert group.progress() == GroupProgress(3, 0, 1, 0, 1, 1, 0)
    assert nothing(queue, "total")
    running.done()
    job = take(queue, "total")
    assert [str(child.state) for child in job.children()] == ["FAILED", "FINISHED", "CANCELLED"]
    job.done()
    assert complaints(queue) == []


@pytest.mark.parametrize("options", [{}, {"domain": "d"}, {"delay": "0s", "unique": "same"}])
def test_jobs_of_a_group_may_have_options(queue: Queue, options: dict[str, Any]) -> None:
    """A key belongs to the group: two of its jobs may share one, and another group's job is another."""
    groups = [
        queue.gather([("part", n) for n in range(2)], when_done=queue.call("total", domain="d"), **options)
        for _ in range(2)
    ]
    for job in take_all(queue):
        assert job.task == "part"
        job.done()

    assert [job.task for job in take_all(queue)] == ["total", "total"]
    assert len({handle.id for group in groups for handle in group}) == (2 if "unique" in options else 4)


def test_a_follower_without_jobs_runs_at_once(queue: Queue) -> None:
    """All of them have ended."""
    group: JobGroup[Any] = queue.gather([], when_done="total")

    assert take(queue, "total").id == group.follower.id


def test_groups_that_cannot_be_added_are_refused(queue: Queue) -> None:
    """Before anything is written."""

    @queue.task
    def total(title: str) -> None: ...

    calls = [("part", 1)]
    for follower, named in (
        (queue.call("other", unique="key"), "unique of when_done"),
        (queue.call("other", parent=12345), "parent of when_done"),
        ("total", "title"),
        (("total", {"name": 1}), "name"),
        (7, "task"),
    ):
        with pytest.raises(BadInput, match=named):
            queue.gather(calls, when_done=follower)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="calls is '10,000', and must be at most 9,999"):
        queue.gather(calls * BATCH_JOBS, when_done="other")
    assert queue.jobs() == []


def test_a_group_in_asyncio(tell: Tell) -> None:  # noqa: F811
    """The same, awaited."""

    async def story(queue: AsyncQueue) -> None:
        @queue.task
        async def double(n: int) -> int:
            if n == 3:
                raise Failed("no")
            return 2 * n

        group = await queue.gather([double.call(n) for n in (1, 2, 3)], when_done="total")
        await (await taken(queue, "double")).run()
        with pytest.raises(Timeout, match="1 of 3"):
            await group.results()
        for _ in range(2):
            await (await taken(queue, "double")).run()
        assert (await group.results(wait="1s", failures="return"))[:2] == [2, 4]
        assert (await group.progress()).failed == 1
        assert (await taken(queue, "total")).id == group.follower.id
        other = await queue.gather([double.call(4)])
        await other.cancel()
        assert (await other.progress()).cancelled == 1

    tell(story)
