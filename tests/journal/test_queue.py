"""A queue with a journal: `add` is durable there, and everything else is as without one."""

import asyncio
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import cast

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core import ids
from holdfast.core.bounds import HOUR_MS, MINUTE_MS
from holdfast.core.errors import Closed, StoreError, Unavailable
from holdfast.core.ids import FIRST_JOURNAL_SYSID
from holdfast.engine.connection import Connection
from holdfast.engine.makers import ConnectionMaker
from holdfast.journal import connection as journal_connection
from holdfast.journal.connection import JournalMaker
from holdfast.journal.folder import JournalFolder
from holdfast.journal.ingester import Ingester
from holdfast.queue.connect import store_maker
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import system_clock
from holdfast.testing.clock import MovedClock

from .opened import add, opened


@pytest.fixture
def queue(tmp_path):
    """A queue on a file, with a journal beside it."""
    with holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j") as queue:
        yield queue


def ingested(queue) -> None:
    """Wait until all is in the store."""
    until = time.monotonic() + 60
    while not queue.connection.wait_empty(1):
        assert time.monotonic() < until, "the journal was not ingested"


def test_jobs_reach_the_store_under_the_ids_that_add_returned(queue):
    """In order, with data of any kind and their options."""
    wanted = [("a", 1), ("a", [2]), ("b", "x\ny"), ("a", b"\0\n|"), ("c,d|e", None)]
    added = [queue.add("a", {"first": True}, priority=900), *queue.add_many(wanted)]
    assert all(ids.unpack(one.id).sysid >= FIRST_JOURNAL_SYSID for one in added)
    ingested(queue)

    got = queue.claim(limit=10, renew=False)

    assert [job.id for job in got] == [one.id for one in added]
    assert [job.data for job in got] == [{"first": True}, 1, [2], "x\ny", b"\0\n|", {}]
    assert got[0].record.priority == 900


def test_a_job_that_was_just_added_is_found(queue):
    """By every verb: it waits until the store has the job. One that never was is still unknown."""
    for _ in range(20):
        assert queue.get(queue.add("work")).task == "work"
        assert str(queue.cancel(queue.add("work")).state) == "CANCELLED"
        with pytest.raises(holdfast.Timeout):
            queue.result(queue.add("work"), wait=0)
    with pytest.raises(holdfast.NotFound):
        queue.get(1)


def test_many_threads_and_coroutines_add_at_once(tmp_path):
    """Each job once, whoever wrote it."""

    async def add_all(queue: holdfast.AsyncQueue) -> list[int]:
        handles = await asyncio.gather(*(queue.add("work", {"n": n}) for n in range(200)))
        assert (await queue.get(handles[-1])).task == "work"
        await queue.close()
        return [one.id for one in handles]

    url = str(tmp_path / "jobs.db")
    with holdfast.connect(url, journal=tmp_path / "a") as queue, ThreadPoolExecutor(8) as pool:
        made = [job.id for job in pool.map(lambda n: queue.add("work", {"n": n}), range(200))]
    made += asyncio.run(add_all(holdfast.connect_async(url, journal=tmp_path / "b")))

    with holdfast.connect(url) as queue:
        assert sorted(job.id for job in queue.jobs(limit=1000)) == sorted(made)
        assert queue.counts() == {"work": {"QUEUED": 400}}


def test_what_the_store_must_decide_goes_to_the_store(queue):
    """Unique jobs and children are there when `add` returns, under ids of the store."""
    first, second = queue.add("work", unique="k"), queue.add("work", unique="k")
    assert first.id == second.id
    assert ids.unpack(first.id).sysid < FIRST_JOURNAL_SYSID
    parent = queue.next(["work"])
    child = parent.add("child")

    assert queue.get(child).parent_id == parent.id
    parent.release()


def test_times_count_from_the_add(tmp_path):
    """However long the job is in the journal."""
    clock = MovedClock(1_800_000_000_000)
    with opened(tmp_path / "j", clock) as journal:
        added = journal.add(c.Add(jobs=(c.NewJob(task="t", delay_ms=HOUR_MS, expires_in_ms=2 * HOUR_MS),)))
    clock.advance(MINUTE_MS)

    with holdfast.connect("memory://", journal=tmp_path / "j", clock=clock) as queue:
        ingested(queue)
        job = queue.get(added[0])

    assert job.run_at == 1_800_000_000_000 + HOUR_MS
    assert job.expires_at == 1_800_000_000_000 + 2 * HOUR_MS


@pytest.mark.parametrize("connect", [holdfast.connect, holdfast.connect_async])
def test_connecting_opens_no_journal(tmp_path, connect):
    """The folder is made by the first verb; what is no folder is refused at once."""
    connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j")
    with pytest.raises(holdfast.BadInput, match="journal"):
        connect(str(tmp_path / "jobs.db"), journal="")
    with (
        closing(holdfast.connect("memory://", journal=tmp_path / "none" / "j")) as queue,
        pytest.raises(StoreError, match="No such file"),
    ):
        queue.add("work")

    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_is_ingested_at_the_next_start(tmp_path):
    """With the ids that were given; also if some of it is in the store already."""
    url, path = str(tmp_path / "jobs.db"), tmp_path / "j"
    with holdfast.connect(url, journal=path) as queue:
        first = queue.add("work", 1)
    with opened(path) as journal:
        rest = add(journal, *map(str, range(2, 50)))
    (path / "position").unlink()

    with holdfast.connect(url, journal=path) as queue:
        ingested(queue)
        assert [queue.data(job) for job in queue.jobs(limit=100)] == list(range(1, 50))
        assert [job.id for job in queue.jobs(limit=100)] == [first.id, *rest]


