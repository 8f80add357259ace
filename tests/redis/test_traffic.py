"""How often the server is asked: round trips of the common verbs, and what an idle process costs."""

import os
import random
import subprocess
import sys
from contextlib import contextmanager

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Moved
from holdfast.core.job import State
from holdfast.core.moving import Notice, Standing
from holdfast.engine.engine import Engine
from holdfast.engine.prospects import prospects
from holdfast.store.contract import JobFilter
from holdfast.store.redis import view as redis_view
from holdfast.store.redis.reads import ROSTER
from holdfast.store.redis.store import RedisStore
from tests.store.helpers import SRC

ADD = c.Add(jobs=(c.NewJob(task="t", data="{}"),))
CLAIM = c.Claim(limit=1, lease_ms=60_000, tenant="")


@pytest.fixture
def engine(redis_url):
    """An engine that has done each verb once, and so knows what there is to know."""
    store = RedisStore(redis_url)
    engine = Engine(store, dice=random.random)
    engine.execute([ADD])
    finish(engine)
    yield engine
    store.close()


def finish(engine):
    """Claim a job, and finish it."""
    (claimed,) = engine.execute([CLAIM]).replies[0]
    return c.Answer(hold=c.hold_of(claimed.job), held=claimed.job, result="1")


@contextmanager
def trips(engine):
    """How many round trips, and how many commands in them."""
    counted: list[int] = []
    many = engine.store._link.many

    def counting(commands):
        counted.append(len(commands))
        return many(commands)

    engine.store._link.many = counting
    yield counted
    del engine.store._link.many


def test_the_common_verbs_take_few_round_trips(engine):
    """An add and a finish one, a claim three."""
    with trips(engine) as add:
        engine.execute([ADD])
    with trips(engine) as claim:
        answer = finish(engine)
    with trips(engine) as answering:
        engine.execute([answer])

    assert (len(add), len(claim), len(answering)) == (1, 3, 1)


def test_an_idle_process_asks_for_one_number(engine):
    """Each time that it comes by, while nobody commits; and sees at once when somebody has."""
    engine.execute([finish_all(engine)])
    engine.store._calm._wrote_s = 0.0
    engine.execute([CLAIM])

    with trips(engine) as rounds:
        for _ in range(3):
            assert engine.execute([CLAIM, c.Upkeep()]).replies[0] == []
    assert rounds == [1, 1, 1]

    other = RedisStore(
        f"redis://127.0.0.1:{engine.store.address.hosts[0][1]}/0?prefix={engine.store.address.prefix}"
    )
    Engine(other, dice=random.random).execute([ADD])
    other.close()
    assert len(engine.execute([CLAIM]).replies[0]) == 1


@pytest.fixture
def other(redis_url):
    """An engine of another process."""
    store = RedisStore(redis_url)
    yield Engine(store, dice=random.random)
    store.close()


def hopes(engine, claim):
    """Whether one who waits with a claim, and was told of a commit, will claim."""
    return engine.read(lambda txn: prospects(txn, [claim])).any


def test_one_who_was_told_looks_in_one_round_trip_and_claims_in_three(engine, other):
    """With all of upkeep, which goes by what was seen."""
    other.execute([ADD])
    with trips(engine) as looking:
        assert hopes(engine, CLAIM)
    engine.next_upkeep_ms = 0
    with trips(engine) as claiming:
        (claimed,) = engine.execute([CLAIM]).replies

    assert len(claimed) == 1
    assert (len(looking), len(claiming)) == (1, 3)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with something to write"])
def test_what_was_seen_holds_until_somebody_commits(engine, other, together):
    """Then it is looked for anew: here a job that was not there before."""
    other.execute([ADD])
    answer = finish(other)
    if not together:
        other.execute([answer])
    assert not hopes(engine, CLAIM)
    assert engine.store._calm.is_fresh
    other.execute([ADD])

    assert len(engine.execute([answer, CLAIM] if together else [CLAIM]).replies[-1]) == 1


def put_notice(engine, **fields):
    """Have this stand on the door, or nothing."""
    notice = msgspec.json.encode(Notice(**fields)) if fields else None
    engine.store.run(lambda txn: txn.put_notice(notice))


