"""A clock that is set ahead: leases keep the time that they had left, delays go by the clock."""

import pytest

from holdfast.core import commands as c
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import SystemClock
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite.store import SqliteStore

HOUR_MS = 3_600_000


class Hands:
    """The two clocks of a machine, moved by hand."""

    def __init__(self) -> None:
        self.wall_ms, self.monotonic_ms = 1_790_000_000_000, 5_000

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.wall_ms += ms
        self.monotonic_ms += ms

    def set_ahead(self, ms: int) -> None:
        """Set the wall clock."""
        self.wall_ms += ms

    def clock(self) -> SystemClock:
        """A clock that shows them."""
        return SystemClock(lambda: self.wall_ms * 1_000_000, lambda: self.monotonic_ms * 1_000_000)


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture(params=["memory", "sqlite"])
def queue(request, tmp_path, hands):
    def store():
        clock = hands.clock()
        if request.param == "memory":
            return MemoryStore(clock)
        return SqliteStore(tmp_path / "jobs.db", clock=clock)

    queue = Queue(store, url="the store under test")
    yield queue
    queue.close()


def upkeep(queue):
    queue.connection.ask(c.Upkeep())


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, 50_000, 8_000])
def test_a_lease_keeps_the_time_that_it_had_left(queue, hands, ahead_ms):
    """Its holder answers in time, though by the clock its lease was long over."""
    added = queue.add("work")
    job = queue.next(["work"], lease=10, renew=False)
    hands.pass_time(4_000)

    hands.set_ahead(ahead_ms)
    upkeep(queue)
    hands.pass_time(5_000)
    upkeep(queue)

    assert (added.get().state, added.get().losses) == ("RUNNING", 0)
    job.done()
    assert added.get().state == "FINISHED"


def test_a_lease_that_nobody_renews_ends_all_the_same(queue, hands):
    """A default lease later than without the jump."""
    added = queue.add("work")
    queue.next(["work"], lease=10, renew=False)
    upkeep(queue)

    hands.set_ahead(HOUR_MS)
    upkeep(queue)
    hands.pass_time(9_000)
    upkeep(queue)
    assert added.get().state == "RUNNING"
    for _ in range(7):
        hands.pass_time(10_000)
        upkeep(queue)

    assert (added.get().state, added.get().losses) == ("QUEUED", 1)


def test_a_lease_given_after_the_jump_is_like_any_other(queue, hands):
    added = queue.add("work")
    upkeep(queue)
    hands.set_ahead(HOUR_MS)
    upkeep(queue)
    hands.pass_time(100_000)
    queue.next(["work"], lease=10, renew=False)

    hands.pass_time(11_000)
    upkeep(queue)

    assert (added.get().state, added.get().losses) == ("QUEUED", 1)


def test_what_is_delayed_comes_when_the_clock_shows_it(queue, hands):
    """A delay is a moment of the day."""
    queue.add("work", delay="1h")
    upkeep(queue)

    hands.set_ahead(HOUR_MS)

    assert queue.next(["work"]) is not None


def test_a_clock_that_is_slewed_has_not_jumped(hands):
    clock = hands.clock()
    for _ in range(100):
        hands.pass_time(60_000)
        hands.set_ahead(30)
        clock()

    assert clock.jump is None
