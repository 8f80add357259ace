"""The cheapest bytes that a client can send to every method, path and command of a server.

Each row is refused or answered, and costs the server processor time and memory in proportion to its bytes.
The rows are made of the methods, paths and commands themselves: a new one is tried without being named here.
"""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
import msgspec
import pytest
from msgspec import inspect

from holdfast.core.access import RULES, Scope
from holdfast.engine.makers import open_connection
from holdfast.proto.conversion import BY_NAME, SERVICE
from holdfast.queue.connect import store_maker
from holdfast.serve.bedrock.commands import COMMANDS
from holdfast.serve.dashboard.app import Dashboard
from holdfast.serve.grpc.decoding import is_list
from holdfast.serve.grpc.service import GrpcService
from holdfast.serve.guard import Guard
from holdfast.serve.http.api import PLANS, application
from holdfast.serve.http.documents import NO_TYPE
from holdfast.serve.http.exchange import Exchange
from holdfast.serve.service import ListenAddress
from holdfast.store.memory.store import MemoryStore
from tests.http.served import Client
from tests.http.served import Served as HttpServed

SECONDS = 120
# What a request of a few bytes may cost, and a megabyte of it. On a machine without other load the costliest
# take 0.1 s and three times their bytes; an `Add` of a megabyte of empty jobs took 1.9 s and 265 MB.
CPU_S, CPU_S_PER_MB = 0.3, 0.5
MEMORY_MB, MEMORY_MB_PER_MB = 16.0, 12.0


class Serving(NamedTuple):
    """A server process that asks for tokens: where it listens, and the secrets of its tokens."""

    pid: int
    ports: dict[str, int]
    # By its only scope; and of all scopes.
    secrets: dict[str, str]

    def cost_of(self, send: Callable[[], object]) -> tuple[float, float]:
        """The processor time in seconds, and the memory in MB, that something takes the server."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        before_s, before_mb = self._cpu_s(), self._memory_mb("VmRSS")
        send()
        return self._cpu_s() - before_s, self._memory_mb("VmHWM") - before_mb

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _memory_mb(self, name: str) -> float:
        found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server of all kinds."""
    folder = tmp_path_factory.mktemp("cheap")
    made = HttpServed(store_maker(str(folder / "jobs.db")))
    secrets = {str(scope): made.token(str(scope), scope) for scope in Scope} | {"all": made.token("all")}
    made.close()
    where = [word for kind in ("http", "grpc", "bedrock") for word in (f"--{kind}", "127.0.0.1:0")]
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast",
            "serve",
            "--store",
            "jobs.db",
            "--token-always",
            "--no-handlers",
            *where,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.findall(r"(http|grpc|job commands) on 127.0.0.1:(\d+)", line)
        yield Serving(process.pid, {name: int(port) for name, port in found}, secrets)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def too_costly(serving: Serving, rows: Iterator[tuple[str, int, Callable[[], object]]]) -> list[str]:
    """The rows that cost more than their bytes allow: name, bytes, and what sends them."""
    found: list[str] = []
    for name, size, send in rows:
        sent_mb = size / 1e6
        # What the server does for the first time, or beside it, counts too: so again, if it was much.
        for _ in range(3):
            cpu_s, memory_mb = serving.cost_of(send)
            most_s, most_mb = CPU_S + CPU_S_PER_MB * sent_mb, MEMORY_MB + MEMORY_MB_PER_MB * sent_mb
            if cpu_s <= most_s and memory_mb <= most_mb:
                break
        else:
            found.append(f"{name}: {cpu_s:.2f} s and {memory_mb:.0f} MB for {sent_mb:.2f} MB")
    return found


T = TypeVar("T")


def some(found: Iterable[T], *, of: str, most: int) -> list[T]:
    """Some of the rows of one method or path: always the first, and of the others not the same each time."""
    first, *rest = found
    return [first, *random.Random(of).sample(rest, min(most - 1, len(rest)))]


def scopes_without(kind: type) -> Iterator[str]:
    """The names of tokens that do not allow a command or query."""
    return (str(scope) for scope in Scope if scope not in RULES[kind][0])


# gRPC


@cache
def methods() -> dict[str, Any]:
    """The descriptors of the requests of all methods that a server has, by their paths."""
    connection = open_connection(MemoryStore, rng=lambda: 0.5)
    served = GrpcService(connection, Guard(connection), ListenAddress("127.0.0.1", 0))._handlers()
    connection.close()
    own = {f"/{SERVICE.full_name}/{method.name}": method.input_type for method in SERVICE.methods}
    return {path: own.get(path) for path in served}


