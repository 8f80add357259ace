"""A queue's session inside an executor: commands of handlers go to the supervisor, which commits them.

It has the interface of `queue.base.QueueSession` and of its connection, so that the verbs of a queue need not
know where they run. Queries, and commands in a transaction of the handler, go to the store directly.
"""

import asyncio
import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...core import commands as c
from ...core.queries import Query
from ...engine.connection import Connection
from ...engine.makers import open_connection
from ...queue.base import Maker
from ...queue.lease import Lease
from ...queue.timers import TimerThread
from ..messages import CommandReply, CommandRequest, check_fields, read_reply


class SupervisedEngine:
    """Runs commands in transactions of the handler, without the supervisor. Opens the store on first use."""

    def __init__(self, make_store: Maker) -> None:
        self._make_store = make_store
        self._opened: Connection | None = None
        self._lock = threading.Lock()

    @property
    def connection(self) -> Connection:
        """The executor's own connection to the store."""
        with self._lock:
            if self._opened is None:
                self._opened = open_connection(self._make_store, rng=random.random)
            return self._opened

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run a command in the handler's own transaction."""
        return self.connection.engine.execute_in(connection, command)

    async def execute_in_async(self, connection: Any, command: c.Command) -> Any:
        """Run a command in the handler's own asyncio transaction."""
        return await self.connection.engine.execute_in_async(connection, command)


class _Call:
    """A thread that waits for a reply."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.message: CommandReply | None = None

    def resolve(self, message: CommandReply) -> None:
        """Wake the thread with its reply."""
        self.message = message
        self.arrived.set()


class _AsyncCall:
    """A coroutine that waits for a reply."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[CommandReply] = self._loop.create_future()

    def resolve(self, message: CommandReply) -> None:
        """Wake the coroutine with its reply, unless it was cancelled."""
        self._loop.call_soon_threadsafe(self._set_result, message)

    def _set_result(self, message: CommandReply) -> None:
        if not self.future.done():
            self.future.set_result(message)


class SupervisedSession:
    """The session of one queue in an executor, and its connection in one."""

    def __init__(
        self,
        make_store: Maker,
        send: Callable[[Sequence[CommandRequest]], None],
        *,
        queue_index: int = 0,
    ) -> None:
        self._queue_index = queue_index
        self.pid = os.getpid()
        self.engine = SupervisedEngine(make_store)
        self.connection = self
        self.renewer = self
        self._send = send
        self._calls: dict[int, _Call | _AsyncCall] = {}
        self._count = 0
        self._lock = threading.Lock()
        self.timers = TimerThread()

    def _send_request(self, call: _Call | _AsyncCall, command: c.Command, wait_s: float) -> None:
        check_fields(command)
        with self._lock:
            self._count += 1
            number = self._count
            self._calls[number] = call
        self._send([self._make_request(number, command, wait_s)])

    def _make_request(self, number: int, command: Any, wait_s: float) -> CommandRequest:
        return CommandRequest(number=number, command=command, wait_s=wait_s, queue_index=self._queue_index)

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Return the supervisor's reply to a command, or raise its error. Queries go to the store."""
        if isinstance(asked, Query):
            return self.engine.connection.ask(asked)
        call = _Call()
        self._send_request(call, asked, wait_s)
        call.arrived.wait()
        assert call.message is not None
        return read_reply(asked, call.message)

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """The same for coroutines; none of them needs a thread to wait in."""
        if isinstance(asked, Query):
            return await asyncio.to_thread(self.ask, asked)
        call = _AsyncCall()
        self._send_request(call, asked, wait_s)
        return read_reply(asked, await call.future)

    def send(self, command: c.Command) -> None:
        """Have the supervisor run a command without waiting for its reply; errors are ignored."""
        self._send([self._make_request(0, command, 0.0)])

    def on_reply(self, message: CommandReply) -> None:
        """Give a reply of the supervisor to the caller that waits for it."""
        with self._lock:
            call = self._calls.pop(message.number, None)
        if call is not None:
            call.resolve(message)

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Do nothing: the supervisor sends a message when a job should stop."""
        return lambda: None

    def watch(self, lease: Lease) -> None:
        """Do nothing: the supervisor renews leases."""

    def close(self) -> None:
        """Do nothing: the executor closes its socket when it ends."""
