"""Routes commands to the committers of the shards.

ticket    ──▶ for one shard   ──▶ its committer                as on a single store
          ──▶ a claim         ──▶ the committers in turn (`sharded_claim`)
          ──▶ for several     ──▶ a multi-shard operation: a thread that asks the committers step by step
                                  (`operations`)

committer ──▶ an error that another shard may resolve   ──▶ another committer, or an operation
          ──▶ outbox messages and keys that a commit leaves ──▶ an operation
          ──▶ the jobs have moved to another store      ──▶ the connection follows them (`MoveFollower`)
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ...core import commands as c
from ...core.errors import Closed, Moved, StoreError, Unsettled
from ..batch.pointers import Elsewhere
from ..commands.keys import FreeKey, Hit, TakeKey
from ..commands.outbox import DeliverJob, RemoveMessage
from ..committer import Committer
from ..done import Done
from ..engine import Engine
from ..submitter import Submitter
from ..ticket import Ticket, deliver
from .operations import ShardOperations
from .sharded import ShardedEngine
from .sharded_answers import ShardedAnswers
from .sharded_claim import ClaimPart, ShardedClaim

# Threads for multi-shard operations; they wait for committers most of the time.
OPERATION_THREADS = 8
# Commands between shards: they mean nothing in a store with other shards.
SHARD_COMMANDS = (TakeKey, FreeKey, Hit, DeliverJob, RemoveMessage)


class MoveFollower(Protocol):
    """Submits commands to the store that this one has moved to."""

    def resubmit(self, ticket: Ticket, moved: Moved, *, by: Engine) -> bool:
        """Submit a command again that an engine has answered with `Moved`; False if that is impossible."""

    def ask_there(self, command: c.Command, moved: Moved, *, by: Engine) -> Any:
        """Ask again for a command that an engine has answered with `Moved`; returns its reply."""


class OperationTicket(Ticket):
    """A command of a multi-shard operation, which handles its errors itself."""

    __slots__ = ()


class ShardRouter(Submitter):
    """Submits commands to several shards, each with its own committer."""

    def __init__(self, engine: ShardedEngine, follower: "MoveFollower | None" = None) -> None:
        self.engine: ShardedEngine = engine
        self._follower = follower
        self._committers = [
            Committer(one, divert=self._divert, after=self._after) for one in self.engine.engines
        ]
        self._operations = ShardOperations(engine.sharded.shards, engine.ids, self._ask)
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; raises its error."""
        at = self._find_shard(command)
        return (
            super().ask(command, wait_s=wait_s)
            if at is None
            else self._committers[at].ask(command, wait_s=wait_s)
        )

    def _find_shard(self, command: c.Command) -> int | None:
        """The one shard that a command needs; None if it needs several."""
        if isinstance(command, c.AnswerAll | c.Claim | c.Enlist | c.Dismiss):
            return None
        return self._operations.find_shard(command)

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        command = ticket.command
        if isinstance(command, c.Claim):
            order = self._operations.turn()
            ShardedClaim(ticket, command, order, self._committers, self, self._follow).go()
            return
        if isinstance(command, c.AnswerAll):
            ShardedAnswers(ticket, command, self).go()
            return
        at = self._find_shard(command)
        if at is not None:
            self._committers[at].submit(ticket)
        elif not self._run_in_pool(lambda: self._run_operation(ticket)):
            raise Closed

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed in any shard."""
        for committer in self._committers:
            committer.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        for committer in self._committers:
            committer.unlisten(listener)

    def close(self) -> None:
        """Commit what is pending, answer waiting callers, and close the shards."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.shutdown()
        for committer in self._committers:
            committer.close()
        self.engine.close()

    def _ask(self, at: int, command: c.Command) -> Any:
        """Run one step of a multi-shard operation; returns its reply or raises its error."""
        ticket = OperationTicket(command)
        self._committers[at].submit(ticket)
        reply = ticket.wait_for_reply()
        if (
            isinstance(reply, Moved)
            and self._follower is not None
            and not isinstance(command, SHARD_COMMANDS)
        ):
            # Earlier steps of the operation stay done: only this step goes to the new store.
            return self._follower.ask_there(command, reply, by=self.engine)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _follow(self, ticket: Ticket, reply: Any) -> bool:
        """Submit a command to the new store if its reply says that the jobs have moved; else False."""
        if self._follower is None or not isinstance(reply, Moved):
            return False
        return self._follower.resubmit(ticket, reply, by=self.engine)

    def _run_in_pool(self, operation: Callable[[], None]) -> bool:
        """Run an operation in a thread, since a committer must not wait for another; False if closed."""
        with self._lock:
            if self._closed:
                return False
            if self._pool is None:
                self._pool = ThreadPoolExecutor(OPERATION_THREADS, thread_name_prefix="holdfast-shards")
            self._pool.submit(operation)
            return True

    def _run_operation(self, ticket: Ticket) -> None:
        try:
            reply: Any = self._operations.do(ticket.command)
        except Exception as error:
            reply = error
        if not self._follow(ticket, reply) and ticket.answer(reply):
            deliver([ticket], self.give_back)

    def _divert(self, ticket: Ticket, error: Exception) -> bool:
        """Take over a ticket whose error another shard may resolve; else False."""
        if isinstance(error, Moved) and not isinstance(ticket, OperationTicket | ClaimPart):
            return self._follow(ticket, error)
        again = isinstance(error, StoreError) and not isinstance(error, Unsettled)
        if not isinstance(error, Elsewhere) and not (again and self._operations.is_free(ticket.command)):
            return False
        return not isinstance(ticket, OperationTicket) and self._run_in_pool(
            lambda: self._run_operation(ticket)
        )

    def _after(self, done: Done) -> None:
        """Deliver the outbox messages, and free the keys, that a commit leaves for other shards."""
        if done.outbox:
            self._run_in_pool(lambda: self._operations.deliver(done.outbox))
        if done.freed:
            self._run_in_pool(lambda: self._operations.freed(done.freed))
