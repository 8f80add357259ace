"""Clients that are too slow for gRPC: they do not read, say nothing, or never end what they say."""

import socket
import threading
from collections.abc import Iterator

import grpc

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.proto.conversion import SERVICE, VERBS, Asks, FromWorker
from holdfast.serve.grpc import calls as calls_module
from holdfast.serve.grpc import stream as stream_module
from holdfast.serve.grpc.service import OPTIONS
from tests.http.test_limits import memory_mb
from tests.queue_suite.tools import LONG_S, until
from tests.remote.test_door import Client, refused


class Deaf:
    """A client that asks again and again, and reads nothing."""

    def __init__(self, port: int, name: str, messages: Iterator[bytes]) -> None:
        # A small window: what the transport takes in without being read.
        options = [("grpc.http2.lookahead_bytes", 1_024), ("grpc.http2.bdp_probe", 0)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=options)
        self._over = threading.Event()

        def until_over() -> Iterator[bytes]:
            for one in messages:
                if self._over.is_set():
                    return
                yield one

        self.call = self._channel.stream_stream(f"/{SERVICE.full_name}/{name}")(until_over())

    def close(self) -> None:
        """Go away."""
        self._over.set()
        self.call.cancel()
        self._channel.close()


def pages(count: int) -> Iterator[bytes]:
    """Queries, each of which is replied a large page."""
    query = VERBS[q.ListJobs].encode(q.ListJobs(limit=1_000))
    for number in range(1, count):
        yield Asks(asks=[{"number": number, "list_jobs": query}]).SerializeToString()


def test_a_client_that_does_not_read_is_not_read_from_and_cut_off(served, monkeypatch):
    """It cannot fill the memory with replies; others are served meanwhile, and its claims are given back."""
    monkeypatch.setattr(stream_module, "WRITE_S", 2.0)
    client = Client(served.port)
    new = c.NewJob(task="work", data='"' + "x" * 200 + '"')
    client.ask(c.Add(jobs=(new,), more=(new.data,) * 4_999))
    before = memory_mb()
    deaf = [Deaf(served.port, "Session", pages(100_000)) for _ in range(3)]
    start = FromWorker(start={"tasks": ["work"], "lease_ms": 600_000}, credit=1_000_000)
    deaf.append(Deaf(served.port, "Work", iter([start.SerializeToString()])))

    until(lambda: client.ask(q.GetTime()) > 0 and len(served.given_up()) >= len(deaf) - 1)
    # The worker has confirmed none of its jobs: all are given back.
    until(lambda: client.ask(q.CountReady()) == 5_000)

    assert all(one.unsent < 3 * stream_module.MOST_PENDING for one in served.given_up())
    assert memory_mb() - before < 400
    # It reads again: what was sent, and how it ended.
    assert refused(lambda: list(deaf[0].call)).code() is grpc.StatusCode.UNAVAILABLE
    for one in deaf:
        one.close()
    client.channel.close()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def _nothing_until(over: threading.Event) -> Iterator[bytes]:
    over.wait()
    yield from ()


def test_slow_clients_are_cut_off_while_others_are_served(request, monkeypatch):
    """That say nothing, half of the preface, no more than it, or never end their message."""
    quick = {"grpc.server_handshake_timeout_ms": 2_000, "grpc.http2.settings_timeout": 2_000}
    options = [(name, quick.get(name, value)) for name, value in OPTIONS]
    monkeypatch.setattr("holdfast.serve.grpc.service.OPTIONS", options)
    monkeypatch.setattr(calls_module, "READ_S", 2.0)
    served, over = request.getfixturevalue("served"), threading.Event()
    client = Client(served.port)
    socks = [socket.create_connection(("127.0.0.1", served.port), timeout=LONG_S) for _ in range(150)]
    for n, sock in enumerate(socks):
        sock.sendall((b"", PREFACE[:9], PREFACE + SETTINGS)[n % 3])
    add = client.channel.stream_unary(f"/{SERVICE.full_name}/Add")
    calls = [add.future(_nothing_until(over), timeout=LONG_S) for _ in range(50)]

    for _ in range(100):
        assert client.ask(c.Add(jobs=(c.NewJob(task="t"),)))
    for sock in socks:
        while sock.recv(4_096):
            pass
        sock.close()
    codes = {call.code() for call in calls}

    assert codes == {grpc.StatusCode.INVALID_ARGUMENT}
    assert client.ask(q.CountReady()) == 100
    over.set()
    client.channel.close()
