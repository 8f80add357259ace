"""History in buckets, searches from the newest on, and tasks with their first waiting job."""

from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.bounds import DAY_MS, HOUR_MS
from holdfast.core.history import (
    EVER_MS,
    NAMED_TASKS,
    TIERS,
    Bucket,
    GetHistory,
    Slots,
    TaskEnds,
    added_slots,
    percentile_ms,
    summed,
)
from holdfast.core.job import Place, State
from holdfast.core.queries import DataMatch, ListTasks, SearchJobs
from holdfast.engine import search
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import MINUTE_MS


def ends(found: list[Bucket]) -> list[tuple[int, tuple[TaskEnds, ...]]]:
    """The buckets in which something ended."""
    return [(one.start_ms, one.tasks) for one in found if one.tasks]


def test_what_ended_is_in_the_bucket_of_its_time_once(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Before upkeep has moved it, after, and after two processes did at once; retries and failures apart."""
    queue, other = make_queue(), make_queue()
    queue.add("a", {})
    queue.add("b", {}, attempts=2)
    for task in ("a", "b"):
        job = queue.next([task])
        assert job is not None
        clock.advance(100)
        if task == "a":
            job.done()
        else:
            job.done(error=ValueError("x"))
    start_ms = clock() - clock() % MINUTE_MS
    expected = {
        TaskEnds(task="a", finished=1, run_ms=100),
        TaskEnds(task="b", retried=1, run_ms=100),
    }

    for _ in range(3):
        found: list[Bucket] = queue.connection.ask(GetHistory())

        assert [(at, set(tasks)) for at, tasks in ends(found)] == [(start_ms, expected)]
        assert len(found) == 60
        queue.connection.ask(c.Upkeep())
        other.connection.ask(c.Upkeep())


def test_history_is_kept_in_longer_buckets_for_longer(make_queue: MakeQueue, clock: MovedClock) -> None:
    """After hours the minutes are gone and longer buckets there; after months all is."""
    queue = make_queue()
    queue.add("a", {})
    job = queue.next(["a"])
    assert job is not None
    job.done()
    queue.connection.ask(c.Upkeep())

    for ahead_ms, minutes, longer in ((HOUR_MS * 4, 0, 1), (DAY_MS * 20, 0, 1), (DAY_MS * 60, 0, 0)):
        clock.advance(ahead_ms)
        queue.add("b", {})
        again = queue.next(["b"])
        assert again is not None
        again.done()
        queue.connection.ask(c.Upkeep())
        asked = [GetHistory(task="a", span_ms=span_ms) for span_ms in (HOUR_MS, 60 * DAY_MS)]
        assert [len(ends(queue.connection.ask(one))) for one in asked] == [minutes, longer]


def test_what_ended_since_ever_never_decreases(make_queue: MakeQueue) -> None:
    """However many tasks come, and whichever is the busiest: a task that is listed stays so."""
    queue = make_queue()
    seen: dict[str, int] = {}

    def end(*tasks: str) -> None:
        queue.add_many([(task, {}) for task in tasks])
        for task in tasks:
            job = queue.next([task])
            assert job is not None
            job.done()

    def check() -> None:
        (ever,) = queue.connection.ask(GetHistory(span_ms=EVER_MS))
        sums = {one.task: one.finished for one in ever.tasks}
        assert {task for task in sums if task} >= {task for task in seen if task}
        assert all(sums[task] >= seen[task] for task in seen), (sums, seen)
        seen.update(sums)

    for first in (0, 40, 80, 120):
        end(*(f"t{n}" for n in range(first, first + 40)))
        check()
        queue.connection.ask(c.Upkeep())
        check()
    end(*["t159"] * 5, *["(others)"] * 3)
    check()
    queue.connection.ask(c.Upkeep())
    check()

    assert sum(seen.values()) == 168
    (bucket,) = [one for one in queue.connection.ask(GetHistory(task="t1")) if one.tasks]
    assert bucket.unlisted == 0


def test_tasks_beyond_those_that_a_bucket_lists_are_told_as_unlisted() -> None:
    """Not as zero: a reader can tell that some runs are missing."""
    ends = [TaskEnds(task=f"t{n}", finished=n + 1) for n in range(NAMED_TASKS + 3)]
    listed = TIERS[0].grown((), ends)

    assert len(listed) == NAMED_TASKS + 1
    assert listed[-1] == TaskEnds(finished=1 + 2 + 3)
    assert TIERS[0].grown(listed, [TaskEnds(task="t0", finished=9)])[-1] == TaskEnds(finished=6 + 4)


def test_percentiles_tell_how_long_runs_waited_and_took(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Within a sixth, before and after upkeep has moved them; a task of which nothing ended has none."""
    queue = make_queue()
    for took_ms in (*[100] * 18, 5_000, 60_000):
        queue.add("a", {})
        clock.advance(1_000)
        job = queue.next(["a"])
        assert job is not None
        clock.advance(took_ms)
        job.done()

    for _ in range(2):
        found = queue.connection.ask(GetHistory(task="a", span_ms=3 * HOUR_MS, timings=True))
        waits: Slots = ()
        runs: Slots = ()
        for ends in (ends for bucket in found for ends in bucket.tasks):
            waits, runs = added_slots(waits, ends.waits), added_slots(runs, ends.runs)
        for slots, share, wanted_ms in (
            (waits, 0.5, 1_000),
            (runs, 0.5, 100),
            (runs, 0.95, 5_000),
            (runs, 0.99, 60_000),
        ):
            ms = percentile_ms(slots, share)
            assert ms is not None
            assert wanted_ms * 5 / 6 <= ms <= wanted_ms * 6 / 5, (share, ms)
        queue.connection.ask(c.Upkeep())
    assert percentile_ms((), 0.5) is None


def test_a_parent_counts_once(make_queue: MakeQueue) -> None:
    """When it has ended, not also when it waits for its children."""
    queue = make_queue()
    queue.add("parent", {})
    parent = queue.next(["parent"])
    assert parent is not None
    parent.add("child", {})
    parent.done()
    child = queue.next(["child"])
    assert child is not None
    child.done()
    again = queue.next(["parent"])
    if again is not None:
        again.done()

    (bucket,) = [one for one in queue.connection.ask(GetHistory()) if one.tasks]
    assert {one.task: one.finished + one.retried for one in bucket.tasks} == {"parent": 1, "child": 1}


def test_a_tenant_has_its_own_history(make_queue: MakeQueue) -> None:
    """And a task its own."""
    for tenant in ("x", "y"):
        queue = make_queue(tenant=tenant)
        queue.add("a", {})
        job = queue.next(["a"])
        assert job is not None
        job.done()
    ask = queue.connection.ask

    assert [one.tenant for _, tasks in ends(ask(GetHistory(tenant="x"))) for one in tasks] == ["x"]
    assert ends(ask(GetHistory(task="b"))) == []


def test_a_search_begins_with_the_newest_jobs(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Page by page, whatever time lies between them, of a task, a state or a value in the data."""
    queue = make_queue()
    ids = []
    for n in range(30):
        ids.append(queue.add("ab"[n % 2], {"user": {"id": n % 3}}).id)
        clock.advance(HOUR_MS)

    def pages(limit: int = 7, **asked: Any) -> list[int]:
        found, before = [], 0
        while True:
            page = queue.connection.ask(SearchJobs(limit=limit, before=before, **asked))
            found += [job.id for job in page.jobs]
            before = page.before
            if not before:
                return found

    assert pages() == ids[::-1]
    assert pages(filter=q.JobFilter(task="a")) == ids[::2][::-1]
    waiting = [pages(filter=q.JobFilter(place=place)) for place in (Place.SCHEDULED, Place.READY)]
    assert sorted([*waiting[0], *waiting[1]]) == ids
    assert pages(filter=q.JobFilter(state=State.FAILED)) == []
    assert pages(data=(DataMatch("user.id", "2"),)) == ids[2::3][::-1]
    assert pages(data=(DataMatch("user.name", "2"),)) == []


def test_failed_jobs_are_found_behind_others(
    make_queue: MakeQueue, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if there are too many to read all, and the search has time for one look only."""
    monkeypatch.setattr(search, "FEW", 0)
    monkeypatch.setattr(search, "SEARCH_S", 0.0)
    queue = make_queue()
    failed = queue.add("a", {}, attempts=1)
    job = queue.next(["a"])
    assert job is not None
    job.done(error=ValueError("x"))
    for _ in range(5):
        clock.advance(HOUR_MS)
        queue.add("b", {})

    page = queue.connection.ask(SearchJobs(filter=q.JobFilter(state=State.FAILED)))

    assert [job.id for job in page.jobs] == [failed.id]


def test_tasks_tell_since_when_their_first_job_waits(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Of each tenant's task, by name."""
    queue = make_queue()
    due_ms = clock()
    queue.add("a", {})
    queue.connection.ask(c.Upkeep())
    clock.advance(5_000)
    for _ in range(2):
        queue.add("b", {})
    queue.connection.ask(c.Upkeep())

    found = queue.connection.ask(ListTasks())

    assert [(one.task, one.waiting + one.scheduled) for one in found] == [("a", 1), ("b", 2)]
    assert {one.task: one.first_due_at for one in found} == {"b": due_ms + 5_000, "a": due_ms}
    assert len(queue.connection.ask(ListTasks(limit=1))) == 1


def test_a_bucket_has_the_busiest_tasks_by_name() -> None:
    """The others are one sum."""
    parts = [TaskEnds(task=f"t{n}", finished=n) for n in range(1, 6)]

    assert summed(parts, most=2) == (
        TaskEnds(task="t5", finished=5),
        TaskEnds(task="t4", finished=4),
        TaskEnds(finished=6),
    )
