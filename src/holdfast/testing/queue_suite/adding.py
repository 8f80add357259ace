"""Many jobs at once, alike or not: each is what it would be had it been added alone."""

import pytest

from ...core import bounds
from ...core import commands as c
from ...core.errors import TooLarge
from ...queue.queue import Queue
from .tools import ask, hold_of, take, unchanged


def test_jobs_of_several_tasks_keep_their_order_and_their_data(queue: Queue) -> None:
    """Also where runs of the same task end and begin again."""
    wanted = [("a", 1), ("a", 2), ("b", 3), ("b", None), ("a", [5]), ("a", b"\0six"), ("c", "seven")]

    added = queue.add_many(wanted)

    got = [(job.task, job.data) for job in queue.claim(limit=10, renew=False)]
    assert got == [(task, {} if data is None else data) for task, data in wanted]
    assert [queue.get(job).task for job in added] == [task for task, _ in wanted]


def test_options_given_with_many_are_those_of_each(queue: Queue) -> None:
    """Of the first as of the last."""
    added = queue.add_many([("work", n) for n in range(5)], priority=7, domain="d", attempts=2)

    jobs = [queue.get(job) for job in added]
    assert {(job.priority, job.domain, job.max_attempts) for job in jobs} == {(7, b"d", 2)}
    assert len({job.id for job in jobs}) == 5


def test_options_that_follow_from_the_arguments_are_those_of_each(queue: Queue) -> None:
    """A domain that is a function of the arguments."""

    @queue.task(domain=lambda host: host)
    def fetch(host: str) -> None: ...

    by_name = queue.add_many([("fetch", {"host": host}) for host in ("a", "b", "b")])
    by_task = fetch.add_many([("a",), ("b",), ("b",)])

    assert [queue.get(job).domain for job in by_name] == [b"a", b"b", b"b"]
    assert [queue.get(job).domain for job in by_task] == [b"a", b"b", b"b"]


def test_of_many_with_one_key_there_is_one_job(queue: Queue) -> None:
    """Which is what each of them is told."""
    added = queue.add_many([("work", n) for n in range(4)], unique="k", on_conflict="replace")

    assert len({job.id for job in added}) == 1
    assert [job.data for job in queue.claim(limit=9, renew=False)] == [3]


def test_one_that_is_too_large_and_none_is_added(queue: Queue) -> None:
    """However many stand before it, and are like it."""
    large = "é" * (bounds.DATA_BYTES // 2)

    with unchanged(queue), pytest.raises(TooLarge, match="data"):
        queue.add_many([("work", 1), ("work", 2), ("work", large), ("work", 4)])


def test_children_that_are_alike_are_all_their_parents(queue: Queue) -> None:
    """Those that come as data only, too."""
    queue.add("parent")
    parent = take(queue, "parent")
    command = c.Add(
        jobs=(c.NewJob(task="child", parent_id=parent.id),), more=("1", "2"), hold=hold_of(parent)
    )

    ids = ask(queue, command)

    assert [queue.get(id).parent_id for id in ids] == [parent.id] * 3
    assert queue.get(parent.id).children.pending == 3