def varint(number: int) -> bytes:
    """A number as it is on the wire."""
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def cheapest(descriptor: Any, size: int, around: tuple[str, ...] = ()) -> Iterator[tuple[str, bytes]]:
    """Messages of about this size: each field as short as it can be, repeated; and such ones in messages."""
    if descriptor.full_name in around:
        return
    for field in sorted(descriptor.fields, key=lambda one: not is_list(one)):
        is_number = field.message_type is None and field.cpp_type != field.CPPTYPE_STRING
        if is_list(field) and is_number:
            yield field.name, varint(field.number << 3 | 2) + varint(size) + bytes(size)
        elif field.message_type is not None or is_list(field):
            one = varint(field.number << 3 | 2) + b"\0"
            yield field.name, one * (size // len(one))
        if field.message_type is not None and len(around) < 3:
            for name, inside in cheapest(field.message_type, size, (*around, descriptor.full_name)):
                tag = varint(field.number << 3 | 2)
                yield f"{field.name}.{name}", tag + varint(len(inside)) + inside
    if not around:
        nested = b""
        while len(nested) < 150:
            # The deepest that the decoder takes: a follow-up job of a follow-up job …
            nested = b"\xb2\x01" + varint(len(nested)) + nested
        one = b"\x0a" + varint(len(nested)) + nested
        yield "nested", one * (size // len(one))
        yield "numbers", b"\x08\x00" * (size // 2)
        yield "nothing known", b"\xf8\x07\x00" * (size // 3)


def grpc_rows(
    serving: Serving, size: int, most: int = 1_000
) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Every method: its cheapest messages with all scopes; one with the wrong scope, and without a token."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{serving.ports['grpc']}", options=options) as channel:

        def send(path: str, raw: bytes, secret: str) -> Callable[[], object]:
            def call() -> None:
                metadata = [("authorization", f"Bearer {secret}")] if secret else []
                kind = channel.stream_stream if path.rpartition("/")[2] in STREAMS else channel.unary_unary
                try:
                    asked = kind(path)(
                        iter([raw]) if kind == channel.stream_stream else raw,
                        metadata=metadata,
                        timeout=SECONDS,
                    )
                    if path.endswith("/Watch"):
                        # It has no end.
                        next(asked)
                        asked.cancel()
                    elif kind == channel.stream_stream:
                        list(asked)
                except grpc.RpcError as error:
                    assert error.code() is not grpc.StatusCode.INTERNAL, (path, error)  # noqa: PT017

            return call

        for path, descriptor in methods().items():
            verb, few = BY_NAME.get(path.rpartition("/")[2]), b"\x0a\x00" * (size // 2)
            yield f"{path} without a token", size, send(path, few, "")
            for scope in list(scopes_without(verb.kind))[:1] if verb is not None else ():
                yield f"{path} with scope {scope}", size, send(path, few, serving.secrets[scope])
            rows = [("", few)] if descriptor is None else cheapest(descriptor, size)
            for name, raw in some(rows, of=path, most=most):
                yield f"{path} {name}", len(raw), send(path, raw, serving.secrets["all"])


STREAMS = ("Session", "Work", "Watch", "ServerReflectionInfo")


def test_a_small_message_costs_no_grpc_method_more_than_its_bytes_allow(serving):
    """Also with another scope, and without a token."""
    assert too_costly(serving, grpc_rows(serving, 300_000, most=1)) == []


@pytest.mark.proof
def test_a_large_message_costs_no_grpc_method_more_than_its_bytes_allow(serving):
    """The same with sixteen times the bytes."""
    assert too_costly(serving, grpc_rows(serving, 16_000_000)) == []


# HTTP


@cache
def paths() -> list[tuple[str, str]]:
    """All methods and paths that a server answers, those of the dashboard too."""
    connection = open_connection(MemoryStore, rng=lambda: 0.5)
    exchange = Exchange(connection, Guard(connection), loopback=False, max_body_bytes=1)
    router = application(exchange)
    Dashboard(exchange).add_to(router)
    connection.close()
    known = router._exact | {path: found for path, (_, found) in router._patterns.items()}
    return [(method, path) for path, found in known.items() for method in found]


LISTS = {(p.route.method, p.route.path): p.type for p in PLANS}


def bodies(method: str, path: str, size: int) -> Iterator[tuple[str, str, bytes]]:
    """The cheapest bodies of a path: a name, the type of the content, and the bytes."""
    kind = LISTS.get((method, path))
    for field in () if kind is None else inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        shown = msgspec.json.schema(msgspec.defstruct("One", [("one", kind.__annotations__[field.name])]))
        for element in (
            (b"{}", b'""', b"1", b"[]", b'{"task":"t"}') if '"array"' in str(shown).replace("'", '"') else ()
        ):
            many = b",".join([element] * (size // (len(element) + 1)))
            yield (
                f"{field.name} of {element!r}",
                "application/json",
                b'{"%s":[%s]}' % (field.name.encode(), many),
            )
    yield "empty lines", "application/x-ndjson", b"\n" * size
    yield "fields", "application/x-www-form-urlencoded", b"a&" * (size // 2)
    yield "escapes", "application/x-www-form-urlencoded", b"%41" * (size // 3)
    yield "lists in lists", "application/json", b"[" * size
    yield "objects in objects", "application/json", b'{"a":' * (size // 5)
    yield "keys", "application/json", b"{" + b",".join(b'"%x":0' % n for n in range(size // 9)) + b"}"
    yield "a number", "application/json", b"1" * size


def http_rows(
    serving: Serving, size: int, most: int = 1_000
) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Every path: all its cheapest bodies, or queries, with all scopes; one of them without a token."""
    address = ("127.0.0.1", serving.ports["http"])

    def send(method: str, path: str, kind: str, raw: bytes, secret: str | None) -> Callable[[], object]:
        def request() -> None:
            at = re.sub(r"{[^}]+}", "5", path)
            with Client(address, secret) as client:
                try:
                    reply = client.ask(method, at, raw or None, {"Content-Type": kind})
                except ConnectionError:
                    # Refused before it had read all.
                    return
            # But for the one 500 that a document asks for.
            assert reply.status not in (500, 502) or NO_TYPE in str(reply), (method, path, reply)

        return request

    for method, path in paths():
        secret = serving.secrets["all"]
        if path in ("/live", "/v1/events", "/v1/jobs/{job_id}/events"):
            # They have no end, and no body.
            continue
        if method in ("GET", "DELETE"):
            query = f"{path}?{'a&' * 30_000}"
            yield f"{method} {path} of a long query", 60_000, send(method, query, "", b"", secret)
            continue
        yield f"{method} {path} without a token", size, send(method, path, "text/plain", b"\n" * size, None)
        for name, kind, raw in some(bodies(method, path, size), of=path, most=most):
            yield f"{method} {path} {name}", len(raw), send(method, path, kind, raw, secret)


def test_a_small_body_costs_no_http_path_more_than_its_bytes_allow(serving):
    """Also without a token."""
    assert too_costly(serving, http_rows(serving, 300_000, most=1)) == []


@pytest.mark.proof
def test_a_large_body_costs_no_http_path_more_than_its_bytes_allow(serving):
    """The same with sixteen megabytes."""
    assert too_costly(serving, http_rows(serving, 16_000_000)) == []


# The job-command port

VALUES = {
    "lines": b"\n ",
    "lines of text": b"xy\n ",
    "line breaks": b"\r",
    "escapes": b"\\a",
    "characters": b"\\u0041",
    "characters and text": b"\\u4e00ab",
    "commas": b",",
    "lists in lists": b"[",
    "objects in objects": b'{"a":',
    "empty objects": b"{},",
    "empty lists": b"[],",
    "keys": b'"a":0,',
    "numbers": b"1,",
    "a number": b"1",
}


def port_rows(
    serving: Serving, size: int, most: int = 1_000
) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Every command: each long header of the cheapest values, with a token and without."""

    def send(raw: bytes) -> Callable[[], object]:
        def request() -> None:
            with socket.create_connection(("127.0.0.1", serving.ports["job commands"]), SECONDS) as client:
                client.sendall(raw)
                assert not client.recv(65_536).startswith(b"500")

        return request

    for verb in (*COMMANDS, "Unknown"):
        for header in (b"data", b"jobs", b"jobIDs", b"query"):
            for name, value in some(VALUES.items(), of=f"{verb} {header!r}", most=most):
                many = value * (size // len(value))
                many = b"[" + many + b"{}]" if value.endswith((b"],", b"},")) else many
                many = b"{" + many + b'"b":0}' if value.endswith(b"0,") else many
                raw = b"%s\nname: a\njobID: 5\ntoken: %%s\n%s: %s\n\n" % (verb.encode(), header, many)
                for secret in (
                    (serving.secrets["all"], "") if header == b"data" else (serving.secrets["all"],)
                ):
                    shown = f"{verb} {header.decode()} of {name}{'' if secret else ' without a token'}"
                    yield shown, len(raw), send(raw.replace(b"%s", secret.encode(), 1))


def test_a_small_header_costs_no_port_command_more_than_its_bytes_allow(serving):
    """Also without a token."""
    assert too_costly(serving, port_rows(serving, 300_000, most=1)) == []


@pytest.mark.proof
def test_a_large_header_costs_no_port_command_more_than_its_bytes_allow(serving):
    """The same with eight megabytes."""
    assert too_costly(serving, port_rows(serving, 8_000_000)) == []
