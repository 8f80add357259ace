"""Shards as a queue uses them: commands go to a `StoreConnection`, and its router asks the shards.

Two sides are compared, so everything happens in one order: one command to several shards after the other, and
the answers for one shard after those for another.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from holdfast.core import commands as c
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.engine.sharding.router import AnswerPart, ShardRouter
from holdfast.engine.store_connection import StoreConnection
from holdfast.engine.ticket import Done, Ticket
from holdfast.store.contract import AnyStore


class OperationPool(ThreadPoolExecutor):
    """Runs one operation after the other, and keeps what becomes of them."""

    def __init__(self) -> None:
        super().__init__(1)
        self._futures: deque[Future[Any]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """As any pool."""
        self._futures.append(super().submit(fn, *args, **options))
        return self._futures[-1]

    def wait(self) -> None:
        """Wait for the operations; raises what one of them has raised, which a queue would never see."""
        while self._futures:
            self._futures.popleft().result()


class RoutedEngine:
    """Runs commands through a connection, and tells what their transactions did."""

    def __init__(self, store: AnyStore, *, retention_ms: int | None = None, rng: Callable[[], float]) -> None:
        self.connection = StoreConnection(store, retention_ms=retention_ms, rng=rng)
        self.store, self.ids = store, self.connection.engine.ids
        router = self.connection._submitter
        assert isinstance(router, ShardRouter)
        self._router, self._pool = router, OperationPool()
        router._pool = self._pool
        self._submit = router.submit
        router.submit = self._submit_in_order  # type: ignore[method-assign]
        # The transactions of the current command.
        self._done: list[Done] = []
        for engine in router.engine.engines:
            engine.execute = partial(self._execute, engine.execute)  # type: ignore[method-assign]
        self._asks = False

    def execute(self, commands: Sequence[c.Command]) -> Done:
        """The replies, and what all transactions did: those of the commands, and those that these led to."""
        self._asks = not self._asks
        whole = Done(replies=self._ask_each(commands) if self._asks else self._submit_all(commands))
        self._pool.wait()
        for done in self._done:
            _join(whole, done)
        self._done.clear()
        for reply in whole.replies:
            if isinstance(reply, Exception) and not _is_refusal(reply):
                raise reply
        return whole

    def _execute(
        self, execute: Callable[..., Done], commands: Sequence[c.Command], done: Done | None = None
    ) -> Done:
        self._done.append(execute(commands, done))
        return self._done[-1]

    def _ask_each(self, commands: Sequence[c.Command]) -> list[Any]:
        """As a thread does, which commits by itself where one shard is enough."""
        replies: list[Any] = []
        for command in commands:
            try:
                replies.append(self.connection.ask(command))
            except HoldfastError as error:
                replies.append(error)
        return replies

    def _submit_all(self, commands: Sequence[c.Command]) -> list[Any]:
        """As a coroutine does, or a server: all at once, and the replies as they come."""
        tickets = [Ticket(command) for command in commands]
        self.connection.submit_all(tickets)
        return [ticket.wait_for_reply() for ticket in tickets]

    def _submit_in_order(self, ticket: Ticket) -> None:
        """Submit a command; one of many answers is waited for, before the next goes to another shard."""
        if not isinstance(ticket, AnswerPart):
            self._submit(ticket)
            return
        on_reply, replied = ticket._on_reply, threading.Event()

        def note(reply: Any) -> None:
            on_reply(reply)
            replied.set()

        ticket._on_reply = note
        self._submit(ticket)
        replied.wait()

    def end(self) -> None:
        """End the threads; the store stays open."""
        self._pool.shutdown()
        for committer in self._router._committers:
            committer._waiter.close()


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, HoldfastError) and not isinstance(error, StoreError)


def _join(whole: Done, done: Done) -> None:
    whole.woke = whole.woke or done.woke
    whole.ended |= done.ended
    moments = [moment for moment in (whole.next_ms, done.next_ms) if moment is not None]
    whole.next_ms = min(moments, default=None)
