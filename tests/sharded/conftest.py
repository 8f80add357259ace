"""Shards that a test can take away and bring back."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from holdfast.core.errors import Unavailable
from holdfast.queue.queue import Queue
from holdfast.store.sharded import shard
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.testing.clock import MovedClock
from tests.doubles import Passing, SharedMemory
from tests.queue_suite.fixtures import START_MS

SHARDS = 4


class Breakable(Passing):
    """A store that cannot be reached while its plug is pulled."""

    def __init__(self, store, rack, number):
        super().__init__(store)
        self._rack, self._number = rack, number

    def _meet(self):
        if self._number in self._rack.pulled:
            raise Unavailable("no route to its host")

    def run(self, fn):
        """As the store does, if it can be reached, before the batch and when it is to be committed."""
        self._meet()

        def guarded(txn):
            result = fn(txn)
            self._meet()
            if self._number in self._rack.fail_commits:
                raise Unavailable("no space on its disk")
            return result

        return self.store.run(guarded)

    def read(self, fn, *, hint=False):
        """As the store does, if it can be reached."""
        self._meet()
        return self.store.read(fn, hint=hint)

    def now_ms(self):
        """As the store does, if it can be reached."""
        self._meet()
        return self.store.now_ms()

    def appear(self, name):
        """As the store does, if it can be reached."""
        self._meet()
        return self.store.appear(name)


class Rack:
    """Four stores in memory, each with a plug."""

    def __init__(self, clock):
        self.memories = [SharedMemory(clock) for _ in range(SHARDS)]
        self.pulled: set[int] = set()
        # Those that can be reached, but commit nothing.
        self.fail_commits: set[int] = set()

    def open(self):
        """All of them as one store."""
        openers = [Opener(f"memory {at}", partial(self._open, at)) for at in range(SHARDS)]
        return ShardedStore(openers)

    def _open(self, at):
        return Breakable(self.memories[at].open(), self, at)


@pytest.fixture
def clock():
    """A clock that is moved."""
    return MovedClock(START_MS)


@pytest.fixture
def rack(clock, monkeypatch):
    """Four stores, any of which may go and come back; they are tried very often."""
    monkeypatch.setattr(shard, "TRIED_EVERY_S", 0.01)
    return Rack(clock)


@pytest.fixture
def make_queue(rack) -> Iterator[Callable[[], Queue]]:
    """Queues on the rack, each like a process of its own."""
    made: list[Queue] = []

    def make() -> Queue:
        made.append(Queue(rack.open, url="the rack"))
        return made[-1]

    yield make
    rack.pulled.clear()
    for queue in made:
        queue.close()


@pytest.fixture
def queue(make_queue):
    """A queue on the rack."""
    return make_queue()
