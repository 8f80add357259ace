"""A queue's line inside an executor: what handlers ask goes through the supervisor.

It has the same face as `queue.base.Line`, so that the verbs of a queue do not know the difference.
Questions that change nothing, and transactions on the handler's own connection, go to the store
directly.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import commands as c
from ..engine.engine import Engine
from ..queue.lease import Lease
from ..store.contract import ReadTxn, Store
from .messages import Asked, Told, read_reply

T = TypeVar("T")


class SupervisedEngine:
    """The store for what needs no supervisor."""

    def __init__(self, make_store: Callable[[], Store]) -> None:
        self._make_store = make_store
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def _opened(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = Engine(self._make_store(), dice=lambda: 0.5)
            return self._engine

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Look at the store."""
        return self._opened().read(fn)

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run a command inside the handler's own transaction."""
        return self._opened().execute_in(connection, command)


class _Call:
    """A thread that waits for a reply."""

    def __init__(self, command: c.Command) -> None:
        self.command = command
        self.arrived = threading.Event()
        self.message: Told | None = None


class SupervisedLine:
    """The line of one queue in an executor."""

    def __init__(
        self, make_store: Callable[[], Store], send: Callable[[Asked], None], *, at: int = 0
    ) -> None:
        self._at = at
        self.pid = os.getpid()
        self.engine = SupervisedEngine(make_store)
        self.committer = self
        self.renewer = self
        self._send = send
        self._calls: dict[int, _Call] = {}
        self._count = 0
        self._lock = threading.Lock()

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Have the supervisor run a command; its reply, or what it raised."""
        call = _Call(command)
        with self._lock:
            self._count += 1
            number = self._count
            self._calls[number] = call
        self._send(Asked(number=number, command=command, wait_s=wait_s, at=self._at))  # type: ignore[arg-type]
        call.arrived.wait()
        assert call.message is not None
        return read_reply(command, call.message)

    async def ask_async(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """The same for coroutines."""
        return await asyncio.to_thread(self.ask, command, wait_s=wait_s)

    def told(self, message: Told) -> None:
        """A reply has come."""
        with self._lock:
            call = self._calls.pop(message.number, None)
        if call is not None:
            call.message = message
            call.arrived.set()

    def watch(self, lease: Lease) -> None:
        """Leases are the supervisor's affair."""

    def close(self) -> None:
        """The line is the executor's, and ends with it."""
