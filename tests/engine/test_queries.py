"""Queries: each has a function that answers it, and a reply that another process can read."""

import asyncio
import threading

import msgspec
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core import queries as q
from holdfast.core.defaults import Defaults
from holdfast.core.errors import NotFound, QueryFailed
from holdfast.core.history import GetHistory
from holdfast.core.indexed import LogItem
from holdfast.core.job import Code, Place, State
from holdfast.core.limits import Limit
from holdfast.core.queries import GetRetention, ListTasks, SearchJobs
from holdfast.core.schedule import Schedule
from holdfast.core.token import Scope, Token, hash_of
from holdfast.core.verbs import REPLIES
from holdfast.core.worker import Served, Worker
from holdfast.engine.queries import QUERIES, STORE_QUERIES
from holdfast.engine.store_connection import StoreConnection
from holdfast.store.memory.store import MemoryStore
from tests.queue_suite.tools import LONG_S, until

EVERY = {*q.Query.__subclasses__(), *q.PagedQuery.__subclasses__()} - {q.PagedQuery}
NOW_MS = 1_800_000_000_000


class Filled:
    """A connection to a store that has something of everything."""

    def __init__(self) -> None:
        self.connection = StoreConnection(MemoryStore(clock=lambda: NOW_MS), rng=lambda: 0.5)
        ask = self.connection.ask
        (self.parent_id,) = ask(c.Add(jobs=(c.NewJob(task="parent", strict=True, data='{"p":1}'),)))
        (parent,) = ask(c.Claim(tasks=("parent",), lease_ms=60_000))
        hold = c.hold_of(parent.job)
        (self.child_id,) = ask(c.Add(jobs=(c.NewJob(task="child", parent_id=self.parent_id),), hold=hold))
        ask(c.Step(hold=hold, name="first", result="[1]"))
        ask(c.WriteLog(hold=hold, lines=("a line",)))
        ask(c.Answer(hold=hold, code=Code.RETRY, delay_ms=0, counts=False))
        self.unique = c.NewJob(task="held", data=b"\xff\x00", domain=b"d", unique=b"k")
        (self.held_id,) = ask(c.Add(jobs=(self.unique,)))
        ask(c.Add(jobs=(c.NewJob(task="later", delay_ms=60_000, data='{"n":"ä"}'),)))
        ask(c.SetLimit(domain=b"d", limit=Limit(concurrency=0)))
        ask(c.SetLimit(domain=b"\xff*", limit=Limit(rate=2.5)))
        ask(c.SetSchedule(schedule=Schedule(name="nightly", every_ms=60_000), job=c.NewJob(task="night")))
        ask(c.Pause(tenant="", task="other", domain=None))
        ask(c.Pause(tenant="", domain=b"\x00"))
        ask(c.Publish(tasks=((None, "held", Defaults(max_attempts=3)),)))
        serves = (Served(tenant=None, tasks=("held",)),)
        worker = Worker(name="w", host="h", pid=1, started_at=NOW_MS, serves=serves, until_ms=NOW_MS + 9_000)
        ask(c.Enlist(worker=worker))
        ask(c.Append(log="log", items=(LogItem(data="1", key=b"\xfe"), LogItem(data=b"\xff"))))
        ask(c.CreateToken(token=Token(name="token", scopes=(Scope.ADD,), hash=hash_of("a secret"))))
        ask(c.StartProgress(name="consumer", log="log"))
        ask(h.SetHandler(handler=h.Handler(task="held", lang="node", body="x = 1")))

    def queries(self) -> list[q.Query]:
        """One of each kind, at least, which finds something."""
        parent_id, child_id = self.parent_id, self.child_id
        return [
            q.GetJob(job_id=self.held_id, as_claimed=True),
            q.GetData(job_id=self.held_id),
            q.GetSteps(job_id=parent_id),
            q.LoadEnded(job_ids=(parent_id, child_id)),
            q.GetLog(job_id=parent_id),
            q.Explain(job_id=self.held_id),
            q.LoadJobs(job_ids=(child_id,), data=True, holder_of=self.unique),
            q.LoadFamilies(job_ids=(parent_id, child_id)),
            q.ListJobs(filter=q.JobFilter(tenant="", place=Place.HELD, state=State.QUEUED), limit=9),
            q.ListChildren(job_id=parent_id, limit=9),
            q.SelectJobs(text="SELECT jobID, name, data FROM jobs"),
            q.CountJobs(tenant=""),
            q.CheckCounts(),
            q.HasUnfinished(tenants=("",), tasks=("held",)),
            q.CountReady(),
            q.ListWaiting(limit=9),
            q.ListLimits(),
            q.ListSchedules(),
            q.ListPauses(tenant=""),
            q.ListDefaults(),
            q.ListWorkers(),
            q.GetOverview(),
            q.GetTime(),
            q.GetNextMoment(),
            q.GetReport(),
            q.ListTokens(),
            q.FindToken(name="token"),
            q.ListConsumers(),
            q.GetProgress(name="consumer"),
            q.ReadLog(log="log", limit=9),
            GetHistory(),
            GetRetention(),
            SearchJobs(filter=q.JobFilter(place=Place.HELD)),
            ListTasks(),
            h.GetHandler(task="held"),
            h.FindHandlers(pairs=(h.KnownHandler("", "held"), h.KnownHandler("", "none"))),
            h.ListHandlers(),
            h.ListHandlerVersions(task="held"),
        ]


