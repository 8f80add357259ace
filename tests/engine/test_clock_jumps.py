"""A clock that is set ahead: leases keep the time that they had left, delays go by the clock."""

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import NotFound
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


DAY_MS = 24 * HOUR_MS


@pytest.fixture
def archive(queue, hands):
    """Five jobs that ended at intervals of four hours, the last one just now."""
    ids = [end_one(queue)]
    for _ in range(4):
        hands.pass_time(4 * HOUR_MS)
        ids.append(end_one(queue))
        upkeep(queue)
    return ids


def end_one(queue):
    """Add a job and finish it."""
    added = queue.add("work")
    queue.next(["work"]).done()
    return added.id


def archived(queue, ids):
    """Those of these jobs that are still there, after upkeep."""
    upkeep(queue)
    return [job_id for job_id in ids if _is_there(queue, job_id)]


def _is_there(queue, job_id):
    try:
        return queue.get(job_id).id == job_id
    except NotFound:
        return False


@pytest.mark.parametrize("ahead_ms", [DAY_MS, 30 * DAY_MS])
def test_a_jump_of_the_clock_does_not_purge_the_archive(queue, hands, archive, ahead_ms):
    """Jobs leave it in their turn, and new ones after their retention."""
    hands.set_ahead(ahead_ms)

    assert archived(queue, archive) == archive
    new = end_one(queue)
    assert archived(queue, [*archive, new]) == [*archive, new]
    hands.pass_time(9 * HOUR_MS)
    assert archived(queue, [*archive, new]) == [*archive[3:], new]
    hands.pass_time(15 * HOUR_MS - 1)
    assert archived(queue, [*archive, new]) == [new]
    hands.pass_time(HOUR_MS)
    assert archived(queue, [*archive, new]) == []


def test_a_clock_that_was_set_ahead_by_mistake_costs_nothing(queue, hands, archive):
    """Set right again, the archive has all of its jobs, for as long as ever."""
    hands.set_ahead(DAY_MS)
    assert archived(queue, archive) == archive
    hands.set_ahead(-DAY_MS)

    hands.pass_time(9 * HOUR_MS)

    assert archived(queue, archive) == archive[1:]


def test_jobs_that_are_overdue_once_more_leave_the_archive(queue, hands, archive):
    """Where upkeep runs once a day, the archive does not grow for ever."""
    for _ in range(4):
        hands.pass_time(DAY_MS)
        upkeep(queue)

    assert archived(queue, archive) == []


def test_a_shorter_retention_purges_the_archive_at_once(queue, hands, archive):
    """The jobs are old by the user's word, not by the clock's."""
    queue.set_retention("6h")

    assert archived(queue, archive) == archive[3:]
