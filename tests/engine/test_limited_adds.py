"""What adding into limited domains costs, in questions to the store: never one for each job or domain."""

import random
from contextlib import closing

import pytest

from holdfast.core import commands as c
from holdfast.core.limits import Limit
from holdfast.engine.engine import Engine
from holdfast.store.contract import Store
from holdfast.store.postgres.connection import OwnConnection
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.redis.connection import RedisServer
from holdfast.store.redis.store import RedisStore
from holdfast.store.sqlite.connection import SqliteConnection
from holdfast.store.sqlite.store import SqliteStore

# Statements of SQLite are in the process, and take their rows by powers of two; locks of PostgreSQL are
# waited for, or only tried, by their order, and the lease of the number may be due.
SLACK = {"sqlite": 20, "postgres": 12, "redis": 0}


class Asked:
    """An engine, and how often it asks its store."""

    def __init__(self, store, monkeypatch, link, *names):
        self.engine, self.count = Engine(store, rng=random.random), 0
        for name in names:
            self._count_calls(monkeypatch, link, name)
        for domain in (b"one", b"d*"):
            self.engine.execute([c.SetLimit(domain=domain, limit=Limit(concurrency=1))])

    def _count_calls(self, monkeypatch, link, name):
        call = getattr(link, name)

        def counting(*words, **named):
            self.count += 1
            return call(*words, **named)

        monkeypatch.setattr(link, name, counting)

    def adding(self, *domains):
        """How often the store is asked for one batch that adds a job to each of these domains."""
        before = self.count
        jobs = tuple(c.NewJob(task="t", data="{}", domain=domain) for domain in domains)
        (reply,) = self.engine.execute([c.Add(jobs=jobs)]).replies
        assert len(reply) == len(domains)
        return self.count - before


@pytest.fixture(params=SLACK)
def kind(request):
    """Each kind of store."""
    return request.param


@pytest.fixture
def asked(kind, request, tmp_path, monkeypatch):
    """An engine on an empty store."""
    if kind == "sqlite":
        store: Store = SqliteStore(tmp_path / "jobs.db")
        link: type = SqliteConnection
        names: tuple[str, ...] = ("value", "rows", "change")
    elif kind == "postgres":
        store = PostgresStore(request.getfixturevalue("postgres_url"))
        link, names = OwnConnection, ("execute", "execute_numbered")
    else:
        store = RedisStore(request.getfixturevalue("redis_url"))
        link, names = RedisServer, ("send",)
    with closing(store):
        yield Asked(store, monkeypatch, link, *names)


def test_what_a_batch_asks_does_not_grow_with_its_limited_domains(asked, kind):
    """New ones, and those that have READY and HELD jobs already."""
    few, many = [b"d%d" % n for n in range(8)], [b"d1%d" % n for n in range(512)]
    asked.adding(b"d")

    for _ in range(3):
        assert asked.adding(*many) <= asked.adding(*few) + SLACK[kind]


def test_what_a_batch_asks_does_not_grow_with_the_jobs_of_a_limited_domain(asked, kind):
    """However many of them stand there already."""
    asked.adding(b"one")

    first = asked.adding(*[b"one"] * 8)

    assert asked.adding(*[b"one"] * 512) <= first + SLACK[kind]


def test_one_add_into_a_full_domain_asks_for_no_jobs(asked, kind):
    """It comes after all that are READY, and is held: as little is asked as in an empty one."""
    empty = max(asked.adding(b"d%d" % n) for n in range(3))
    for _ in range(100):
        asked.adding(b"one")

    assert asked.adding(b"one") <= empty + SLACK[kind] // 4


def test_what_governs_a_domain_is_read_together(asked, kind):
    """Its limit, the patterns, what is paused and its record: on a server every question is a round trip."""
    for _ in range(3):
        asked.adding(b"one")

    # On PostgreSQL the beginning, locks, records, the domain, the job and the domain again; then the commit.
    # The least of five: a batch may have to be done again, or the right to make ids be renewed.
    least = min(asked.adding(b"one") for _ in range(5))
    assert least <= {"sqlite": 12, "postgres": 6, "redis": 2}[kind]
