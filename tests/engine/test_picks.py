"""Claims that pick whose jobs they take."""

import random

import pytest

from holdfast.core import commands as c
from holdfast.core.bounds import CLAIM_JOBS
from holdfast.core.checks import check_command
from holdfast.core.errors import BadInput, TooLarge
from holdfast.core.limits import Limit
from holdfast.engine.engine import Engine
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sqlite.store import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def engine(request, tmp_path):
    """An engine on each store."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "jobs.db")
    engine = Engine(store, rng=random.random)
    yield engine
    engine.close()


def run(engine, command):
    """What is replied."""
    check_command(command)
    (reply,) = engine.execute([command]).replies
    return reply


def add(engine, count, **fields):
    """The ids of new jobs."""
    return run(engine, c.Add(jobs=tuple(c.NewJob(**{"task": "t"} | fields) for _ in range(count))))


def picked(engine, *picks, limit=100):
    """The ids of what a claim of picks got."""
    command = c.Claim(picks=picks, limit=limit, lease_ms=60_000)
    return [claimed.job.id for claimed in run(engine, command)]


def test_what_a_domain_holds_back_is_made_up_for_from_the_same_pair(engine):
    """And not from another, however many that has."""
    run(engine, c.SetLimit(domain=b"site", tenant="a", limit=Limit(concurrency=2)))
    limited = add(engine, 5, tenant="a", domain=b"site", priority=900)
    free = add(engine, 5, tenant="a")
    others = add(engine, 5, tenant="b")

    assert picked(engine, ("a", "t", 4), ("b", "t", 1)) == [*limited[:2], *free[:2], others[0]]
    assert picked(engine, ("a", "t", 9)) == free[2:]
    assert picked(engine, ("a", "t", 9)) == []


def test_a_limit_lowered_after_they_stood_ready_holds_for_picks_too(engine):
    """They are leased, looked at, and put back; then others come."""
    limited = add(engine, 30, tenant="a", domain=b"site", priority=900)
    free = add(engine, 30, tenant="a")
    run(engine, c.SetLimit(domain=b"site", tenant="a", limit=Limit(concurrency=1)))

    assert picked(engine, ("a", "t", 20)) == [limited[0], *free[:19]]


def test_what_is_paused_is_not_picked(engine):
    """Whoever was seen waiting before it was."""
    add(engine, 2, tenant="a")
    mine = add(engine, 2, tenant="b")
    run(engine, c.Pause(tenant="a", task="t"))

    assert picked(engine, ("a", "t", 2), ("b", "t", 2)) == mine


def test_a_claim_takes_at_most_its_limit(engine):
    ids = add(engine, 9, tenant="a")

    assert picked(engine, ("a", "t", 5), limit=3) == ids[:3]


def test_a_claim_may_be_for_several_tenants(engine):
    """By priority and age, as without."""
    mine = [add(engine, 1, tenant=tenant, priority=p)[0] for tenant, p in (("a", 1), ("b", 900), ("c", 999))]

    claim = c.Claim(tenants=("a", "b"), tasks=("t",), limit=9, lease_ms=60_000)

    assert [claimed.job.id for claimed in run(engine, claim)] == [mine[1], mine[0]]


@pytest.mark.parametrize(
    ("claim", "error"),
    [
        ({"picks": (("a", "", 1),)}, BadInput),
        ({"picks": (("a\n", "t", 1),)}, BadInput),
        ({"picks": (("a", "t", 0),)}, BadInput),
        ({"picks": (("a", "t", CLAIM_JOBS + 1),)}, BadInput),
        ({"picks": (("a", "t", 1), ("a", "t", 2))}, BadInput),
        ({"picks": (("a", "t", 1),), "mock": True}, BadInput),
        ({"picks": tuple((str(n), "t", 1) for n in range(CLAIM_JOBS + 1))}, TooLarge),
    ],
    ids=str,
)
def test_bad_picks_are_refused(claim, error):
    with pytest.raises(error):
        check_command(c.Claim(limit=5, **claim))
