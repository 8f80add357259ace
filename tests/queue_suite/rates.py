"""Rates: how many jobs of a domain start in a time, told by `started_at` and by nothing else."""

from itertools import pairwise
from typing import Any

import pytest

from holdfast.core.job import Place
from holdfast.engine.batch.limiting import list_domains
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .tools import HOUR_MS, nothing, place_of, take, take_all, upkeep

# Not a divisor of any interval used here, so that starts are tried at all sorts of moments.
STEP_MS = 13


def starts(queue: Queue, clock: MovedClock, *, for_ms: int, answer: bool = True) -> list[int]:
    """When jobs start, if for so long somebody asks for them all the time."""
    found: list[int] = []
    end_ms = clock() + for_ms
    while clock() < end_ms:
        for job in queue.claim(limit=100, renew=False, lease="1d"):
            found.append(job.record.started_at)
            if answer:
                job.done()
        clock.advance(STEP_MS)
    return found


def gaps(moments: list[int]) -> list[int]:
    """The time from each start to the next."""
    return [late - early for early, late in pairwise(moments)]


def _filled(queue: Queue, count: int, domain: Any = "api", **options: Any) -> None:
    queue.add_many([("work", n) for n in range(count)], domain=domain, **options)


# ── never two inside one interval ────────────────────────────────────────────────────────────────


def test_ten_a_second_are_never_two_inside_a_tenth(queue: Queue, clock: MovedClock) -> None:
    """From the first use on; and not much less than ten, if somebody asks all the time."""
    queue.limit("api", rate=10)
    _filled(queue, 20)

    moments = starts(queue, clock, for_ms=1_000)

    assert moments[0] == START_MS
    assert min(gaps(moments)) >= 100
    assert 8 <= len(moments) <= 10


def test_a_claim_of_many_starts_what_the_rate_allows(queue: Queue, clock: MovedClock) -> None:
    """Two claims at the same moment too."""
    queue.limit("api", rate="10/s")
    _filled(queue, 50)

    assert (len(take_all(queue)), len(take_all(queue))) == (1, 0)
    clock.advance(99)
    assert take_all(queue) == []
    clock.advance(1)
    assert len(take_all(queue)) == 1


@pytest.mark.parametrize("idle_ms", [100, 150, 1_000, HOUR_MS])
def test_after_an_idle_time_there_is_no_more_than_one(queue: Queue, clock: MovedClock, idle_ms: int) -> None:
    """What was not used is lost."""
    queue.limit("api", rate=10)
    _filled(queue, 1)
    take(queue).done()
    clock.advance(idle_ms)
    upkeep(queue)
    _filled(queue, 20)

    moments = starts(queue, clock, for_ms=500)

    assert min(gaps(moments)) >= 100
    assert moments[0] == START_MS + idle_ms


def test_a_rate_survives_a_restart(make_queue: MakeQueue, clock: MovedClock) -> None:
    """The last start is in the store."""
    for _ in range(3):
        queue = make_queue()
        queue.limit("api", rate=10)
        _filled(queue, 5)
        clock.advance(50)
        take_all(queue)
        queue.close()

    started = sorted(job.started_at for job in make_queue().jobs(state="RUNNING"))

    assert started == [START_MS + 50, START_MS + 150]


