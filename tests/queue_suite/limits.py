"""Limits on how many run at once, limits that change, and all the names that a domain may have."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.errors import LeaseLost
from holdfast.core.job import Place
from holdfast.core.limits import Limit
from holdfast.engine.batch.limiting import list_domains
from holdfast.queue.queue import ClaimedJob, Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import MINUTE_MS, nothing, place_of, state_of, take, take_all, unchanged, upkeep


def _filled(queue: Queue, count: int, domain: Any = "api", **options: Any) -> list[int]:
    return [job.id for job in queue.add_many([("work", n) for n in range(count)], domain=domain, **options)]


def _running(queue: Queue, domain: Any = "api") -> int:
    return len(queue.jobs(state="RUNNING", domain=domain, limit=1_000))


# ── running at once ──────────────────────────────────────────────────────────────────────────────


def test_no_more_run_at_once_than_are_allowed(make_queue: MakeQueue) -> None:
    """Whoever asks, one by one or for many."""
    first, second = make_queue(), make_queue()
    first.limit("api", concurrency=3)
    _filled(first, 10)

    started = [*second.claim(limit=2, renew=False), *take_all(first), *take_all(second)]

    assert len(started) == _running(first) == 3


GIVES_BACK: dict[str, Callable[[Queue, ClaimedJob, MovedClock], Any]] = {
    "done": lambda _queue, job, _clock: job.done(),
    "fail": lambda _queue, job, _clock: job.fail(),
    "retry": lambda _queue, job, _clock: job.retry("1d"),
    "release": lambda _queue, job, _clock: job.release(),
    "cancel": lambda queue, job, _clock: queue.cancel(job.id, force=True),
    "requeue": lambda queue, job, _clock: queue.requeue(job.id, run_at="2026-12-01"),
    "lapse": lambda _queue, _job, clock: clock.advance(MINUTE_MS),
    "children": lambda _queue, job, _clock: (job.add("child"), job.done()),
}


@pytest.mark.parametrize("way", GIVES_BACK)
def test_whoever_ends_lets_the_next_one_start(queue: Queue, clock: MovedClock, way: str) -> None:
    """By whichever way: at once, exactly one."""
    queue.limit("api", concurrency=2)
    _filled(queue, 5)
    kept = take(queue, "work", lease="1d")
    job = take(queue, "work")
    assert nothing(queue, "work")

    GIVES_BACK[way](queue, job, clock)

    started = take_all(queue, tasks=["work"])
    assert (len(started), _running(queue)) == (1, 2)
    assert kept.id not in {job.id for job in started}


def test_a_deleted_runqueued_job_lets_the_next_one_start(queue: Queue) -> None:
    """It was running."""
    queue.limit("api", concurrency=1)
    _filled(queue, 2, retry_after="1h")
    job = take(queue)
    assert nothing(queue)

    queue.delete(job.id)

    assert take(queue).id != job.id


def test_a_lapsed_job_is_not_taken_back_once_its_permit_is_gone(queue: Queue, clock: MovedClock) -> None:
    """Its finish still stands; only to run on it would need a permit that another has."""
    queue.limit("api", concurrency=1)
    _filled(queue, 1, priority=0)
    late = take(queue)
    _filled(queue, 1, priority=1_000)
    clock.advance(MINUTE_MS)
    other = take(queue)
    assert other.id != late.id

    with unchanged(queue), pytest.raises(LeaseLost, match=f"{late.id}.*its domain full"):
        late.extend()
    assert _running(queue) == 1
    other.done()
    assert take(queue).id == late.id


def test_rate_and_concurrency_hold_together(queue: Queue, clock: MovedClock) -> None:
    """A start needs both."""
    queue.limit("api", rate=10, concurrency=2)
    _filled(queue, 5)

    first = take(queue)
    assert nothing(queue)
    clock.advance(100)
    take(queue)
    clock.advance(100)
    assert nothing(queue)
    first.done()
    assert len(take_all(queue)) == 1
    assert _running(queue) == 2


def test_a_domain_belongs_to_a_tenant(make_queue: MakeQueue) -> None:
    """The same name elsewhere is another domain."""
    acme, zeta = make_queue(tenant="acme"), make_queue(tenant="zeta")
    acme.limit("api", concurrency=1)
    _filled(acme, 3)
    _filled(zeta, 3)

    assert (len(take_all(acme)), len(take_all(zeta))) == (1, 3)
    assert (list(acme.limits()), list(zeta.limits())) == ([b"api"], [])


# ── tasks in a domain ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("way", ["paused", "unknown"])
def test_a_task_that_cannot_run_does_not_hold_up_the_others_of_its_domain(
    queue: Queue, clock: MovedClock, way: str
) -> None:
    """Although its jobs stand first, and there is but one permit."""
    queue.limit("api", rate=10, concurrency=1)
    queue.add_many([("stuck", n) for n in range(100)], domain="api", priority=1_000)
    ids = _filled(queue, 2)
    if way == "paused":
        queue.pause("stuck")
    tasks = ["work"] if way == "unknown" else None

    job = queue.next(tasks, renew=False)
    assert job is not None
    assert job.id == ids[0]
    job.done()
    clock.advance(100)

    again = queue.next(tasks, renew=False)
    assert again is not None
    assert again.id == ids[1]


def test_a_claim_walks_past_a_domain_that_is_spent(queue: Queue) -> None:
    """In one go, however many of its tasks stand first."""
    queue.limit("api", concurrency=1)
    queue.add_many([(f"task-{n}", n) for n in range(60)], domain="api", priority=1_000)
    other = queue.add("other", priority=0)

    started = queue.claim(limit=2, renew=False)

    assert [job.id for job in started][1:] == [other.id]
    assert _running(queue) == 1


# ── limits that change ───────────────────────────────────────────────────────────────────────────


def test_a_raised_limit_lets_more_start(queue: Queue) -> None:
    """At once."""
    queue.limit("api", concurrency=1)
    _filled(queue, 10)
    take(queue)

    queue.limit("api", concurrency=4)

    assert len(take_all(queue)) == 3


def test_a_lowered_limit_holds_at_once(queue: Queue) -> None:
    """Those that run may go on, and nobody starts before enough of them have ended."""
    queue.limit("api", concurrency=4)
    _filled(queue, 10)
    running = take_all(queue)

    queue.limit("api", concurrency=2)

    for job in running[:2]:
        assert nothing(queue)
        job.done()
    assert nothing(queue)
    running[2].done()
    assert len(take_all(queue)) == 1


def test_a_lowered_rate_holds_at_once(queue: Queue, clock: MovedClock) -> None:
    """Also for what stood ready when it was higher."""
    queue.limit("api", rate=100, burst=50)
    _filled(queue, 50)
    queue.limit("api", rate=1)

    assert len(take_all(queue)) == 1
    clock.advance(999)
    assert nothing(queue)


def test_a_lifted_limit_lets_all_go(queue: Queue) -> None:
    """However many were held."""
    queue.limit("api", concurrency=0)
    _filled(queue, 700)
    assert nothing(queue)

    queue.limit("api")

    assert queue.limits() == {}
    assert len(take_all(queue)) == 700


def test_a_limit_holds_for_what_was_there_before_it(queue: Queue) -> None:
    """Those that run count, those that wait are held."""
    _filled(queue, 10)
    take(queue)

    queue.limit("api", concurrency=3)

    assert len(take_all(queue)) == 2


def test_an_exact_name_goes_before_patterns_and_the_longest_pattern_before_others(queue: Queue) -> None:
    """Each looked up when it is needed."""
    queue.limit("*", concurrency=1)
    queue.limit("host-*", concurrency=2)
    queue.limit("host-7", concurrency=3)
    for domain in ("other", "host-1", "host-7"):
        _filled(queue, 5, domain)

    started = take_all(queue)

    counts = {name: sum(job.record.domain == name for job in started) for name in queue.limits()}
    assert len(started) == 1 + 2 + 3
    assert (counts[b"host-7"], _running(queue, "host-1"), _running(queue, "other")) == (3, 2, 1)
    assert queue.limits() == {
        b"*": Limit(concurrency=1),
        b"host-*": Limit(concurrency=2),
        b"host-7": Limit(concurrency=3),
    }


def test_a_pattern_may_change_while_jobs_wait_in_its_domains(queue: Queue) -> None:
    """Raised, lifted in favour of a shorter one, and lifted altogether."""
    queue.limit("h*", concurrency=2)
    queue.limit("host-*", concurrency=1)
    for n in range(20):
        _filled(queue, 5, f"host-{n}")
    assert len(take_all(queue)) == 20

    queue.limit("host-*", concurrency=3)
    assert len(take_all(queue)) == 40
    queue.limit("host-*")
    assert take_all(queue) == []
    queue.limit("h*")

    assert len(take_all(queue)) == 40


def test_a_pattern_of_many_domains_changes_for_all_of_them(queue: Queue, small_bites: None) -> None:
    """More than one transaction takes: the rest follows by itself."""
    queue.limit("host-*", concurrency=1)
    queue.add_many([queue.call("work", n, domain=f"host-{n % 60}") for n in range(120)])
    assert len(take_all(queue)) == 60

    queue.limit("host-*", concurrency=2)

    assert len(take_all(queue)) == 60


def test_a_pattern_matches_as_shells_do(queue: Queue) -> None:
    """With *, ? and sets, by bytes and by case."""
    queue.limit("host-[ab]?", concurrency=0)
    for domain in ("host-a1", "host-b\xe9", "host-c1", "HOST-a1", "host-a"):
        queue.add("work", domain=domain.encode("latin-1"))

    assert {job.record.domain for job in take_all(queue)} == {b"host-c1", b"HOST-a1", b"host-a"}


def test_a_name_that_looks_like_a_pattern_has_its_limit(queue: Queue) -> None:
    """An address in brackets is not a set of characters to the one who wrote it."""
    queue.limit("http://[2001:db8::1]/", concurrency=1)
    queue.add_many([("work", n) for n in range(3)], domain="http://[2001:db8::1]/")

    assert len(take_all(queue)) == 1


# ── names and numbers ────────────────────────────────────────────────────────────────────────────

ODD: list[Any] = [
    "a/b",
    "a",
    "a/",
    "/",
    b"\x00",
    b"a\x00b",
    b"\xff\xfe",
    "ü",
    " ",
    "x" * 1_024,
    "%",
    "'",
    '"',
    "\n",
]


def test_a_domain_may_have_any_name(queue: Queue) -> None:
    """Slashes, zero bytes, a kilobyte: none is taken for another."""
    for name in ODD:
        queue.limit(name, concurrency=1)
        _filled(queue, 2, name)

    started = take_all(queue)

    assert len(started) == len({job.record.domain for job in started}) == len(ODD)
    for job in started:
        assert len(queue.jobs(domain=job.record.domain, state="RUNNING")) == 1
        job.done()
    assert len(take_all(queue)) == len(ODD)


def _many_domains(queue: Queue, count: int) -> None:
    queue.limit("host-*", concurrency=1)
    calls = [queue.call("work", n, domain=f"host-{n % count}") for n in range(2 * count)]
    queue.add_many(calls)

    started = take_all(queue)

    assert len(started) == len({job.record.domain for job in started}) == count
    assert all(job.data < count for job in started)


def test_hundreds_of_domains_have_a_limit_each(queue: Queue) -> None:
    """Two jobs in each of them: the first of each runs, and no other."""
    _many_domains(queue, 400)


@pytest.mark.proof
def test_a_hundred_thousand_domains_have_a_limit_each(queue: Queue) -> None:
    """The same, 250 times as many."""
    _many_domains(queue, 100_000)
    # They are too many to look at when the test ends, as is done after all others.
    queue.close()


def test_a_domain_without_a_limit_costs_nothing(queue: Queue) -> None:
    """Nothing is kept of it, and all its jobs may run."""
    _filled(queue, 100)

    assert len(take_all(queue)) == 100
    assert queue.connection.engine.read(lambda txn: list_domains(txn, "", after=b"", limit=10)) == []


def test_what_waits_behind_its_domain_can_be_changed(queue: Queue, clock: MovedClock) -> None:
    """Cancelled, deleted, put off and expired: the rest keeps its turn."""
    queue.limit("api", concurrency=1)
    first, cancelled, deleted, later, last = _filled(queue, 5)
    expiring = _filled(queue, 1, expires="30s")[0]
    job = take(queue)
    assert place_of(queue, cancelled) == Place.HELD

    queue.cancel(cancelled)
    queue.delete(deleted)
    queue.update(later, run_at="2026-11-16")
    clock.advance(30_000)
    upkeep(queue)
    job.done()

    assert (job.id, take(queue).id) == (first, last)
    assert (place_of(queue, later), state_of(queue, expiring)) == (Place.SCHEDULED, "FAILED")
