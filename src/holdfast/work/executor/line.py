"""A queue's line inside an executor: what handlers ask goes through the supervisor.

It has the same face as `queue.base.Line`, so that the verbs of a queue do not know the difference.
Questions that change nothing, and transactions on the handler's own connection, go to the store
directly.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...core import commands as c
from ...core.queries import Query
from ...engine.connection import Connection, open_connection
from ...queue.alarm import Alarm
from ...queue.lease import Lease
from ...store.contract import Store
from ..messages import Asked, Told, read_reply


class SupervisedEngine:
    """Transactions on the handler's own connection, which need no supervisor. Opened at the first use."""

    def __init__(self, make_store: Callable[[], Store]) -> None:
        self._make_store = make_store
        self._opened: Connection | None = None
        self._lock = threading.Lock()

    @property
    def connection(self) -> Connection:
        """The executor's own connection to the store."""
        with self._lock:
            if self._opened is None:
                self._opened = open_connection(self._make_store, dice=lambda: 0.5)
            return self._opened

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run a command inside the handler's own transaction."""
        return self.connection.engine.execute_in(connection, command)

    async def execute_in_async(self, connection: Any, command: c.Command) -> Any:
        """The same, awaited."""
        return await self.connection.engine.execute_in_async(connection, command)


class _Call:
    """A thread that waits for a reply."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.message: Told | None = None

    def hear(self, message: Told) -> None:
        """The reply has come."""
        self.message = message
        self.arrived.set()


class _AsyncCall:
    """A coroutine that waits for a reply."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Told] = self._loop.create_future()

    def hear(self, message: Told) -> None:
        """The reply has come; whoever waited may be gone."""
        self._loop.call_soon_threadsafe(self._resolve, message)

    def _resolve(self, message: Told) -> None:
        if not self.future.done():
            self.future.set_result(message)


class SupervisedLine:
    """The line of one queue in an executor."""

    def __init__(
        self, make_store: Callable[[], Store], send: Callable[[Sequence[Asked]], None], *, at: int = 0
    ) -> None:
        self._at = at
        self.pid = os.getpid()
        self.engine = SupervisedEngine(make_store)
        self.committer = self
        self.renewer = self
        self._send = send
        self._calls: dict[int, _Call | _AsyncCall] = {}
        self._count = 0
        self._lock = threading.Lock()
        self.alarm = Alarm()

    def _put(self, call: _Call | _AsyncCall, command: c.Command, wait_s: float) -> None:
        with self._lock:
            self._count += 1
            number = self._count
            self._calls[number] = call
        self._send([Asked(number=number, command=command, wait_s=wait_s, at=self._at)])  # type: ignore[arg-type]

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Have the supervisor run a command; its reply, or what it raised. A query goes to the store."""
        if isinstance(asked, Query):
            return self.engine.connection.ask(asked)
        call = _Call()
        self._put(call, asked, wait_s)
        call.arrived.wait()
        assert call.message is not None
        return read_reply(asked, call.message)

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """The same for coroutines, however many: none of them needs a thread to wait in."""
        if isinstance(asked, Query):
            return await asyncio.to_thread(self.ask, asked)
        call = _AsyncCall()
        self._put(call, asked, wait_s)
        return read_reply(asked, await call.future)

    def tell(self, command: c.Command) -> None:
        """Have the supervisor run a command, whatever comes of it."""
        self._send([Asked(number=0, command=command, at=self._at)])  # type: ignore[arg-type]

    def told(self, message: Told) -> None:
        """A reply has come."""
        with self._lock:
            call = self._calls.pop(message.number, None)
        if call is not None:
            call.hear(message)

    def follow(self, lease: Lease) -> Callable[[], None]:
        """The supervisor tells when a job is to stop."""
        return lambda: None

    def watch(self, lease: Lease) -> None:
        """Leases are the supervisor's affair."""

    def close(self) -> None:
        """The line is the executor's, and ends with it."""
