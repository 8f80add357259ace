"""What an executor sends to its supervisor: how jobs start and end, and the commands of their handlers."""

import asyncio
import os
import random
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ...core import commands as c
from ...core.queries import Query
from ...engine.connection import Connection
from ...engine.makers import open_connection
from ...engine.ticket import Submitter, Ticket, deliver
from ...queue.base import Maker
from ...queue.lease import Lease, Renewer
from ...queue.timers import TimerThread
from ...store.common.clock import monotonic_s
from ..messages import (
    CommandReply,
    CommandRequest,
    ExecutorMessage,
    JobStarted,
    check_fields,
    encode_frame,
    read_reply,
)

if TYPE_CHECKING:
    from ...engine.engine import AnyEngine

# How long the start of a job is held back, and messages of the event loop at most.
LATE_S = 0.1


class Sender:
    """Sends messages to the supervisor. Thread-safe.

    Starts are sent late, by a thread: most jobs end before that, and then their start is not sent at all. The
    lock of a job tells that it has started, also if this process cannot (`start_locks`). Messages of the
    event loop are sent once in each of its iterations, or by the thread if a handler blocks the loop.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._send, self._loop = sock.sendall, loop
        self._lock = threading.Lock()
        # The starts by number, and the messages of the loop.
        self._starts: dict[int, JobStarted] = {}
        self._of_loop: deque[ExecutorMessage] = deque()
        self._flush_lock = threading.Lock()
        self._is_scheduled = False
        self._has_messages = threading.Event()
        threading.Thread(target=self._send_late, name="sender", daemon=True).start()

    def send(self, messages: Sequence[ExecutorMessage]) -> None:
        """Send messages in order. Once this returns, the supervisor gets them even if this process dies."""
        data = encode_frame(messages)
        with self._lock:
            try:
                self._send(data)
            except OSError:
                exit_orphaned()

    def put_start(self, message: JobStarted) -> None:
        """Send that a job has started, unless it ends soon."""
        self._starts[message.number] = message
        if not self._has_messages.is_set():
            self._has_messages.set()

    def take_start(self, number: int) -> JobStarted | None:
        """Remove and return the start of a job, if it was not sent yet."""
        return self._starts.pop(number, None)

    def put_on_loop(self, message: ExecutorMessage) -> None:
        """Send a message of the event loop, with all others of this iteration."""
        self._of_loop.append(message)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_scheduled)
        if not self._has_messages.is_set():
            self._has_messages.set()

    def _send_scheduled(self) -> None:
        self._is_scheduled = False
        self.flush()

    def _send_late(self) -> None:
        while True:
            self._has_messages.wait()
            time.sleep(LATE_S)
            # Before sending: what is put from now on sets it again.
            self._has_messages.clear()
            self.flush(self._starts)

    def flush(self, starts: dict[int, JobStarted] | None = None) -> None:
        """Send the messages of the loop; once this returns, also those that the thread has taken."""
        try:
            with self._flush_lock:
                messages: list[ExecutorMessage] = []
                # Others may put or drop some meanwhile: single operations are atomic.
                while starts:
                    with suppress(KeyError):
                        messages.append(starts.popitem()[1])
                while self._of_loop:
                    messages.append(self._of_loop.popleft())
                if messages:
                    self.send(messages)
        except BaseException:
            exit_broken()


def exit_orphaned() -> NoReturn:
    """Exit at once: the supervisor has ended, and no process renews the leases of the jobs that run here."""
    os._exit(1)


def exit_broken() -> NoReturn:
    """Exit with the traceback of an error that is ours: otherwise jobs would run here without an end."""
    try:
        traceback.print_exc()
    finally:
        os._exit(1)


class SupervisedSession(Submitter):
    """The session of one queue in an executor, and its connection: the supervisor commits its commands.

    It has the interface of `queue.base.QueueSession` and of its connection, so that the verbs of a queue need
    not know where they run. Queries, and commands in a transaction of the handler, go to the store directly.
    A handler may be interrupted while it waits: jobs that were claimed for it are then released.
    """

    def __init__(
        self,
        make_store: Maker,
        send: Callable[[Sequence[CommandRequest]], None],
        *,
        queue_index: int = 0,
    ) -> None:
        self._queue_index = queue_index
        self.pid = os.getpid()
        self.connection = self
        # For jobs that handlers claim. The supervisor renews the leases of those that it has delivered.
        self.renewer = Renewer(self)
        self._send = send
        self._tickets: dict[int, Ticket] = {}
        self._count = 0
        self._lock = threading.Lock()
        self.timers = TimerThread()
        self._make_store = make_store
        self._opened: Connection | None = None
        self._opening = threading.Lock()

    @property
    def engine(self) -> "AnyEngine":
        """Runs commands in transactions of the handler, without the supervisor."""
        return self._store_connection.engine

    @property
    def _store_connection(self) -> Connection:
        """The executor's own connection to the store, opened on first use."""
        with self._opening:
            if self._opened is None:
                self._opened = open_connection(self._make_store, rng=random.random)
            return self._opened

    def submit(self, ticket: Ticket) -> None:
        """Have the supervisor run a command; its ticket will be answered."""
        check_fields(ticket.command)
        with self._lock:
            self._count += 1
            number = self._count
            self._tickets[number] = ticket
        wait_s = max(ticket.deadline_s - monotonic_s(), 0.0) if ticket.deadline_s else 0.0
        self._send([self._make_request(number, ticket.command, wait_s)])

    def _make_request(self, number: int, command: Any, wait_s: float) -> CommandRequest:
        return CommandRequest(number=number, command=command, wait_s=wait_s, queue_index=self._queue_index)

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Return the supervisor's reply to a command, or raise its error. Queries go to the store."""
        if isinstance(asked, Query):
            return self._store_connection.ask(asked)
        return super().ask(asked, wait_s=wait_s)

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """The same for coroutines; none of them needs a thread to wait in."""
        if isinstance(asked, Query):
            return await asyncio.to_thread(self.ask, asked)
        return await super().ask_async(asked, wait_s=wait_s)

    def send(self, command: c.Command) -> None:
        """Have the supervisor run a command without waiting for its reply; errors are ignored."""
        self._send([self._make_request(0, command, 0.0)])

    def on_reply(self, message: CommandReply) -> None:
        """Give a reply of the supervisor to the caller that waits for it."""
        with self._lock:
            ticket = self._tickets.pop(message.number, None)
        if ticket is None:
            return
        try:
            reply = read_reply(ticket.command, message)
        except Exception as error:
            reply = error
        if ticket.answer(reply):
            deliver([ticket], self.give_back)
        else:
            ticket.reply = reply
            self.give_back(ticket)

    def follow(self, lease: Lease) -> Callable[[], None]:
        """Do nothing: the supervisor sends a message when a job should stop."""
        return lambda: None

    def close(self) -> None:
        """Do nothing: the executor closes its socket when it ends."""
