"""One who waits for jobs and is woken looks as his batch begins; what he gets is what a claim gets."""

import random

import pytest

from holdfast.core import commands as c
from holdfast.engine.engine import Engine
from holdfast.store.redis.connection import Link
from tests.test_model import on_redis, run

CLAIM = c.Claim(tenant="", limit=10, lease_ms=60_000)


@pytest.fixture
def engine(store):
    """An engine that has a number of its own, as one who waits has."""
    engine = Engine(store, dice=random.random)
    engine.execute([c.Add(jobs=(c.NewJob(task="first"),)), CLAIM])
    return engine


@pytest.fixture
def trips(monkeypatch):
    """How often the server is asked, and for what first."""
    asked: list[bytes] = []
    many = Link.many

    def spy(self, commands):
        asked.append(commands[0][0])
        return many(self, commands)

    monkeypatch.setattr(Link, "many", spy)
    return asked


def seek(engine, command=CLAIM):
    """What one who seeks gets."""
    seeker = engine.seeker(command)
    assert seeker is not None
    (found,) = engine.execute_by([command], seeker).replies
    return [(one.job.task, one.data) for one in found]


def test_what_is_there_comes_by_three_questions(engine, trips):
    """What there is; the jobs; the commit."""
    engine.execute([c.Add(jobs=(c.NewJob(task="work", data="1"), c.NewJob(task="work", data="2")))])
    trips.clear()

    assert seek(engine) == [("work", "1"), ("work", "2")]
    assert trips == [b"GET", b"EVALSHA", b"EVALSHA"]


def test_where_there_is_nothing_one_is_enough(engine, trips):
    engine.execute([c.Add(jobs=(c.NewJob(task="other"),))])
    trips.clear()

    assert seek(engine, c.Claim(tenant="", tasks=("work",), lease_ms=1_000)) == []
    assert trips == [b"GET"]


def test_random_histories_are_what_they_are_by_the_long_way(redis_server, seekers):
    run(on_redis(redis_server), 10, piece=7)
    assert any(seekers)
    assert not all(seekers)


def test_also_in_small_bites(redis_server, seekers, small_bites):
    run(on_redis(redis_server), 10, piece=8)
    assert any(seekers)