def test_a_rate_holds_across_queues(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Two processes that ask in turn get together what one would."""
    first, second = make_queue(), make_queue()
    first.limit("api", rate=10)
    _filled(first, 30)

    moments = []
    for turn in range(100):
        queue = (first, second)[turn % 2]
        moments += [job.record.started_at for job in queue.claim(limit=10, renew=False)]
        clock.advance(7)

    assert min(gaps(moments)) >= 100
    assert len(moments) >= 6


def test_an_empty_domain_remembers_its_last_start(queue: Queue, clock: MovedClock) -> None:
    """Until that no longer matters; then nothing is kept of it."""
    queue.limit("api", rate=1)
    _filled(queue, 1)
    take(queue).done()
    clock.advance(500)
    upkeep(queue)
    _filled(queue, 1)

    assert nothing(queue)
    clock.advance(500)
    take(queue).done()
    clock.advance(1_000)
    upkeep(queue)
    kept = queue.connection.engine.read(lambda txn: list_domains(txn, "", after=b"", limit=10))
    assert kept == []


@pytest.mark.parametrize(
    ("rate", "apart_ms"),
    [("100/m", 600), ("3/s", 334), ("90/h", 40_000), (0.5, 2_000), (1 / 86_400, 86_400_000)],
)
def test_a_rate_is_never_rounded_up(queue: Queue, clock: MovedClock, rate: Any, apart_ms: int) -> None:
    """To the millisecond, by which the clock goes."""
    queue.limit("api", rate=rate)
    _filled(queue, 2)
    take(queue)

    clock.advance(apart_ms - 1)
    assert nothing(queue, "work")
    clock.advance(1)
    assert take(queue).record.started_at == START_MS + apart_ms


def test_a_high_rate_lets_several_start_in_a_millisecond(queue: Queue, clock: MovedClock) -> None:
    """As many as it has room for, and never more in a longer time."""
    queue.limit("api", rate=5_000)
    _filled(queue, 100)
    counts = []
    for _ in range(5):
        counts.append(len(queue.claim(limit=100, renew=False)))
        clock.advance(1)

    assert counts == [5] * 5


# ── bursts ───────────────────────────────────────────────────────────────────────────────────────


def test_a_burst_is_spent_at_once_and_comes_back_one_by_one(queue: Queue, clock: MovedClock) -> None:
    """Five, then one each tenth of a second, and after a while five again, never six."""
    queue.limit("api", rate=10, burst=5)
    _filled(queue, 100)

    assert len(take_all(queue)) == 5
    moments = starts(queue, clock, for_ms=500)
    assert 3 <= len(moments) <= 5
    assert min(gaps(moments)) >= 100 - STEP_MS
    clock.advance(HOUR_MS)
    assert len(take_all(queue)) == 5


def test_in_any_time_no_more_start_than_burst_and_rate_allow(queue: Queue, clock: MovedClock) -> None:
    """Within t seconds, burst + rate · t."""
    queue.limit("api", rate=20, burst=3)
    _filled(queue, 100)

    moments = starts(queue, clock, for_ms=700)

    for at, early in enumerate(moments):
        for count, late in enumerate(moments[at:], start=1):
            assert count <= 3 + (late - early) * 20 / 1_000


# ── who is first ─────────────────────────────────────────────────────────────────────────────────


def test_the_highest_priority_of_a_domain_starts_first_also_when_it_came_last(
    queue: Queue, clock: MovedClock
) -> None:
    """A job of priority 1000 added behind one of priority 0 changes places with it."""
    queue.limit("api", rate=10)
    low = queue.add("work", domain="api", priority=0)
    assert place_of(queue, low) == Place.READY

    high = queue.add("work", domain="api", priority=1_000)

    assert [take(queue).id, place_of(queue, low)] == [high.id, Place.HELD]
    clock.advance(100)
    assert take(queue).id == low.id


def test_a_held_job_moves_up_when_its_priority_is_raised(queue: Queue, clock: MovedClock) -> None:
    """And down when it is lowered."""
    queue.limit("api", rate=10)
    first, second, third = (queue.add("work", domain="api") for _ in range(3))

    queue.update(third, priority=900)
    queue.update(first, priority=100)

    order = []
    for _ in range(3):
        order.append(take(queue).id)
        clock.advance(100)
    assert order == [third.id, second.id, first.id]


def test_a_slow_domain_holds_up_nobody_else(queue: Queue) -> None:
    """However many of its jobs wait, and however important they are."""
    queue.limit("slow", rate="1/h")
    _filled(queue, 200, "slow", priority=1_000)
    take(queue)
    other = queue.add("work", domain="fast", priority=0)

    assert take(queue).id == other.id


# ── clocks ───────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_that_was_set_back_does_not_put_a_domain_to_sleep(queue: Queue, clock: MovedClock) -> None:
    """It waits one interval at most, not until the old moment comes round again."""
    queue.limit("api", rate=10)
    _filled(queue, 3)
    take(queue)
    clock.advance(-HOUR_MS)

    moments = starts(queue, clock, for_ms=400)

    assert len(moments) == 2
    assert min(gaps(moments)) >= 100
