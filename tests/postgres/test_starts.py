"""Walks past the dead: while they are slow, what comes first is still claimed first, or a little later."""

import pytest

import holdfast
from holdfast.core.job import Place
from holdfast.store.common.clock import monotonic_s
from holdfast.store.postgres import starts as postgres_starts
from holdfast.store.postgres.starts import Starts
from tests.queue_suite.tools import take


@pytest.fixture
def slow(monkeypatch):
    """Every walk is taken for a slow one, and the front is not looked at until `pass_time`."""
    monkeypatch.setattr(postgres_starts, "SLOW_S", 0.0)
    monkeypatch.setattr(postgres_starts, "PART", 1e9)


@pytest.fixture
def pass_time(monkeypatch):
    """Let the next walks begin at the front."""
    return lambda: monkeypatch.setattr(postgres_starts, "monotonic_s", lambda: monotonic_s() + 1e12)


def test_a_walk_begins_where_the_last_one_ended_once_several_were_slow(slow, pass_time):
    """And at the front again after a while."""
    starts = Starts()
    for at in (10, 20):
        assert starts.of("pair") == 0
        starts.ended("pair", 0, 0.001, at)
    starts.ended("pair", 0, 0.001, 30)
    assert starts.of("pair") == 30

    starts.ended("pair", 30, 5.0, 40)
    assert starts.of("pair") == 40
    starts.put("pair", 25)
    assert starts.of("pair") == 25
    pass_time()
    assert starts.of("pair") == 0


def test_a_quick_walk_ends_it():
    """The dead are gone."""
    starts = Starts()
    for _ in range(postgres_starts.SLOW_WALKS):
        starts.ended("pair", 0, postgres_starts.SLOW_S, 10)
    assert starts.of("pair") == 10
    starts.ended("pair", 0, 0.001, 10)

    assert starts.of("pair") == 0
    assert not starts


def test_what_this_process_puts_ahead_is_claimed_first(slow, queue):
    """By priority, by time, and after a retry."""
    queue.add_many([("work", n) for n in range(10)])
    assert [take(queue, "work").data for _ in range(5)] == [0, 1, 2, 3, 4]
    starts = queue.connection.engine.store.starts
    assert starts.of(("", "work")) > 0

    queue.add("work", "urgent", priority=900)
    late = take(queue, "work")
    assert late.data == "urgent"
    late.release()
    assert take(queue, "work").data == "urgent"
    assert take(queue, "work").data == 5


def test_what_becomes_due_is_found(slow, queue):
    """Leases that end, and jobs whose time has come, although walks begin past the dead."""
    for n in range(6):
        queue.add("work", n)
        take(queue, "work").done()
    assert queue.connection.engine.store.starts.of(Place.RUNNING) > 0

    queue.add("soon", delay=0.3)
    queue.add("work", "lost")
    job = queue.next(["work"], lease=0.5, renew=False)
    assert job is not None

    assert queue.next(["soon"], wait=60) is not None
    again = queue.next(["work"], wait=60)
    assert again is not None
    assert again.data == "lost"


def test_what_another_process_puts_ahead_is_found_when_the_front_is_looked_at(
    slow, pass_time, queue, postgres_url
):
    """That is what the next walk from the front is for."""
    queue.add_many([("work", n) for n in range(10)])
    for _ in range(5):
        take(queue, "work")
    with holdfast.connect(postgres_url) as other:
        other.add("work", "urgent", priority=900)
    assert take(queue, "work").data == 5
    pass_time()

    assert take(queue, "work").data == "urgent"