def test_a_line_that_the_store_refuses_is_set_aside(tmp_path, caplog):
    """It is kept and reported, and the others go on."""
    url, path = str(tmp_path / "jobs.db"), tmp_path / "j"
    with opened(path) as journal:
        added = add(journal, "1", "2", "3", tenant="mine")
        # The second id is a job of another tenant.
        with holdfast.connect(url) as queue:
            queue.connection.ask(c.Add(jobs=(c.NewJob(task="work", tenant="other"),), ids=(added[1],)))

    with holdfast.connect(url, journal=path, tenant="mine") as queue:
        ingested(queue)
        assert [job.id for job in queue.jobs()] == [added[0], added[2]]
        (refused,) = JournalFolder(path).refused()

    assert (refused.id, refused.tenant, refused.task) == (str(added[1]), "mine", "work")
    assert refused.code == "BAD_INPUT"
    assert any("refused 1 job" in record.message for record in caplog.records)


class Away(ConnectionMaker):
    """A store that cannot be reached while `is_away`."""

    def __init__(self, url: str) -> None:
        self._maker = store_maker(url)
        self.is_away = True

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> Connection:
        if self.is_away:
            raise holdfast.Unavailable("the store is away")
        return self._maker.connect(retention_ms=retention_ms, rng=rng)


def test_while_the_store_is_away_only_plain_adds_are_accepted(tmp_path):
    """The first number comes from the store; after that the journal goes on without it."""
    away = Away(str(tmp_path / "jobs.db"))
    maker = JournalMaker(away, tmp_path / "j")
    with Queue(maker, url="store") as queue:
        with pytest.raises(holdfast.Unavailable, match="the store is away"):
            queue.add("work", 0)
        away.is_away = False
        queue.add("work", 1)
    away.is_away = True
    with Queue(maker, url="store") as queue:
        added = queue.add("work", 2)
        for refused in (
            lambda: queue.add("work", unique="k"),
            # Which a store of several shards may refuse.
            lambda: queue.add("work", then=queue.call("work", domain="d")),
            lambda: queue.add("work", connection=object()),
            lambda: queue.get(added),
            queue.counts,
        ):
            with pytest.raises(holdfast.Unavailable, match="the store is away"):
                refused()
        queue.add("work", 3)
        away.is_away = False
        ingested(queue)
        assert [queue.data(job) for job in queue.jobs()] == [1, 2, 3]


def test_closing_leaves_what_the_store_does_not_take(tmp_path, monkeypatch):
    """A store that does not answer delays `close` for a limited time; the rest is ingested next time."""
    for limit in ("DRAIN_S", "CLOSING_S"):
        monkeypatch.setattr(journal_connection, limit, 0.1)
    url = str(tmp_path / "jobs.db")
    with holdfast.connect(url, journal=tmp_path / "j") as queue:
        queue.add("work", 1)
    with closing(sqlite3.connect(url, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        queue = holdfast.connect(url, journal=tmp_path / "j")
        added = queue.add("work", 2)
        queue.close()
        assert other.execute("SELECT count(*) FROM holdfast_jobs").fetchone() == (1,)
        other.execute("ROLLBACK")

    with holdfast.connect(url, journal=tmp_path / "j") as queue:
        assert queue.data(added) == 2


def test_with_another_store_a_journal_takes_another_number(tmp_path):
    """Where its own is that of another journal, both would make the same ids, and jobs would be lost."""
    with holdfast.connect(str(tmp_path / "gone.db"), journal=tmp_path / "a") as queue:
        queue.add("work")
    with (
        holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "b") as theirs,
        holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "a") as ours,
    ):
        theirs.add("work")
        ours.add("work")
        ingested(ours)

        added = [ids.unpack(queue.add("work").id).sysid for queue in (theirs, ours)]

    assert added == [FIRST_JOURNAL_SYSID, FIRST_JOURNAL_SYSID + 1]


def test_the_store_is_closed_though_the_folder_is_gone(tmp_path):
    """And adds are refused: they would not survive the process."""
    with holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j") as queue:
        queue.add("work")
        ingested(queue)
        shutil.rmtree(tmp_path / "j")

        with pytest.raises(StoreError, match="was deleted"):
            queue.add("work")
        store = queue.connection.engine.store

    with pytest.raises(Closed):
        store.read(lambda txn: txn.counts())


def test_a_store_that_does_not_answer_the_renewal_counts_as_away(tmp_path, monkeypatch):
    """What needs the store is refused at once: before the first line is read the number is renewed."""
    monkeypatch.setattr("holdfast.journal.ingester.SILENT_S", 0.0)
    is_asked, may_answer = threading.Event(), threading.Event()

    class Silent:
        def ask(self, _command: c.Command) -> None:
            is_asked.set()
            may_answer.wait(60)
            raise Unavailable("it was silent")

    with opened(tmp_path / "j") as journal:
        journal.ids.doubt()
        ingester = Ingester(journal, lambda: cast(Connection, Silent()), system_clock)
        ingester.start()
        try:
            assert is_asked.wait(60)
            time.sleep(0.001)
            assert "it has not answered" in ingester.find_outage()
        finally:
            may_answer.set()
            assert ingester.stop(60)
