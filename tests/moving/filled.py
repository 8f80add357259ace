"""A store with something of everything in it, and all that can be seen of one."""

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core import commands as c
from holdfast.core.ids import slot_of
from holdfast.core.indexed import LogItem
from holdfast.core.job import Job
from holdfast.core.kinds import NUMBER, SCHEDULE, SHARD, UNIQUE
from holdfast.core.moving import read_notice
from holdfast.core.slots import slot_of_record, slot_of_schedule
from holdfast.core.unique import read_unique
from holdfast.engine.commands.schedules import read_kept
from holdfast.engine.migrate.move import StoreMove
from holdfast.engine.migrate.parts import CopiedPart, CountsPart, Live, Rows, Settled
from holdfast.queue.queue import Queue
from holdfast.store.contract import AnyStore, JobFilter, ReadTxn, WaitingQuery
from holdfast.store.sharded.store import ShardedStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.making import tally


class Two(NamedTuple):
    """Two empty stores, by what opens them."""

    open_source: Callable[[], AnyStore]
    open_target: Callable[[], AnyStore]
    clock: MovedClock

    def move(self, source: AnyStore, target: AnyStore, **options: Any) -> StoreMove:
        """A move that has not begun."""
        return StoreMove(source, target, here="here", there="there", **{"batch": 4} | options)


def make_queue(open_store: Callable[[], AnyStore]) -> Queue:
    """A queue, like a process of its own."""
    return Queue(open_store, url="the store under test")


def fill(queue: Queue) -> list[Job]:
    """Something of everything; the jobs that run now."""
    queue.limit("cdn", rate=0.5)
    queue.limit("api-*", concurrency=1)
    queue.pause("paused")
    queue.schedule("nightly", "sweep", {"n": 1}, every="1h")
    for task in ("resize", "call", "plain"):
        for version in range(2):
            queue.handlers.set(task, f"version {version}", lang="shell")
    for n in range(6):
        queue.schedule(f"s{n}", "tick", {"n": n}, every="1h")
        queue.add("away", {"n": n}, unique=f"{n}", domain=f"d{n}")
    for n in range(5):
        queue.add("resize", {"n": n}, domain="cdn", priority=100 * n)
        queue.add("call", {"n": n}, domain="api-1")
        queue.add("plain", {"n": n})
    queue.add("paused")
    queue.add("later", delay="1h")
    queue.add("raw", b"\x00\xff")
    queue.add("empty", b"")
    queue.add("once", unique="k", unique_for="1h")
    queue.add("kept", unique="held")
    queue.add("whole")
    queue.add("broken", attempts=1)
    _work(queue)
    _log(queue)
    running = [job for task in ("resize", "call", "plain") for job in queue.claim([task], renew=False)]
    running[0].progress(0.5, "half way")
    queue.connection.ask(c.WriteLog(hold=running[0]._lease.hold, lines=("one", "two")))
    queue.connection.ask(c.Step(hold=running[0]._lease.hold, name="a", result="1"))
    return [queue.get(job.id) for job in running]


def _work(queue: Queue) -> None:
    for task, result in (("raw", b"\xff\x00"), ("once", {"ok": True}), ("empty", "")):
        job = queue.next([task], renew=False)
        assert job is not None
        queue.connection.ask(c.WriteLog(hold=job._lease.hold, lines=(task,)))
        job.done(result)
    whole, broken = queue.next(["whole"], renew=False), queue.next(["broken"], renew=False)
    assert whole is not None
    assert broken is not None
    whole.add("part", {"of": "whole"})
    whole.add("part", {"of": "whole"})
    whole.done()
    part = queue.next(["part"], renew=False)
    assert part is not None
    part.done("seen by its parent")
    broken.fail("no")


def _log(queue: Queue) -> None:
    ask = queue.connection.ask
    items = tuple(LogItem(data=f"{n}", key=b"%d" % n) for n in range(1, 8))
    ask(c.Append(log="events", items=(*items, LogItem(data=b"\x00"))))
    ask(c.StartProgress(name="reader", log="events"))
    ask(c.MoveProgress(name="reader", to=5))
    ask(c.TrimLog(log="events", keep_keys=6))


def seen(store: AnyStore) -> dict[str, list[Any]]:
    """All rows of all parts, and the orders that a store keeps them in."""

    def see(txn: ReadTxn) -> dict[str, list[Any]]:
        tables = [table for table in txn.tables() if table != SHARD]
        parts: list[CopiedPart[Any, Any]] = [
            Settled(deep=True),
            Live(deep=True),
            CountsPart(),
            *map(Rows, tables),
        ]
        found: dict[str, list[Any]] = {}
        for part in parts:
            found[part.name] = [part.seen(row) for row in part.page(txn, part.start, 10_000)]
        due = [(table, sorted(txn.scan(table, due_before=1 << 52, limit=10_000))) for table in tables]
        # Who was served when does not go along.
        waiting = sorted(txn.waiting(WaitingQuery(limit=100)))
        return found | {"due": due, "moments": list(txn.moments()), "waiting": waiting}

    return store.read(see)


def check_same(target: AnyStore, source: AnyStore) -> None:
    """That all is in the target as it was, and there where it is looked for."""
    found, expected = seen(target), seen(source)
    if isinstance(target, ShardedStore) or isinstance(source, ShardedStore):
        # Numbers of schedules are noted for other shards.
        for view in (found, expected):
            view["due"] = [page for page in view["due"] if page[0] != NUMBER]
            view.pop(NUMBER, None)
    assert found == expected
    assert [text for shard in target.shards for text in misplaced(shard)] == []
    held = dict(found.get(UNIQUE, []))
    assert target.read(lambda txn: txn.rows(UNIQUE, list(held))) == held


def misplaced(store: AnyStore) -> list[str]:
    """What a shard has that belongs to another, or counts otherwise than there is."""
    number, of = getattr(store, "number", 0), getattr(store, "of", 1)

    def see(txn: ReadTxn) -> list[str]:
        live = txn.jobs(JobFilter(), after=0, limit=10_000)
        jobs = [*live, *txn.jobs(JobFilter(archived=True), after=0, limit=10_000)]
        slots = [("job", job.id) for job in jobs]
        slots += [("parent", job.parent_id) for job in live if job.parent_id]
        slots += [("domain", slot_of(job.tenant, job.domain)) for job in live if job.domain is not None]
        slots += [("key", read_unique(raw).job_id) for _, raw in txn.scan(UNIQUE, limit=10_000)]
        slots += [
            (f"schedule {key}", slot_of_schedule(read_kept(raw).schedule.name, read_kept(raw).job))
            for key, raw in txn.rows(SCHEDULE).items()
        ]
        placed = (UNIQUE, SCHEDULE)
        rows = [(table, key) for table in txn.tables() if table not in placed for key in txn.rows(table)]
        for table, key in rows:
            slot = None if (table, key) == ("sysid", "1") else slot_of_record(table, key)
            slots += [] if slot is None else [(f"{table} {key}", slot)]
        found = [f"{what} of slot {slot}" for what, slot in slots if slot % of != number]
        if txn.counts() != tally(jobs):
            found.append(f"counts {txn.counts()}")
        return found

    return store.read(see)


def standing_of(store: AnyStore) -> str:
    """What the notice on a store's door says."""
    raw = store.read(lambda txn: txn.notice())
    return read_notice(raw).standing.value if raw else ""
