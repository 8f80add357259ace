"""A move that is killed at any transaction, and started again."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.core.moving import Standing
from holdfast.engine.migrate.move import StoreMove
from holdfast.queue.queue import Queue
from holdfast.store.contract import AnyStore, Changes, Store, Txn
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import MovedClock
from tests.doubles import Passing, SharedMemory
from tests.moving.filled import Two, check_same, fill, make_queue, seen, standing_of
from tests.queue_suite.fixtures import START_MS

T = TypeVar("T")


class Killed(BaseException):
    """What a process meets that is killed."""


class Deadly(Passing):
    """A store that lets a process live for so many transactions; the last one is committed, or not."""

    def __init__(self, store: Store, lives: list[int], *, commits: bool) -> None:
        super().__init__(store)
        self.lives, self.commits = lives, commits

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Passed on, as long as there is life."""
        self.lives[0] -= 1
        if self.lives[0] < 0:
            raise Killed
        if self.lives[0] == 0:
            if self.commits:
                self.store.run(fn)
            raise Killed
        return self.store.run(fn)


def deadly(store: AnyStore, lives: list[int], *, commits: bool) -> AnyStore:
    """The same of each shard, where there are several: a kill may come between any two of them."""
    if not isinstance(store, ShardedStore):
        return Deadly(store.shards[0], lives, commits=commits)

    def open_shard(at: int) -> Opener:
        return Opener(f"{at}", lambda: Deadly(store.shards[at], lives, commits=commits))

    return ShardedStore([open_shard(at) for at in range(len(store.shards))])


def in_memory(clock: MovedClock, count: int) -> Callable[[], AnyStore]:
    """So many stores in memory as one, or one alone."""
    memories = [SharedMemory(clock) for _ in range(count)]
    if count == 1:
        return memories[0].open
    return lambda: ShardedStore([Opener("memory", memory.open) for memory in memories])


@pytest.fixture(params=[(1, 1), (1, 4), (4, 1), (4, 2)], ids=str)
def memories(request: pytest.FixtureRequest) -> Two:
    """Stores in memory, of so many shards."""
    clock = MovedClock(START_MS)
    source, target = (in_memory(clock, count) for count in request.param)
    return Two(source, target, clock)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("commits", [False, True], ids=["undone", "committed"])
def test_killed_after_any_transaction_a_second_run_goes_on(memories, opened, commits):
    """At every one of them: the last was committed, or it was not."""
    fill(opened(make_queue(memories.open_source)))
    source, target = opened(memories.open_source()), opened(memories.open_target())
    expected = seen(source)

    kills = 0
    while True:
        kills += 1
        # Each run lives a little longer than the one before, and begins where that one was killed.
        lives = [kills]
        try:
            stores = [deadly(store, lives, commits=commits) for store in (source, target)]
            memories.move(*stores, batch=10).run()
            break
        except Killed:
            continue

    assert kills > 5
    assert seen(source)["jobs"] == expected["jobs"]
    check_same(target, source)
    assert (standing_of(source), standing_of(target)) == (Standing.MOVED, Standing.OPEN)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_killed_at_each_transaction_of_a_fresh_move(tmp_path):
    """One kill each, at the first, the second, the third transaction and so on, then a second run."""
    number = 1
    while _is_killed(tmp_path / f"{number}", number):
        number += 1

    assert number > 10


def _is_killed(folder: Path, number: int) -> bool:
    """Move a store by a process that is killed at a transaction, and again; whether there was such a one."""
    folder.mkdir()
    clock = MovedClock(START_MS)
    source, target = (SqliteStore(folder / name, clock=clock) for name in ("a.db", "b.db"))
    queue = Queue(lambda: source, url="x")
    fill(queue)
    lives, commits = [number], number % 2 == 0
    deadly = [Deadly(store, lives, commits=commits) for store in (source, target)]
    try:
        StoreMove(*deadly, here="here", there="there", batch=20).run()
        return False
    except Killed:
        StoreMove(source, target, here="here", there="there").run()
        return True
    finally:
        check_same(target, source)
        queue.close()
        target.close()
