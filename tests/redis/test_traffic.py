"""How often the server is asked: messages of the common verbs, and what an idle process costs."""

import random

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Moved
from holdfast.core.job import State
from holdfast.core.moving import Notice, Standing
from holdfast.engine.engine import Engine
from holdfast.store.contract import JobFilter
from holdfast.store.redis import reads as redis_reads
from holdfast.store.redis.reads import FEW_PAIRS
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add, claim, commit, ids

ADD = c.Add(jobs=(c.NewJob(task="t", data="{}"),))
CLAIM = c.Claim(limit=1, lease_ms=60_000, tenant="")


@pytest.fixture
def engine(redis_url):
    """An engine that has done each verb once, and so knows what there is to know."""
    store = RedisStore(redis_url)
    engine = Engine(store, rng=random.random)
    # The first claim is a batch, as upkeep has not run yet.
    for _ in range(2):
        engine.execute([ADD])
        engine.execute([finish(engine)])
    yield engine
    store.close()


@pytest.fixture
def other(redis_url):
    """An engine of another process."""
    store = RedisStore(redis_url)
    yield Engine(store, rng=random.random)
    store.close()


def finish(engine):
    """Claim a job; what finishes it."""
    (claimed,) = engine.execute([CLAIM]).replies[0]
    return c.Answer(hold=c.hold_of(claimed.job), held=claimed.job, result="1")


def count(messages, call):
    """How many messages a call sends, and what it returns."""
    before = len(messages)
    result = call()
    return len(messages) - before, result


def test_the_common_verbs_take_few_messages(engine, messages):
    """One each."""
    adding, _ = count(messages, lambda: engine.execute([ADD]))
    claiming, answer = count(messages, lambda: finish(engine))
    answering, _ = count(messages, lambda: engine.execute([answer]))

    assert (adding, claiming, answering) == (1, 1, 1)


@pytest.mark.parametrize("claim", [CLAIM, c.Claim(tasks=("t", "u")), c.Claim(glob="t*"), c.Claim()], ids=str)
def test_however_a_claim_chooses_it_takes_one_message(engine, messages, claim):
    """By name, by a pattern or not at all; where nothing is READY a batch looks too."""
    nothing, _ = count(messages, lambda: engine.execute([claim]))
    engine.execute([ADD])
    claiming, done = count(messages, lambda: engine.execute([claim]))

    assert len(done.replies[0]) == 1
    assert (nothing, claiming) == (2, 1)


def test_a_thousand_jobs_are_added_claimed_and_finished_by_as_few(engine, messages):
    """What is in them grows, not how many there are."""
    many = c.Add(jobs=(c.NewJob(task="t", data="{}"),) * 1_000)
    adding, _ = count(messages, lambda: engine.execute([many]))
    claiming, done = count(messages, lambda: engine.execute([c.Claim(limit=1_000, lease_ms=60_000)]))
    answers = [c.Answer(hold=c.hold_of(one.job), held=one.job, result="1") for one in done.replies[0]]
    answering, _ = count(messages, lambda: engine.execute(answers))

    assert len(answers) == 1_000
    assert (adding, claiming, answering) == (1, 1, 1)


def test_a_process_that_was_woken_looks_in_one_message_and_claims_in_one(engine, other, messages):
    """What it looks at is all that claims and upkeep go by."""
    other.execute([ADD])
    looking, hint = count(messages, lambda: engine.claim_hint([CLAIM]))
    claiming, done = count(messages, lambda: engine.execute([CLAIM]))

    assert hint.has_work
    assert len(done.replies[0]) == 1
    assert (looking, claiming) == (1, 1)


def put_notice(engine, **fields):
    """Put up a notice, or take it down."""
    commit(engine.store, notice=msgspec.json.encode(Notice(**fields)) if fields else None)


def test_a_view_looks_at_the_notice_along_with_its_first_question(engine, other, messages):
    """It goes by what it saw last until then, and is begun anew where that is no longer so."""

    def look():
        return count(messages, lambda: engine.read(lambda txn: txn.load([1])))[0]

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
def test_a_view_never_ends_without_a_look_at_the_notice(engine, other, asks):
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


@pytest.mark.parametrize("few", [FEW_PAIRS, 0], ids=["few pairs", "many pairs"])
@pytest.mark.parametrize("whose", FOR_WHOM)
def test_a_process_that_waits_is_given_hope_by_what_is_for_it(engine, other, whose, few, monkeypatch):
    """Where pairs are too many to be read at once, those that are asked for are looked up."""
    monkeypatch.setattr(redis_reads, "FEW_PAIRS", few)
    claim, hope = FOR_WHOM[whose]
    other.execute([ADD, c.Add(jobs=(c.NewJob(task="paused"),)), c.Pause(tenant="", task="paused")])

    assert engine.claim_hint([claim]).has_work == hope


@pytest.mark.parametrize("tasks", [100, 600], ids=["few pairs", "many pairs"])
def test_a_pattern_is_looked_for_among_names_and_not_among_jobs(store, messages, tasks):
    """However many jobs of other names stand before it."""
    add(store, *(a_job(n, task=f"t{n % tasks}", priority=900) for n in range(1, 6_001)))
    add(store, a_job(9_000, task="last"), a_job(9_001, task="last"))
    assert ids(claim(store, glob="la*", limit=1)) == [9_000]
    before = len(messages)

    assert ids(claim(store, glob="la*")) == [9_001]

    # The names, the claim and the commit.
    assert len(messages) - before == 3
    assert sum(_items(replies) for _, replies in messages[before:]) <= tasks + 20


def _items(reply):
    """How many names and records are in a reply."""
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
def test_a_listing_fetches_about_as_many_records_as_it_lists(redis_url, messages, query, most):
    """Of 4,000 jobs, 900 of which are running."""
    store = RedisStore(redis_url)
    engine = Engine(store, rng=random.random)
    news = [c.NewJob(task="tenth" if n % 10 == 0 else "t", data="{}") for n in range(1_000)]
    running = tuple(c.NewJob(task="r", data="{}") for _ in range(900))
    engine.execute([c.Add(jobs=running)])
    engine.execute([c.Claim(limit=900, lease_ms=60_000, tenant="", tasks=("r",))])
    engine.execute([c.Add(jobs=tuple(news[n % 1_000] for n in range(3_100)))])
    after = engine.read(lambda txn: txn.jobs(JobFilter(task="r"), after=0, limit=900))[-1].id
    after = 0 if query.state is State.RUNNING else after

    before = len(messages)
    jobs = engine.read(lambda txn: txn.jobs(query, after=after, limit=100))

    assert len(jobs) == 100
    assert sum(_items(replies) for _, replies in messages[before:]) <= most + 20
    store.close()