def test_a_view_looks_at_the_door_along_with_its_first_question(engine, other):
    """It goes by what it saw there last until then, and is begun anew where that is no longer so."""

    def look():
        with trips(engine) as rounds:
            engine.read(lambda txn: txn.load([1]))
        return len(rounds)

    assert look() == 1
    put_notice(other, standing=Standing.OPEN, origin="a move")
    assert look() > 1
    assert look() == 1
    put_notice(other, standing=Standing.MOVED, other="elsewhere")
    with pytest.raises(Moved):
        look()
    put_notice(other)
    assert look() > 1


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "asks nothing"])
def test_a_view_never_ends_without_a_look_at_the_door(engine, other, asks):
    """Nor does one that would ask for nothing else."""
    put_notice(other, standing=Standing.MOVED, other="elsewhere")

    with pytest.raises(Moved):
        engine.read(lambda txn: txn.counts() if asks else 1)


FOR_WHOM = {
    "any task": (c.Claim(), True),
    "its task": (c.Claim(tasks=("t",)), True),
    "another task": (c.Claim(tasks=("u",)), False),
    "a task that is paused": (c.Claim(tasks=("paused",)), False),
    "its tenant": (c.Claim(tenant=""), True),
    "another tenant": (c.Claim(tenants=("them",)), False),
    "a pattern": (c.Claim(glob="t*"), True),
    "another pattern": (c.Claim(glob="u*"), False),
}


@pytest.mark.parametrize("roster", [ROSTER, 0], ids=["few queues", "many queues"])
@pytest.mark.parametrize("whose", FOR_WHOM)
def test_one_who_waits_is_given_hope_by_what_is_for_him(engine, other, whose, roster, monkeypatch):
    """Where queues are too many to be seen at once it is looked for, and a pattern always has hope."""
    monkeypatch.setattr(redis_view, "ROSTER", roster)
    claim, hope = FOR_WHOM[whose]
    other.execute([ADD, c.Add(jobs=(c.NewJob(task="paused"),)), c.Pause(tenant="", task="paused")])

    assert hopes(engine, claim) == (hope or (claim.glob is not None and not roster))


def finish_all(engine):
    """What finishes the one job that there is."""
    engine.execute([ADD])
    return finish(engine)


def test_workers_and_the_bench_run_on_a_server(redis_server):
    """A supervisor with an executor works a store off; what was made for it is gone afterwards."""
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "bench",
        "drain",
        "add_many",
        "--scale",
        "0.01",
        "--rounds",
        "1",
    ]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [*command, "--store", redis_server.url()],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "drain by 1 executor" in done.stdout
    with redis_server.client() as client:
        assert client.keys("*bench-*") == []


def replied(store, call):
    """How many names and records the server sends for what a call asks."""
    many, counts = store._link.many, []

    def counting(commands):
        replies = many(commands)
        counts.append(sum(map(_items, replies)))
        return replies

    store._link.many = counting
    try:
        return call(), sum(counts)
    finally:
        store._link.many = many


def _items(reply):
    return sum(map(_items, reply)) if isinstance(reply, list) else 1


@pytest.mark.parametrize(
    ("query", "most"),
    [
        # A name and a record of each job that is listed.
        (JobFilter(), 2 * 100),
        # Nine of ten match: pages of 100 and 200.
        (JobFilter(task="t"), 2 * 300),
        (JobFilter(state=State.QUEUED), 2 * 100),
        # Every tenth matches: pages of 100, 200, 400 and 800.
        (JobFilter(task="tenth"), 2 * 1_500),
        # The names of the place, and the records that are listed.
        (JobFilter(state=State.RUNNING), 900 + 100),
    ],
    ids=str,
)
def test_a_listing_fetches_about_as_many_records_as_it_lists(redis_url, query, most):
    """Of 4,000 jobs, 900 of which are running."""
    store = RedisStore(redis_url)
    engine = Engine(store, dice=random.random)
    news = [c.NewJob(task="tenth" if n % 10 == 0 else "t", data="{}") for n in range(1_000)]
    running = tuple(c.NewJob(task="r", data="{}") for _ in range(900))
    engine.execute([c.Add(jobs=running)])
    engine.execute([c.Claim(limit=900, lease_ms=60_000, tenant="", tasks=("r",))])
    engine.execute([c.Add(jobs=tuple(news[n % 1_000] for n in range(3_100)))])
    after = engine.read(lambda txn: txn.jobs(JobFilter(task="r"), after=0, limit=900))[-1].id
    after = 0 if query.state is State.RUNNING else after

    jobs, items = replied(store, lambda: engine.read(lambda txn: txn.jobs(query, after=after, limit=100)))

    assert len(jobs) == 100
    assert items <= most + 20
    store.close()
