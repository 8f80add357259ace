"""The connection of a queue with a journal: adds go to the journal, everything else to the store.

    Add           ──▶ the journal, durably ──▶ its ids         ingester ──▶ the store
    ReserveIds    ──▶ the ids of the journal
    an Add that the store must decide, every other command, queries ──▶ the store

A job that the store does not have may still be in the journal: then the command waits, and is asked again.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core import commands as c
from ..core.checks import check_command
from ..core.errors import BadInput, Closed, HoldfastError, NotFound, StoreError, Unavailable
from ..core.ids import IdRange, ranges_of
from ..core.queries import HasUnfinished, Query
from ..core.slots import check_followers
from ..engine.connection import Connection
from ..engine.engine import AnyEngine
from ..engine.makers import ConnectionMaker
from ..engine.metrics import CommitMeter
from ..engine.ticket import Ticket, deliver
from ..store.common.clock import system_clock
from ..store.contract import AnyStore
from .ingester import Ingester
from .journal import Journal

# How long `close` waits for the ingester while the store is there, and for a store that does not answer.
DRAIN_S, CLOSING_S = 10.0, 2.0
# How long the first add after opening waits for a store that does not answer.
CONFIRM_S = 2.0
# How long a command waits for a job that is still in the journal, and how many wait at a time.
INGESTED_S, WAITS = 10.0, 4
# What the journal does itself, at least for some.
OWN = (c.Add, c.ReserveIds)


class JournalConnection(Connection):
    """The connection to a store by way of a journal. `connect` opens the connection to the store alone."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        connect: Callable[[], Connection],
        *,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        self._open_store = connect
        self._inner: Connection | None = None
        self._meter: CommitMeter | None = None
        # Threads for commands that wait for the ingester.
        self._waits: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        # Nothing more is accepted; and after the last try to ingest it, the store is not opened any more.
        self._is_closing = self._is_closed = False
        # The store was asked whether the number in the folder is still this journal's, or cannot be asked.
        self._may_make_ids = False
        self.journal = Journal(path, clock=clock)
        self._ingester = Ingester(self.journal, self.connect_store, clock)
        self._ingester.start()

    def connect_store(self) -> Connection:
        """The connection to the store itself, opened on first use."""
        with self._lock:
            if self._inner is None:
                if self._is_closed:
                    raise Closed
                self._inner = self._open_store()
                if self._meter is not None:
                    self._inner.measure(self._meter)
            return self._inner

    @property
    def engine(self) -> AnyEngine:
        """The engine of the store; `BadInput` where that is a server's."""
        return self.connect_store().engine

    @property
    def store(self) -> AnyStore:
        """The store itself."""
        return self.connect_store().store

    # Commands and queries

    def ask(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command or query and return its reply; raises its error."""
        if isinstance(asked, c.Add) and not needs_store(asked):
            self._ensure_ids()
            return self.journal.add(asked)
        if isinstance(asked, c.ReserveIds):
            return self._reserve_ids(asked)
        self._check_reachable(asked)
        inner = self.connect_store()
        try:
            reply = inner.ask(asked, wait_s=wait_s)
            if not _is_missing(asked, reply, wait_s):
                return reply
        except NotFound:
            pass
        self._wait_ingested()
        return inner.ask(asked, wait_s=wait_s)

    async def ask_async(self, asked: c.Command | Query, *, wait_s: float = 0.0) -> Any:
        """Run a command or query, awaiting its reply in this event loop."""
        import asyncio

        if isinstance(asked, c.Add) and not needs_store(asked):
            if not (self._may_make_ids and self.journal.ids.is_usable):
                await asyncio.to_thread(self._ensure_ids)
            ticket = Ticket(asked)
            future = ticket.for_loop(asyncio.get_running_loop())
            self.journal.submit(ticket)
            return await future
        if isinstance(asked, c.ReserveIds):
            return await asyncio.to_thread(self._reserve_ids, asked)
        self._check_reachable(asked)
        inner = self._inner if self._inner is not None else await asyncio.to_thread(self.connect_store)
        try:
            reply = await inner.ask_async(asked, wait_s=wait_s)
            if not _is_missing(asked, reply, wait_s):
                return reply
        except NotFound:
            pass
        await asyncio.to_thread(self._wait_ingested)
        return await inner.ask_async(asked, wait_s=wait_s)

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        command = ticket.command
        if isinstance(command, c.Add) and not needs_store(command):
            self._ensure_ids()
            self.journal.submit(ticket)
        elif isinstance(command, c.ReserveIds):
            ticket.answer(self._reserve_ids(command))
            deliver([ticket], self.give_back)
        elif getattr(command, "job_id", 0) and not self._ingester.has_ingested(self.journal.end):
            self._submit_later(ticket)
        else:
            self._check_reachable(command)
            self.connect_store().submit(ticket)

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Submit several commands; one that cannot be submitted is answered with the error."""
        if self._ingester.has_ingested(self.journal.end) and not any(
            isinstance(one.command, OWN) for one in tickets
        ):
            self.connect_store().submit_all(tickets)
        else:
            super().submit_all(tickets)

    def _submit_later(self, ticket: Ticket) -> None:
        """Submit a command about a job that may still be in the journal, when it is not any more."""

        def submit() -> None:
            with suppress(Unavailable):
                self._wait_ingested()
            self.connect_store().submit_all([ticket])

        with self._lock:
            if self._waits is None:
                self._waits = ThreadPoolExecutor(WAITS, thread_name_prefix="holdfast-journal-waits")
            self._waits.submit(submit)

    def appear(self, name: str) -> bool:
        """See `Store.appear`."""
        return self.connect_store().appear(name)

    def measure(self, meter: CommitMeter) -> None:
        """Have the commits to the store measured, once it is open."""
        with self._lock:
            self._meter = meter
            if self._inner is not None:
                self._inner.measure(meter)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed."""
        self.connect_store().listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        self.connect_store().unlisten(listener)

    def _reserve_ids(self, asked: c.ReserveIds) -> list[IdRange]:
        check_command(asked)
        self._ensure_ids()
        return ranges_of(self.journal.ids.make(asked.count))

    def _ensure_ids(self) -> None:
        """Take a number from the store if the journal has none whose time is not over."""
        if self._is_closing:
            raise Closed
        ids = self.journal.ids
        if not self._may_make_ids:
            # The ingester asks the store for the number first of all. Without the store it is used as it is.
            self._ingester.wait_until(lambda: not ids.is_due, CONFIRM_S)
            self._may_make_ids = True
        if not ids.is_usable:
            ids.renew(lambda command: self.connect_store().ask(command))

    def find_outage(self) -> str:
        """Why the store cannot be used now, as far as is known; "": it can."""
        return self._ingester.find_outage()

    def _check_reachable(self, asked: c.Command | Query) -> None:
        """Refuse at once an Add that the store must decide, while the store is known to be away."""
        if isinstance(asked, c.Add) and (outage := self.find_outage()):
            raise Unavailable(f"this job needs the store, which cannot be used now: {outage}")

    def _wait_ingested(self) -> None:
        """Wait until all that is in the journal now is in the store, but for jobs of shards that are down."""
        end = self.journal.end
        if not self._ingester.wait_until(lambda: self._ingester.has_ingested(end), INGESTED_S):
            raise Unavailable("this job may still be in the journal, which is not ingested; try again")

    # The end

    def wait_empty(self, limit_s: float) -> bool:
        """Wait until all is in the store; False if that takes longer, or it or a shard of it is away."""
        return self._ingester.wait_until(lambda: self.journal.is_empty, limit_s)

    def ingest(self) -> None:
        """Return when all is in the store; raises if the store cannot be used."""
        while not self.wait_empty(DRAIN_S):
            if (stop := self._ingester.find_stop()) is not None:
                raise stop

    def close(self) -> None:
        """Bring the journal to the store, within a limit, and close both; the rest is ingested next time."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        try:
            self.journal.stop_writing()
            self.wait_empty(DRAIN_S)
        finally:
            is_idle = self._ingester.stop(CLOSING_S)
            try:
                self.journal.close()
            finally:
                self._close_store(is_idle)

    def _close_store(self, is_idle: bool) -> None:
        with self._lock:
            self._is_closed = True
            inner, waits = self._inner, self._waits
        if waits is not None:
            waits.shutdown(wait=is_idle)
        if inner is not None:
            _close(inner, wait=is_idle)


class JournalMaker(ConnectionMaker):
    """Opens connections by way of the journal in a folder."""

    def __init__(
        self, maker: ConnectionMaker, path: str | os.PathLike[str], clock: Callable[[], int] | None = None
    ) -> None:
        self._maker, self._path, self._clock = maker, Path(path).absolute(), clock or system_clock

    def __call__(self) -> AnyStore:
        """The store of the address alone."""
        return self._maker()

    def connect(self, *, retention_ms: int | None, rng: Callable[[], float]) -> JournalConnection:
        """A connection; the journal is opened, and the store when it is needed."""
        return JournalConnection(
            self._path, lambda: self._maker.connect(retention_ms=retention_ms, rng=rng), clock=self._clock
        )


def needs_store(command: c.Add) -> bool:
    """Whether the store must decide about the jobs, or their callers rely on finding them there at once."""
    return command.hold is not None or any(
        new.unique is not None or new.parent_id or new.strict or new.id or _may_need_two_shards(new)
        for new in command.jobs
    )


def _may_need_two_shards(new: c.NewJob) -> bool:
    """Whether a store of several shards would refuse a job because of one that follows it."""
    try:
        check_followers(new.followers, new.domain)
    except BadInput:
        return True
    return False


def _is_missing(asked: object, reply: object, wait_s: float) -> bool:
    """Whether a reply may be another one when the journal has been ingested: a job was not found."""
    if isinstance(asked, c.Await):
        return isinstance(reply, str)
    if isinstance(asked, c.Claim):
        # A claim that waits has waited for the ingester too.
        return reply == [] and not wait_s
    return isinstance(asked, HasUnfinished) and not reply


def _close(connection: Connection, *, wait: bool) -> None:
    """Close the connection to the store; in a thread where a call to the store does not end."""
    if wait:
        connection.close()
        return

    def close() -> None:
        try:
            connection.close()
        except (HoldfastError, StoreError):
            pass

    closing = threading.Thread(target=close, name="holdfast-closing", daemon=True)
    closing.start()
    closing.join(CLOSING_S)
