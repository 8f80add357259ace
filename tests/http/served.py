"""An HTTP server in a thread, and a client that keeps its connection."""

import asyncio
import http.client
import json
import random
import socket
import threading
from typing import Any

from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.token import Token, hash_of, secret_of
from holdfast.engine.makers import open_connection
from holdfast.serve.config import Options
from holdfast.serve.guard import Guard
from holdfast.serve.http.service import HttpService
from holdfast.serve.service import ListenAddress

SECONDS = 60


class Reply:
    """A reply taken apart."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        """The body, which is JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The body, which is NDJSON."""
        return [json.loads(line) for line in self.body.splitlines()]

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:500]!r}"


class Client:
    """One client, with one connection."""

    def __init__(self, address: tuple[str, int], secret: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=SECONDS)
        self._secret = secret

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """Send a request; the reply. A body that is no bytes goes as JSON."""
        said = dict(headers or {})
        if self._secret is not None:
            said.setdefault("Authorization", f"Bearer {self._secret}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            said.setdefault("Content-Type", "application/json")
        self._connection.request(method, path, body, said)
        found = self._connection.getresponse()
        return Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """POST."""
        return self.ask("POST", path, body, headers)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """What is replied to a request that goes well."""
        reply = self.ask(method, path, body)
        assert reply.status < 300, (method, path, reply)
        return reply.json if reply.body else None

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Served:
    """A server on a store. `token_always` has it behave as beyond loopback."""

    def __init__(self, open_store: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="http server")
        self._thread.start()
        self.connection = open_connection(open_store, rng=random.random)
        self._options = Options(store="", http=ListenAddress("127.0.0.1", 0), **options)
        self.service, self.address = self._run(self._start())

    async def _start(self) -> tuple[HttpService, tuple[str, int]]:
        guard = Guard(self.connection, always=self._options.token_always, rate=self._options.rate)
        door = HttpService(self.connection, guard, self._options)
        (line,) = await door.start()
        return door, ("127.0.0.1", int(line.rpartition(":")[2]))

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def client(self, secret: str | None = None) -> Client:
        """Another client."""
        return Client(self.address, secret)

    def token(self, name: str, *scopes: Scope, tenant: str | None = None, expires_in_ms: int = 0) -> str:
        """The secret of a new token."""
        secret = secret_of(name, random.randbytes(24))
        token = Token(name=name, scopes=scopes or tuple(Scope), tenant=tenant, hash=hash_of(secret))
        self.connection.ask(c.CreateToken(token=token, expires_in_ms=expires_in_ms))
        return secret

    def raw(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(self.address, timeout=SECONDS)

    def drain(self) -> None:
        """What SIGTERM does."""
        self._run(self.service.drain())

    def close(self) -> None:
        """Stop it."""
        self.drain()
        self.connection.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


def lines_of(sock: socket.socket, wanted: Any) -> bytes:
    """The events of a stream until one is wanted."""
    found = b""
    while not wanted(found):
        part = sock.recv(65536)
        if not part:
            break
        found += part
    return found
