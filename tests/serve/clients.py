"""A server in a thread, and clients that speak to it as the documents have it."""

import asyncio
import json
import random
import socket
import struct
import threading
from contextlib import contextmanager
from typing import Any

from holdfast.core import commands as c
from holdfast.engine.makers import open_connection
from holdfast.serve.bedrock.port import Port, PortGuard
from holdfast.serve.bedrock.server import PortServer
from holdfast.serve.guard import Guard

SECONDS = 60


class Reply:
    """A reply taken apart."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        """The body, which is JSON."""
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:200]!r}"


class Client:
    """One connection."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=SECONDS)
        self._file = self.socket.makefile("rb")

    def send(self, raw):
        """Write bytes, and wait for nothing."""
        self.socket.sendall(raw if isinstance(raw, bytes) else raw.encode())

    def receive(self):
        """The next reply, or None when the server has closed."""
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            assert line.endswith(b"\r\n")
            lines.append(line[:-2].decode())
        if not lines:
            return None
        headers = dict(line.split(": ", 1) for line in lines[1:])
        assert list(headers)[-1] == "Content-Length"
        return Reply(lines[0], headers, self._file.read(int(headers["Content-Length"])))

    def say(self, raw):
        """Write bytes; the reply."""
        self.send(raw)
        return self.receive()

    def ask(self, verb, **parameters):
        """Say a command; the reply."""
        return self.say(request(verb, **parameters))

    def ok(self, verb, **parameters):
        """Say a command that must be answered 200; the body, taken apart where there is one."""
        reply = self.ask(verb, **parameters)
        assert reply.status == "200 OK", (verb, parameters, reply)
        return reply.json if reply.body else None

    def status(self, verb, **parameters):
        """Say a command; the status line."""
        return self.ask(verb, **parameters).status

    def create(self, name="foo", **parameters):
        """CreateJob; the id."""
        return self.ok("CreateJob", name=name, **parameters)["jobID"]

    def take(self, name="foo", **parameters):
        """GetJob; the job."""
        return self.ok("GetJob", name=name, **parameters)

    def state(self, job_id):
        """QueryJob; the state, or None where there is no such job."""
        reply = self.ask("QueryJob", jobID=job_id)
        return reply.json["state"] if reply.status == "200 OK" else None

    def vanish(self):
        """Go away without a word, as the kernel does for a process that was killed with bytes unread."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        """Go away."""
        self._file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def request(verb, **parameters):
    """The bytes of a request, its values escaped as clients do."""
    lines = [verb]
    for name, value in parameters.items():
        text = value if isinstance(value, str) else json.dumps(value)
        for char, escape in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = text.replace(char, escape)
        lines.append(f"{name}: {text}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Served:
    """A job-command port, in an event loop of its own."""

    def __init__(self, open_store, *, tenant="", lease_ms=None, has_tokens=False):
        self.committer = open_connection(open_store, rng=random.random)
        self.logged = []
        self._options, self._has_tokens = {"tenant": tenant, "lease_ms": lease_ms}, has_tokens
        self._ready = threading.Event()
        self._loop: Any = None
        self._stopping: Any = None
        self.server = None
        self.address = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="serving")
        self._thread.start()
        assert self._ready.wait(SECONDS)

    async def _run(self):
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        guard = PortGuard(Guard(self.committer), tenant=self._options["tenant"], loopback=False)
        port = Port(self.committer, **self._options)
        self.server = PortServer(port, self.logged.append, guard if self._has_tokens else None)
        (address,) = await self.server.start("127.0.0.1", 0)
        host, _, number = address.rpartition(":")
        self.address = (host, int(number))
        self._ready.set()
        await self._stopping.wait()
        await self.server.drain()

    @contextmanager
    def client(self):
        """A connection."""
        with Client(self.address) as client:
            yield client

    def ask(self, command):
        """The reply to a command that comes by no port."""
        return self.committer.ask(command)

    def upkeep(self):
        """Let whatever has become true by itself be so."""
        self.ask(c.Upkeep())

    def stop(self):
        """Drain."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def close(self):
        """Drain, and let go of the store."""
        self.stop()
        self.committer.close()
        assert self.logged == []
