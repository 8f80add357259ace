"""How often the server is asked: round trips of the common verbs, and what an idle process costs."""

import os
import random
import subprocess
import sys
from contextlib import contextmanager

import pytest

from holdfast.core import commands as c
from holdfast.engine.engine import Engine
from holdfast.store.redis import RedisStore
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
