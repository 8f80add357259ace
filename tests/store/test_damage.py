"""Damaged records and data: that job fails, its bytes are kept, and everything else goes on."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing, contextmanager, suppress

import pytest

import holdfast
from holdfast.core.job import Unreadable
from holdfast.queue.queue import Queue
from holdfast.store.contract import Changes, JobFilter
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.keys import STAMP_BYTES, Keys, data_of, member
from holdfast.testing.clock import MovedClock
from holdfast.testing.stores.making import look
from tests.queue_suite.fixtures import START_MS
from tests.queue_suite.tools import upkeep
from tests.stores import opener

KINDS = ["sqlite", "postgres", "redis"]
# What a record may look like after a fault of the disk, or of a program that wrote to the store.
RECORDS = {
    "cut off": b'{"id":',
    "no JSON": b"\x17 nothing of the kind",
    "another form": b'{"id":"seven","task":7}',
    "no UTF-8": b'{"id":%d,"task":"\xff\xfe","size":2}',
}


# The name of a version table that is hidden.
AWAY = "version_table_away"


class Damager(ABC):
    """What damages a store beneath its queues."""

    def __init__(self, open_store):
        self._open = open_store

    def write(self, table, job_id, raw):
        """Let these bytes stand in `jobs`, `archive`, `data` or `results` of a job, as text."""
        with closing(self._open()) as store:
            self._write(store, table, job_id, raw)

    @abstractmethod
    def _write(self, store, table, job_id, raw):
        """The same by way of an open store; None removes the row."""


class SqliteDamager(Damager):
    """A file. Small data is in the row of its job, a small result in that of the archive."""

    columns = {"jobs": ("jobs", "rest"), "archive": ("archive", "record"), "data": ("jobs", "body")}
    columns["results"] = ("archive", "result")

    def _write(self, store, table, job_id, raw):
        name, column = self.columns[table]
        sql = f"UPDATE holdfast_{name} SET {column} = CAST(? AS TEXT) WHERE id = ?"
        assert look(store, lambda txn: txn.connection.change(sql, (raw, job_id))) == 1  # type: ignore[attr-defined]

    def schema(self, store, numbers):
        """Let these be the versions of the store, None: without their table; what they were."""

        def change(txn):
            if numbers in (None, AWAY):
                old, new = ("holdfast_schema", AWAY) if numbers is None else (AWAY, "holdfast_schema")
                txn.connection.change(f"ALTER TABLE {old} RENAME TO {new}")
                return AWAY
            before = txn.connection.rows("SELECT version FROM holdfast_schema")
            txn.connection.change("DELETE FROM holdfast_schema")
            for number in numbers:
                txn.connection.change("INSERT INTO holdfast_schema VALUES (?, ?)", (number, number))
            return [number for (number,) in before]

        return look(store, change)


class PostgresDamager(Damager):
    """A schema. Its server takes no text that is not UTF-8. Small data is in the row of its job."""

    columns = {"jobs": ("jobs", "rest"), "archive": ("archive", "record"), "data": ("jobs", "body")}
    columns["results"] = ("results", "body")

    def _write(self, store, table, job_id, raw):
        try:
            text = None if raw is None else raw.decode()
        except UnicodeDecodeError:
            pytest.skip("the server takes no text that is not UTF-8")

        def change(txn):
            name, column = self.columns[table]
            sql = f'UPDATE "{txn.schema}".{name} SET {column} = %s WHERE id = %s'
            return Changes(), txn.connection.change(sql, (text, job_id))

        assert store.run(change) == 1

    def schema(self, store, numbers):
        """Let these be the versions of the store, None: without their table; what they were."""

        def change(txn):
            if numbers in (None, AWAY):
                old, new = ("version", AWAY) if numbers is None else (AWAY, "version")
                txn.connection.change(f'ALTER TABLE "{txn.schema}".{old} RENAME TO {new}')
                return Changes(), AWAY
            before = txn.connection.rows(f'SELECT version FROM "{txn.schema}".version')
            txn.connection.change(f'DELETE FROM "{txn.schema}".version')
            for number in numbers:
                txn.connection.change(f'INSERT INTO "{txn.schema}".version VALUES (%s, %s)', (number, number))
            return Changes(), [number for (number,) in before]

        return store.run(change)


class RedisDamager(Damager):
    """The keys of a prefix."""

    def _write(self, store, table, job_id, raw):
        name = member(job_id)
        with self._server(store) as (server, keys):
            # The data of a job is in the value of its record.
            tables = (keys.jobs, keys.archive) if table == "data" else (getattr(keys, table),)
            (key,) = [key for key in tables if server.call(b"HEXISTS", key, name)]
            if raw is None and table != "data":
                server.call(b"HDEL", key, name)
                return
            before = server.call(b"HGET", key, name)
            head, data = before[: -len(data_of(before)) or None], data_of(before)
            if table == "data":
                value = head + (b"" if raw is None else b"s" + raw)
            else:
                value = b"s" + raw if table == "results" else before[:STAMP_BYTES] + raw + b"\0" + data
            server.call(b"HSET", key, name, value)

    def schema(self, store, numbers):
        """Let these be the versions of the store; what they were."""
        with self._server(store) as (server, keys):
            before = server.call(b"GET", keys.version)
            server.call(b"SET", keys.version, b"".join(b"%d %d " % (number, number) for number in numbers))
        return [int(before.split(b" ")[0])] if before else []

    @contextmanager
    def _server(self, store):
        with suppress(holdfast.StoreCorrupt):
            store.read(lambda txn: None)
        keys = Keys(store.address.prefix)
        with closing(server_of(store.address, keys.base)) as server:
            yield server, keys


DAMAGERS: dict[str, Callable] = {
    "sqlite": SqliteDamager,
    "postgres": PostgresDamager,
    "redis": RedisDamager,
}


@pytest.fixture
def clock():
    """The time."""
    return MovedClock(START_MS)


@pytest.fixture(params=KINDS)
def open_store(request, clock):
    """Each store that keeps jobs as bytes."""
    return opener(request, clock)


@pytest.fixture
def damager(request, open_store):
    """What damages that store."""
    return DAMAGERS[request.node.callspec.params["open_store"]](open_store)


@pytest.fixture
def queue(open_store):
    """A queue on it."""
    queue = Queue(open_store, url="the store under test")
    yield queue
    queue.close()


def taken(queue, task="work"):
    """The ids of all jobs that can be had, each finished."""
    ids = []
    while (job := queue.next([task])) is not None:
        ids.append(job.id)
        job.done()
    return ids


@pytest.mark.parametrize("raw", RECORDS.values(), ids=RECORDS)
def test_a_job_whose_record_is_damaged_is_set_aside(queue, open_store, damager, raw):
    """The others are claimed; it is FAILED, says so, and is out of all orders and counts but its own."""
    first, bad, last = (queue.add("work", {"n": n}).id for n in range(3))
    damager.write("jobs", bad, raw.replace(b"%d", b"%d" % bad))

    assert taken(queue) == [first, last]

    (failed,) = queue.jobs(state="FAILED")
    assert (failed.id, failed.task) == (bad, "work")
    assert failed.reason.startswith("damaged")
    assert queue.counts()["work"] == {"FINISHED": 2, "FAILED": 1}
    with pytest.raises(holdfast.StoreCorrupt, match=rf"job {bad} "):
        queue.get(bad)
    with closing(open_store()) as store:
        kept = store.read(lambda txn: txn.load([bad])[bad])
        assert kept.damaged == raw.replace(b"%d", b"%d" % bad)


@pytest.mark.parametrize("raw", RECORDS.values(), ids=RECORDS)
def test_a_damaged_record_stops_no_listing_and_no_upkeep(queue, open_store, damager, clock, raw):
    """Before anybody has claimed it: listings show the job, and what is due beside it becomes so."""
    early, bad, late = (queue.add("work", delay=f"{n}s").id for n in (1, 2, 3))
    damager.write("jobs", bad, raw.replace(b"%d", b"%d" % bad))

    assert [job.id for job in queue.jobs()] == [early, bad, late]
    assert {job.id for job in queue.jobs(state="QUEUED")} == {early, bad, late}
    clock.advance(10_000)
    upkeep(queue)
    assert taken(queue) == [early, late]
    assert [job.id for job in queue.jobs(state="FAILED")] == [bad]


# What the data of a job may look like after such a fault; None: there is none.
BODIES = {
    "no UTF-8": b'{"n":\xff}',
    "cut off": b'{"n":',
    "no JSON": b"1 nothing of the kind",
    "empty": b"",
    "missing": None,
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
def test_a_job_whose_data_is_damaged_is_set_aside(queue, open_store, damager, raw):
    """Its record is sound, so it can be looked at; its data cannot."""
    first, bad, last = (queue.add("work", {"n": n}).id for n in range(3))
    damager.write("data", bad, raw)

    assert taken(queue) == [first, last]

    assert queue.get(bad).state == "FAILED"
    assert queue.get(bad).reason.startswith("damaged: its data")
    assert queue.counts()["work"] == {"FINISHED": 2, "FAILED": 1}
    with pytest.raises(holdfast.StoreCorrupt, match=f"data of job {bad} "):
        queue.data(bad)
    with closing(open_store()) as store:
        body = store.read(lambda txn: txn.bodies([bad]).get(bad))
        assert isinstance(body, Unreadable) is (raw is not None and b"\xff" in raw)
        assert (body.encode() if isinstance(body, str) else body) == raw


@pytest.mark.parametrize("raw", [b'{"key":', None], ids=["no JSON", "missing"])
def test_a_unique_add_is_not_merged_with_damaged_data(queue, damager, raw):
    """What it would be merged with is not known."""
    bad = queue.add("work", {"key": 1}, unique="one", on_conflict="merge").id
    damager.write("data", bad, raw)

    with pytest.raises(holdfast.StoreCorrupt, match=f"data of job {bad} "):
        queue.add("work", {"more": 2}, unique="one", on_conflict="merge")


@pytest.mark.parametrize(("table", "raw"), [("jobs", b"{"), ("data", b"{"), ("data", None)])
def test_a_worker_goes_on(queue, damager, table, raw):
    """Past a job that is damaged, which does not run, not even one that needs no arguments."""
    ran = []

    @queue.task
    def work(n: int = 7) -> int:
        ran.append(n)
        return n

    added = [work.add(n) for n in range(5)]
    damager.write(table, added[2].id, raw)

    holdfast.work(queue, until_empty=True)

    assert [added[n].result(wait=10) for n in (0, 1, 3, 4)] == sorted(ran) == [0, 1, 3, 4]
    with pytest.raises(holdfast.JobFailed, match="damaged"):
        added[2].result(wait=10)


@pytest.mark.parametrize("raw", [b'"\xff"', b'"fine', None], ids=["no UTF-8", "no JSON", "missing"])
def test_a_damaged_result_is_told(queue, damager, raw):
    """By name, to whoever asks for it."""
    added = queue.add("work")
    queue.next(["work"]).done("fine")
    damager.write("results", added.id, raw)

    with pytest.raises(holdfast.StoreCorrupt, match=f"result of job {added.id} "):
        added.result()


@pytest.mark.parametrize("raw", RECORDS.values(), ids=RECORDS)
def test_a_damaged_record_in_the_archive_stops_no_purge(queue, open_store, damager, clock, raw):
    """It is listed, told to whoever reads it, and goes with its time."""
    first, bad = (queue.add("work").id for _ in range(2))
    assert taken(queue) == [first, bad]
    damager.write("archive", bad, raw.replace(b"%d", b"%d" % bad))

    with closing(open_store()) as store:
        query = JobFilter(archived=True)
        assert [job.id for job in store.read(lambda txn: txn.jobs(query, after=0, limit=9))] == [first, bad]
    with pytest.raises(holdfast.StoreCorrupt, match=f"job {bad} "):
        queue.get(bad)
    clock.advance(24 * 3_600_000 + 1)
    upkeep(queue)
    with pytest.raises(holdfast.NotFound):
        queue.get(bad)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([], "is empty, and must hold"),
        ([0], "says layout 0, and layouts begin at 1"),
        ([-1], "says layout -1, and layouts begin at 1"),
        ([1, 1], "holds 2 rows, and must hold one"),
        (None, "is missing, and its other tables are there"),
    ],
    ids=str,
)
def test_an_odd_schema_table_is_corrupt(queue, open_store, damager, numbers, told):
    """The error says what is wrong; nothing is changed."""
    queue.add("work")
    if isinstance(damager, RedisDamager):
        if numbers is None or len(numbers) > 1:
            pytest.skip("it has one key instead of a table")
        told = "must begin with the number of its layout, which is at least 1"
    with closing(open_store()) as store:
        before = damager.schema(store, numbers)

        with (
            closing(open_store()) as other,
            pytest.raises(holdfast.StoreCorrupt, match=f"is damaged: its .*{told}"),
        ):
            look(other, lambda txn: None)

        # Schemas of servers are used again by other tests.
        damager.schema(store, before)
