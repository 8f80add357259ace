"""Every exchange with a server fails once: before the server gets it, or after, so that its answer is lost.

A script of verbs is run again and again on an empty store, and each time another of its exchanges fails.
Every verb still does what it does otherwise: no error, no job lost or run twice, no wait for a time limit.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.queue.queue import Queue
from holdfast.store.postgres.connection import OwnConnection
from holdfast.store.redis.connection import RedisConnection
from tests.queue_suite.tools import complaints, upkeep

# Far longer than the script takes, and shorter than any time limit that it may meet.
LIMIT_S = 25.0
# How many of the exchanges fail in `make test`.
SMALL = 10


class Fault:
    """Which exchange fails: the so many-th, before the server gets it or after; 0: none."""

    def __init__(self, moment: str) -> None:
        self._moment = moment
        self.fails_at = self.count = 0

    def fails(self, moment: str) -> bool:
        """Whether this is the moment of the exchange that fails."""
        self.count += moment == self._moment
        return moment == self._moment and self.count == self.fails_at


def _cut_redis(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    exchange = RedisConnection.exchange

    def failing(connection: RedisConnection, commands: Any) -> Any:
        if fault.fails("before"):
            connection.close()
            raise ConnectionResetError
        replies = exchange(connection, commands)
        if fault.fails("after"):
            connection.close()
            raise ConnectionResetError
        return replies

    patch.setattr(RedisConnection, "exchange", failing)


def _cut_postgres(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    def cut(connection: OwnConnection) -> None:
        connection.connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def failing(name: str, moment: str) -> None:
        call = getattr(OwnConnection, name)

        def called(connection: OwnConnection, *words: Any) -> Any:
            if moment == "before" and fault.fails(moment):
                cut(connection)
            reply = call(connection, *words)
            if moment == "after" and fault.fails(moment):
                cut(connection)
            return reply

        patch.setattr(OwnConnection, name, called)

    for name in ("execute", "execute_numbered", "call"):
        failing(name, "before")
    failing("receive", "after")


@contextmanager
def _redis(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.getfixturevalue("redis_server").url()


def _postgres(request: pytest.FixtureRequest) -> AbstractContextManager[str]:
    schemas = request.getfixturevalue("postgres_schemas")

    @contextmanager
    def made() -> Iterator[str]:
        with schemas.one() as name:
            yield schemas.server.url(name)

    return made()


# Of each kind of server: what makes the address of an empty store, and what makes its exchanges fail.
SERVERS: dict[str, tuple[Callable[..., AbstractContextManager[str]], Callable[..., None]]] = {
    "postgres": (_postgres, _cut_postgres),
    "redis": (_redis, _cut_redis),
}


def _add(queue: Queue) -> None:
    queue.limit("narrow", concurrency=1)
    queue.add("work", {"n": "plain"})
    for _ in range(2):
        queue.add("work", {"n": "unique"}, unique="key")
    queue.add_many([("work", {"n": f"of many {n}"}) for n in range(3)])
    for n in range(2):
        queue.add("work", {"n": f"limited {n}"}, domain="narrow")
    queue.cancel(queue.add("work", {"n": "cancelled"}))
    later = queue.add("work", {"n": "later"}, delay="1h")
    queue.update(later, data={"n": "sooner"})
    queue.pause("work")
    queue.resume("work")
    queue.requeue(later)


def _run(queue: Queue) -> list[str]:
    """Run all jobs; in which order they ran."""
    ran = []
    while (job := queue.next(["work"], renew=False)) is not None:
        name = job.data["n"]
        ran.append(name)
        if name == "plain" and ran.count(name) == 1:
            job.progress(0.5, "half way")
            job.extend()
            job.retry(0)
        elif name == "unique" and ran.count(name) == 1:
            job.add("work", {"n": "child"})
            job.done()
        elif name == "of many 0" and ran.count(name) == 1:
            job.release()
        else:
            job.done({"is": name})
    return ran


def _script(url: str) -> tuple[list[str], Any, list[str]]:
    with holdfast.connect(url) as queue:
        _add(queue)
        ran = _run(queue)
        upkeep(queue)
        return ran, queue.counts(), complaints(queue)


@pytest.mark.parametrize("size", [SMALL, pytest.param(0, id="full", marks=pytest.mark.proof)])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("server", SERVERS)
def test_any_exchange_may_fail_once(server, moment, size, request, monkeypatch, tell):
    make, cut = SERVERS[server]
    fault = Fault(moment)
    cut(fault, monkeypatch)
    with make(request) as url:
        expected = _script(url)
    exchanges = fault.count
    assert expected[2] == []

    tried = range(1, exchanges + 1, max(exchanges // size, 1) if size else 1)
    for fails_at in tried:
        fault.fails_at, fault.count = fails_at, 0
        started_s = time.monotonic()
        with make(request) as url:
            assert _script(url) == expected, f"exchange {fails_at} of {exchanges}"
        assert time.monotonic() - started_s < LIMIT_S, f"exchange {fails_at} of {exchanges}"
    tell(f"{len(tried)} of {exchanges} exchanges failed once each")
