"""Alive and ready: what servers say of themselves while their store is away."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast.core import queries as q
from holdfast.core.bounds import READ_AT_ONCE_BYTES
from holdfast.engine.makers import open_connection
from holdfast.proto.conversion import SERVICE
from holdfast.queue.connect import store_maker
from holdfast.serve import asking
from holdfast.serve.service import StoreProbe
from tests.http.served import Served as HttpServed
from tests.queue_suite.tools import LONG_S, until
from tests.redis_servers import RedisServer, redis_or_skip
from tests.remote.served import Served as GrpcServed

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """A server that the test may stop."""
    server = redis_or_skip()
    yield server
    server.close()


@pytest.fixture
def suspend(redis) -> Iterator[object]:
    """Has the store stand still: its connections stay, and nobody answers. It goes on when the test ends."""
    assert redis.process is not None
    pid = redis.process.pid
    yield lambda: os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)


def test_an_http_server_whose_store_does_not_answer_is_alive_and_not_ready(redis, suspend):
    """Told within seconds, not after the 30 that a request waits; and ready again by itself."""
    served = HttpServed(store_maker(redis.url()))
    try:
        with served.client() as client:
            assert (client.get("/healthz").json, client.get("/readyz").json) == (
                {"status": "ok"},
                {"status": "ready"},
            )
            suspend()

            until(lambda: client.get("/readyz").status == 503)
            assert client.get("/healthz").status == 200
            assert b"127.0.0.1" not in client.get("/readyz").body

            os.kill(redis.process.pid, signal.SIGCONT)
            until(lambda: client.get("/readyz").status == 200)
    finally:
        os.kill(redis.process.pid, signal.SIGCONT)
        served.close()


def test_the_health_of_a_grpc_server_tells_alive_from_ready(redis, suspend):
    """`""` is the server, and the name of the service its store as well; a watch hears of both changes."""
    connection = open_connection(store_maker(redis.url()), rng=random.random)
    served = GrpcServed(connection)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            alive, ready = (health_pb2.HealthCheckRequest(service=name) for name in ("", SERVICE.full_name))
            watched = stub.Watch(ready, timeout=LONG_S)
            said = [next(watched).status]
            suspend()

            said.append(next(watched).status)
            assert (stub.Check(alive).status, stub.Check(ready).status) == (SERVING, NOT_SERVING)

            os.kill(redis.process.pid, signal.SIGCONT)
            said.append(next(watched).status)
            assert said == [SERVING, NOT_SERVING, SERVING]
            watched.cancel()
    finally:
        os.kill(redis.process.pid, signal.SIGCONT)
        served.close()
        connection.close()


def test_every_http_request_is_answered_while_the_store_hangs(redis, suspend, monkeypatch):
    """With 503, when to try again and the number of the incident; also one with a token that is not known."""
    monkeypatch.setattr(asking, "ANSWER_S", 0.3)
    served = HttpServed(store_maker(redis.url()))
    try:
        secret = served.token("ci")
        suspend()
        new = {"task": "t", "data": "x" * 2 * READ_AT_ONCE_BYTES}
        with served.client() as client, served.client(secret) as known:
            # More than there are threads: each request would keep one.
            replies = [client.get("/v1/counts") for _ in range(8)]
            replies += [client.post("/v1/jobs", {"task": "t"}), client.post("/v1/jobs", new)]
            replies += [client.post("/v1/claims", {"tasks": ["t"], "wait": 0.1}), known.get("/v1/counts")]

            assert {reply.status for reply in replies} == {503}
            assert {reply.headers["retry-after"] for reply in replies} == {"1"}
            assert all("(incident " in reply.json["detail"] for reply in replies)
            assert [reply.json["code"] for reply in replies[8:]] == [*["UNSETTLED"] * 2, *["UNAVAILABLE"] * 2]
    finally:
        os.kill(redis.process.pid, signal.SIGCONT)
        served.close()


def test_every_unary_grpc_call_is_answered_while_the_store_hangs(redis, suspend, monkeypatch):
    """Without a deadline of its own."""
    monkeypatch.setattr(asking, "ANSWER_S", 0.3)
    connection = open_connection(store_maker(redis.url()), rng=random.random)
    served = GrpcServed(connection)
    try:
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            suspend()
            unavailable, unknown = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN
            for name, status in (("CountJobs", unavailable), ("Add", unknown), ("Next", unavailable)):
                call = channel.unary_unary(f"/{SERVICE.full_name}/{name}")
                with pytest.raises(grpc.RpcError, match="incident") as told:
                    call(b"", timeout=LONG_S)
                assert told.value.code() is status
    finally:
        os.kill(redis.process.pid, signal.SIGCONT)
        served.close()
        connection.close()


def test_a_thousand_health_checks_are_one_question_to_the_store():
    """Also while it hangs: then each waits a second, and none asks again."""
    asked: list[object] = []

    class Hanging:
        async def ask_async(self, query):
            asked.append(query)
            await asyncio.sleep(LONG_S)

    async def run() -> list[bool]:
        probe = StoreProbe(Hanging())  # type: ignore[arg-type]
        found = await asyncio.gather(*(probe.is_ready() for _ in range(1_000)))
        found += await asyncio.gather(*(probe.is_ready() for _ in range(1_000)))
        return found

    assert set(asyncio.run(run())) == {False}
    assert [type(one) for one in asked] == [q.FindToken]
