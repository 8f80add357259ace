"""A store that was restored from a backup: claims and ids go on above all that were used before."""

import shutil
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise

import pytest

from holdfast.core.commands import ReserveIds, TakeSysid
from holdfast.core.errors import LeaseLost
from holdfast.core.ids import SLOTS
from holdfast.engine.commands.sysids import MarkRestored
from holdfast.queue.queue import Queue
from holdfast.store.contract import Changes
from holdfast.store.redis.connection import server_of
from holdfast.store.redis.keys import Keys
from holdfast.testing.clock import MovedClock
from tests.queue_suite.fixtures import START_MS
from tests.stores import opener

HOUR_MS = 3_600_000


class FileBackup:
    """A copy of all files in the folder of the store, which no process has open."""

    def __init__(self, _open_store, folder):
        self._folder = folder
        self._copy = folder.with_name("backup")
        shutil.copytree(folder, self._copy)

    def restore(self):
        """Put the copies in the place of the files."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder)


class PostgresBackup:
    """A copy of all tables."""

    def __init__(self, open_store, _folder):
        self._open = open_store
        self._run('CREATE SCHEMA "{schema}_backup"')
        self._for_each_table('CREATE TABLE "{schema}_backup".{table} AS TABLE "{schema}".{table}')

    def restore(self):
        """Write them back."""
        self._for_each_table(
            'TRUNCATE "{schema}".{table}',
            'INSERT INTO "{schema}".{table} SELECT * FROM "{schema}_backup".{table}',
        )

    def drop(self):
        """Remove the copy: schemas of servers are used again by other tests."""
        self._run('DROP SCHEMA "{schema}_backup" CASCADE')

    def _for_each_table(self, *statements):
        found = self._run("SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")
        self._run(*(sql.replace("{table}", table) for (table,) in found for sql in statements))

    def _run(self, *statements):
        def run(txn):
            found = []
            for sql in statements:
                if sql.startswith("SELECT"):
                    found = txn.connection.rows(sql.format(schema=txn.schema))
                else:
                    txn.connection.change(sql.format(schema=txn.schema))
            return Changes(), found

        with closing(self._open()) as store:
            return store.run(run)


class RedisBackup:
    """A dump of every key."""

    def __init__(self, open_store, _folder):
        with closing(open_store()) as store:
            store.read(lambda txn: None)
            self._keys, self._address = Keys(store.address.prefix), store.address
        self._dumps = self._each(lambda server, name: (name, server.call(b"DUMP", name)))

    def restore(self):
        """Restore all keys, and no other."""
        self._each(lambda server, name: server.call(b"DEL", name))
        with closing(server_of(self._address, self._keys.base)) as server:
            for name, dump in self._dumps:
                server.call(b"RESTORE", name, 0, dump)

    def _each(self, call):
        with closing(server_of(self._address, self._keys.base)) as server:
            return [call(server, name) for name in server.call(b"KEYS", self._keys.base + b"*")]


BACKUPS: dict[str, Callable] = {
    "sqlite": FileBackup,
    "sharded": FileBackup,
    "postgres": PostgresBackup,
    "redis": RedisBackup,
}


@pytest.fixture
def clock():
    """The time, which stands still: ids of two processes with one sysid would be the same."""
    return MovedClock(START_MS)


@pytest.fixture(params=BACKUPS)
def kind(request):
    return request.param


@pytest.fixture
def open_store(request, kind, clock, tmp_path, monkeypatch):
    folder = tmp_path / "store"
    folder.mkdir()
    monkeypatch.setattr(request, "getfixturevalue", _in(folder, request.getfixturevalue))
    return opener(request, clock, kind)


def _in(folder, get):
    return lambda name: folder if name == "tmp_path" else get(name)


class Connect:
    """Makes queues as new processes would."""

    def __init__(self, open_store):
        self._open, self.queues = open_store, []

    def __call__(self):
        self.queues.append(Queue(self._open, url="the store under test"))
        return self.queues[-1]


@pytest.fixture
def connect(open_store):
    """A new process."""
    connect = Connect(open_store)
    yield connect
    for queue in connect.queues:
        queue.close()


@pytest.fixture
def take_backup(kind, open_store, tmp_path):
    """What makes the backup of a test."""
    taken = []

    def take():
        taken.append(BACKUPS[kind](open_store, tmp_path / "store"))
        return taken[-1]

    yield take
    for backup in taken:
        if isinstance(backup, PostgresBackup):
            backup.drop()


def mark_restored(queue):
    """What `holdfast restored` does, one job at a time."""
    after = 0
    while after is not None:
        after = queue.connection.ask(MarkRestored(after=after, limit=1))


def claim_all(queue, times=1):
    """The claims of all jobs, after they were claimed and given back so many times."""
    claims = {}
    for _ in range(times):
        jobs = queue.claim(limit=100, renew=False)
        claims = {job.id: job.claim for job in jobs}
        for job in jobs:
            job.release()
    return claims


def test_claims_never_go_back_after_a_restore(connect, take_backup, clock):
    """Not even after two restores of one backup, of which the first had the store for long."""
    queue = connect()
    for _ in range(8):
        queue.add("work")
    assert set(claim_all(queue, times=4).values()) == {4}
    queue.close()
    backup = take_backup()

    seen = [claim_all(connect(), times=6)]
    for _ in range(2):
        clock.advance(100)
        restore(connect, backup)
        seen.append(claim_all(connect(), times=3))

    for before, after in pairwise(seen):
        assert before.keys() == after.keys()
        assert all(after[job_id] > claim for job_id, claim in before.items())
    assert max(seen[-1].values()) < 1 << 53


def restore(connect, backup):
    """Restore a backup, and mark it while no other process has the store open."""
    for queue in connect.queues:
        queue.close()
    backup.restore()
    with connect() as queue:
        mark_restored(queue)


def test_no_id_is_made_twice_after_a_restore(connect, take_backup, clock):
    """Neither by processes that were there at the backup, nor by later ones, journals among them."""
    with connect() as queue:
        queue.add("work")
    backup = take_backup()

    made = make_ids(connect)
    restore(connect, backup)

    assert made.isdisjoint(make_ids(connect))


def make_ids(connect):
    """The ids that two processes and a journal make."""
    made: set[int] = set()
    queues = [connect(), connect()]
    for queue in queues:
        made |= {queue.add("work").id for _ in range(5)}
        for some in queue.connection.ask(ReserveIds(count=2_000)):
            made |= set(range(some.first, some.first + some.count * SLOTS, SLOTS))
    taken = queues[0].connection.ask(TakeSysid(token="t", for_ms=HOUR_MS))
    made.add(-(max(taken.ids_from_ms, START_MS) * 2_048 + taken.number))
    for queue in queues:
        queue.close()
    return made


def test_a_worker_from_before_the_restore_cannot_answer(connect):
    """Its claim is not the job's any more, though the backup has it."""
    queue = connect()
    queue.add("work")
    held = queue.next(["work"], renew=False)

    mark_restored(connect())

    with pytest.raises(LeaseLost):
        held.done()


def test_a_restored_store_that_is_marked_twice_is_as_if_marked_once(connect):
    """At one moment, nothing is raised again; jobs keep their places, states and data."""
    with connect() as queue:
        for number in range(5):
            queue.add("work", {"n": number}, priority=100 * number)
        queue.next(["work"], renew=False)
        before = [(job.id, job.place, job.state, job.rank) for job in queue.jobs()]
        mark_restored(queue)
        once = queue.jobs()
        mark_restored(queue)

        assert [(job.id, job.place, job.state, job.rank) for job in once] == before
        assert [job.claim for job in queue.jobs()] == [job.claim for job in once]
        assert queue.counts() == {"work": {"QUEUED": 4, "RUNNING": 1}}
