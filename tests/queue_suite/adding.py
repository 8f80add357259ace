"""Many jobs at once, alike or not: each is what it would be had it been added alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.checks import check_command
from holdfast.core.errors import BadInput, TooLarge
from holdfast.core.ids import SLOTS, moved, slot_of
from holdfast.queue.queue import Queue

from .tools import ask, hold_of, take, unchanged


def test_jobs_of_several_tasks_keep_their_order_and_their_data(queue: Queue) -> None:
    """Also where runs of the same task end and begin again."""
    wanted = [("a", 1), ("a", 2), ("b", 3), ("b", None), ("a", [5]), ("a", b"\0six"), ("c", "seven")]

    added = queue.add_many(wanted)

    got = [(job.task, job.data) for job in queue.claim(limit=10, renew=False)]
    assert got == [(task, {} if data is None else data) for task, data in wanted]
    assert [queue.get(job).task for job in added] == [task for task, _ in wanted]


def test_many_jobs_name_their_tasks_or_give_them(queue: Queue) -> None:
    """As one job does, and its follow-up."""

    @queue.task(domain=lambda n: f"d{n % 2}")
    def work(n: int) -> None: ...

    @queue.task
    def other(n: int) -> None: ...

    added = queue.add_many([(other, {"n": 1}), (other, {"n": 2}), ("other", {"n": 3}), (work, {"n": 4})])

    jobs = [(job.get().task, queue.data(job), job.get().domain) for job in added]
    assert jobs[:3] == [("other", {"n": n}, None) for n in (1, 2, 3)]
    assert jobs[3] == ("work", {"n": 4}, b"d0")


def test_options_given_with_many_are_those_of_each(queue: Queue) -> None:
    """Of the first as of the last."""
    added = queue.add_many([("work", n) for n in range(5)], priority=7, domain="d", attempts=2)

    jobs = [queue.get(job) for job in added]
    assert {(job.priority, job.domain, job.max_attempts) for job in jobs} == {(7, b"d", 2)}
    assert len({job.id for job in jobs}) == 5


def test_options_given_with_prepared_calls_are_those_of_each(queue: Queue) -> None:
    """Unless a call has named its own; what its task's decorator says gives way."""

    @queue.task(priority=1, attempts=2)
    def work(n: int) -> None: ...

    calls = [
        queue.call("other", {"n": 1}),
        work.call(2),
        work.using(domain="own", expires="1h").call(3),
        work.using(at_most_once=True).call(4),
        ("work", {"n": 5}),
    ]
    options: Any = {"domain": "d", "priority": 7, "losses": 4, "expires": "1m"}

    jobs = [queue.get(job) for job in queue.add_many(calls, **options)]

    assert [job.domain for job in jobs] == [b"d", b"d", b"own", b"d", b"d"]
    assert {job.priority for job in jobs} == {7}
    assert [job.max_attempts for job in jobs] == [10, 2, 2, 1, 2]
    assert [job.max_losses for job in jobs] == [4, 4, 4, 1, 4]
    assert [job.expires_at - job.created_at for job in jobs] == [60_000, 60_000, 3_600_000, 60_000, 60_000]


def test_a_limit_holds_for_prepared_calls_whose_domain_is_given_with_them(queue: Queue) -> None:
    """It was silently off."""
    queue.limit("api", concurrency=1)

    queue.add_many([queue.call("fetch", {"n": n}) for n in range(3)], domain="api")

    assert len(queue.claim(limit=10, renew=False)) == 1


def test_an_unknown_option_given_with_prepared_calls_is_refused(queue: Queue) -> None:
    """And so is a domain that is a function: a prepared call has no arguments any more."""
    call = queue.call("work")
    bad: list[Any] = [{"prio": 7}, {"domain": str}, {"at_most_once": True, "attempts": 2}]
    for options in bad:
        with unchanged(queue), pytest.raises(BadInput, match=next(reversed(options))):
            queue.add_many([call], **options)


def test_a_task_takes_options_for_many_calls(queue: Queue) -> None:
    """On top of its own; a domain may be a function of the arguments."""

    @queue.task(attempts=2)
    def fetch(host: str) -> None: ...

    added = fetch.add_many([("a",), {"host": "b"}], priority=7, domain=lambda host: host)

    jobs = [queue.get(job) for job in added]
    assert [(job.domain, job.priority, job.max_attempts) for job in jobs] == [(b"a", 7, 2), (b"b", 7, 2)]


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


def _reserved(queue: Queue, count: int, slot: int = 5) -> tuple[int, ...]:
    """Ids as a client uses them that knows them beforehand."""
    ranges = ask(queue, c.ReserveIds(count=count))
    return tuple(one.first + at * SLOTS + slot for one in ranges for at in range(one.count))


def test_jobs_that_are_asked_for_again_with_the_same_ids_are_added_once(queue: Queue) -> None:
    """Live, running or archived: the reply is that of the first time."""
    ids = _reserved(queue, 3)
    command = c.Add(jobs=(c.NewJob(task="work", data="1"),), more=("2", "3"), ids=ids)
    assert ask(queue, command) == list(ids)
    with unchanged(queue):
        assert ask(queue, command) == list(ids)
    take(queue).done()
    running = take(queue)

    with unchanged(queue):
        assert ask(queue, command) == list(ids)

    assert [running.data, take(queue).data] == [2, 3]


def test_what_is_left_of_a_batch_is_added_with_its_ids(queue: Queue) -> None:
    """Of jobs that are there and jobs that are not, only the latter."""
    ids = _reserved(queue, 3)
    first = c.Add(jobs=(c.NewJob(task="work", data="1"),), ids=ids[:1])
    both = c.Add(
        jobs=(c.NewJob(task="work", data="1"), c.NewJob(task="other", data="2", domain=b"d")), ids=()
    )
    ask(queue, first)
    slot = slot_of("", b"d")
    wanted = (ids[0], moved(ids[1], slot))

    assert ask(queue, replace(both, ids=wanted)) == list(wanted)
    assert ask(queue, replace(both, ids=wanted)) == list(wanted)

    assert sorted(job.data for job in queue.claim(limit=5, renew=False)) == [1, 2]


def test_reserved_ids_are_never_made_again(queue: Queue) -> None:
    """Neither by the next reservation nor by an add."""
    first, second = _reserved(queue, 100), _reserved(queue, 100)
    added = [job.id for job in queue.add_many([("work", n) for n in range(100)])]

    parts = {job_id // SLOTS for job_id in (*first, *second, *added)}

    assert len(parts) == 300


@pytest.mark.parametrize("ids", [(1,), (1, 1), (0, 1), (1, 1 << 63)])
def test_ids_that_do_not_fit_are_refused(queue: Queue, ids: tuple[int, ...]) -> None:
    """One for each job, none twice, all of them ids."""
    with pytest.raises(BadInput, match="ids"):
        check_command(c.Add(jobs=(c.NewJob(task="work"),), more=("{}",), ids=ids))
