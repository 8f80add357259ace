"""Whoever waits for a job takes the write lock only where there is something to get."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.core import bounds
from holdfast.engine import upkeep
from holdfast.engine.committer import Committer
from holdfast.engine.store_connection import StoreConnection
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import Changes, ReadTxn, Store, Txn
from holdfast.store.sqlite.store import SqliteStore
from tests.doubles import Passing

T = TypeVar("T")
PATIENCE_S = 60.0


class Counted(Passing):
    """A store that counts transactions, and tells of each look."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.writes = 0
        self.looked = threading.Semaphore(0)

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """One more."""
        self.writes += 1
        return super().run(fn)

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """A look."""
        try:
            return super().read(fn, hint=hint)
        finally:
            self.looked.release()


class Waiter:
    """A queue on which a claim waits."""

    def __init__(self, path: str, task: str) -> None:
        self.store = Counted(SqliteStore(path))
        self.queue = Queue(lambda: self.store, url="counted")
        self.found: list[int] = []
        self._thread = threading.Thread(target=self._wait, args=(task,))
        self._thread.start()
        # Until it waits: its first claim has found nothing.
        until_s = monotonic_s() + PATIENCE_S
        connection = self.queue.connection
        assert isinstance(connection, StoreConnection)
        committer = connection._submitter
        assert isinstance(committer, Committer)
        while not committer._waiter._claims:
            assert monotonic_s() < until_s

    def _wait(self, task: str) -> None:
        if job := self.queue.next([task], wait=PATIENCE_S, renew=False):
            self.found.append(job.id)
            job.done()

    def looks(self) -> None:
        """Wait until it has looked."""
        assert self.store.looked.acquire(timeout=PATIENCE_S)

    def ends(self) -> list[int]:
        """What it has found."""
        self._thread.join(PATIENCE_S)
        return self.found

    def close(self) -> None:
        """Wait no longer."""
        self.queue.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture(autouse=True)
def no_upkeep(monkeypatch) -> None:
    """But for the first: it would write now and then on a machine that is slow, and find what is due."""
    monkeypatch.setattr(bounds, "UPKEEP_PERIOD_MS", 3_600_000)
    monkeypatch.setattr(upkeep, "QUIET_MS", 3_600_000)


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
def adder(path) -> Iterator[Queue]:
    queue = Queue(lambda: SqliteStore(path), url="adder")
    queue.add("first")
    yield queue
    queue.close()


def test_what_is_not_for_those_who_wait_costs_them_no_write(path, adder):
    """Jobs of another task come and go; the waiting claim looks beside the writers."""
    waiter = Waiter(path, "rare")
    writes = waiter.store.writes

    for n in range(5):
        adder.add("common", n)
        waiter.looks()

    # Its upkeep may have come round once meanwhile.
    assert waiter.store.writes <= writes + 1
    wanted = adder.add("rare")
    assert waiter.ends() == [wanted.id]
    waiter.close()


def test_a_paused_task_wakes_nobody_and_a_resumed_one_does(path, adder):
    """Ready is not enough."""
    adder.pause("rare")
    waiter = Waiter(path, "rare")
    writes = waiter.store.writes

    job = adder.add("rare")
    waiter.looks()

    assert waiter.store.writes <= writes + 1
    adder.resume("rare")
    assert waiter.ends() == [job.id]
    waiter.close()


@pytest.mark.parametrize("how", ["delay", "schedule", "own transaction"])
def test_what_comes_due_by_itself_is_found_in_time(path, adder, how):
    """An empty look remembers the next moment; a job of a caller's own transaction is due at once."""
    waiter = Waiter(path, "rare")

    if how == "delay":
        adder.add("rare", delay="300ms")
    elif how == "schedule":
        adder.schedule("often", "rare", every="1s")
    else:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        adder.add("rare", connection=connection)
        connection.execute("COMMIT")
        connection.close()

    assert len(waiter.ends()) == 1
    waiter.close()