@pytest.fixture
def filled():
    made = Filled()
    yield made
    made.connection.close()


def test_every_query_has_an_executor_and_a_reply_type():
    assert QUERIES.keys() | STORE_QUERIES.keys() == EVERY
    assert {kind for kind in REPLIES if issubclass(kind, q.Query)} == EVERY


def test_every_query_and_its_reply_can_go_to_another_process(filled):
    """By its type, as issued and as answered; most replies of such a store are not empty."""
    empty = set()
    for query in filled.queries():
        reply = filled.connection.ask(query)

        assert msgspec.msgpack.decode(msgspec.msgpack.encode(query), type=type(query)) == query
        there = msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=REPLIES[type(query)])
        assert there == reply, query
        if not reply:
            empty.add(type(query))
    assert {type(query) for query in filled.queries()} == EVERY
    assert empty == {q.CheckCounts, q.LoadEnded}


def test_what_is_replied(filled):
    """What the other tests do not look at."""
    ask = filled.connection.ask

    loaded = ask(q.LoadJobs(job_ids=(filled.child_id, 404), data=True, holder_of=filled.unique))
    assert loaded.jobs.keys() == {filled.child_id, filled.parent_id, filled.held_id}
    assert loaded.data[filled.parent_id] == '{"p":1}'
    assert (loaded.holder_id, loaded.data[filled.held_id]) == (filled.held_id, b"\xff\x00")
    families = ask(q.LoadFamilies(job_ids=(filled.parent_id, filled.child_id, 404)))
    assert families[filled.parent_id] == q.Family()
    assert families[filled.child_id].parent.data == '{"p":1}'
    assert families.keys() == {filled.parent_id, filled.child_id}
    assert ask(q.GetJob(job_id=filled.held_id)).max_attempts == 10
    assert ask(q.GetJob(job_id=filled.held_id, as_claimed=True)).max_attempts == 3
    (load, pattern) = ask(q.ListLimits())
    assert (load.domain, load.held, load.running) == (b"d", 1, 0)
    assert (pattern.domain, pattern.limit.rate, pattern.held) == (b"\xff*", 2.5, 0)
    assert ask(q.GetNextMoment()) == NOW_MS + 60_000
    page = ask(q.ReadLog(log="log", after=1, limit=9))
    assert (page.ends.head, [tuple(row) for row in page.items]) == (2, [(2, None, b"\xff")])
    assert ask(q.ReadLog(log="log")).items == ()


def test_a_query_that_is_wrong_raises_for_its_caller(filled):
    ask = filled.connection.ask

    with pytest.raises(NotFound, match="no job 404"):
        ask(q.GetJob(job_id=404))
    with pytest.raises(NotFound, match="no consumer nobody"):
        ask(q.GetProgress(name="nobody"))
    with pytest.raises(QueryFailed, match="syntax error"):
        ask(q.SelectJobs(text="SELEKT"))


def test_a_coroutine_is_answered_in_a_thread(filled, monkeypatch):
    """The event loop goes on meanwhile."""
    threads = []
    query = filled.connection.engine.query

    def noted(asked):
        threads.append(threading.get_ident())
        return query(asked)

    monkeypatch.setattr(filled.connection.engine, "query", noted)

    assert asyncio.run(filled.connection.ask_async(q.GetTime())) == NOW_MS
    assert threads != [threading.get_ident()]


def test_the_time_is_told_without_a_transaction(filled, monkeypatch):
    """The clock is the process's own here; on servers it is reckoned."""
    monkeypatch.setattr(filled.connection.store, "read", None)

    assert filled.connection.ask(q.GetTime()) == NOW_MS


def test_queries_that_wait_when_a_queue_is_closed_are_told(monkeypatch):
    """Not cancelled, which they did not ask for."""

    async def main() -> None:
        connection, go_on = StoreConnection(MemoryStore(), rng=lambda: 0.5), threading.Event()
        query = connection._query
        monkeypatch.setattr(connection, "_query", lambda asked: go_on.wait(LONG_S) and query(asked))
        asking = [asyncio.create_task(connection.ask_async(q.FindToken(name="t"))) for _ in range(6)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(connection.close))
        await asyncio.to_thread(until, lambda: connection._is_closed)
        go_on.set()
        await closing
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(one) for one in found} <= {type(None), holdfast.Closed}
        assert any(isinstance(one, holdfast.Closed) for one in found)

    asyncio.run(main())
