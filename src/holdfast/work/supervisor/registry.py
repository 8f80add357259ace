"""The entry of a worker in the registry of each of its stores. See docs/decisions/0006.

Written at the start and, every few seconds, if something has changed. Where the store detects by itself which
workers are connected, an idle worker writes nothing; elsewhere it renews its entry periodically.
"""

import asyncio
import os
import re
import secrets
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import BadInput, HoldfastError, StoreFull, Unavailable
from ...core.worker import Worker
from ...engine.connection import Connection
from ...queue.publishing import Publisher
from ...store.common.clock import monotonic_s
from .sources import JobSources

# How often a worker checks whether its entry has changed.
CHECK_S = 3.0
# Where the store cannot detect workers: how long an entry is valid, and how often it is renewed.
ENTRY_LIFE_MS = 60_000
RENEW_S = 20.0
# How often an idle worker looks on a server whether it is to stop; on a local store at each check.
STOP_CHECK_S = 60.0
# How often an unavailable store is retried at the start.
RETRY_S = 1.0
# How long a worker that has one of its stores waits for the others before it claims.
OTHERS_S = 2.0


class Registry:
    """The entries of one worker, one in each store."""

    def __init__(
        self, sources: JobSources, worker: Worker, log: Callable[[str], None], on_stop: Callable[[], None]
    ) -> None:
        self._sources, self._log = sources, log
        # Called when an operator has asked this worker to stop.
        self._on_stop = on_stop
        self._worker = worker
        self._updated_s = 0.0
        # The stores that have its entry, and the tasks that write it in the others.
        self._entered: list[Connection] = []
        self._entering: set[asyncio.Task[None]] = set()
        self._is_registered = False
        # When it last looked whether it is to stop.
        self._looked_s = monotonic_s()
        # The stores that cannot detect which workers are connected.
        self._without_presence: set[Connection] = set()
        self._publishers: defaultdict[Connection, Publisher] = defaultdict(Publisher)

    async def register(self, *, wait_s: float, stopping: asyncio.Event) -> bool:
        """Write the entries, waiting up to `wait_s` for unavailable or full stores; False if stopped.

        One store is enough: the entries of others are written when these are back.
        """
        until_s = monotonic_s() + wait_s
        entering = {
            asyncio.create_task(self._keep_entering(connection, until_s, stopping))
            for connection in self._sources.connections
        }
        done, self._entering = await asyncio.wait(
            entering, timeout=OTHERS_S, return_when=asyncio.FIRST_EXCEPTION
        )
        while self._entering and not self._entered and not any(one.exception() for one in done):
            done, self._entering = await asyncio.wait(self._entering, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
        self._is_registered = True
        return bool(self._entered) and not stopping.is_set()

    async def _keep_entering(self, connection: Connection, until_s: float, stopping: asyncio.Event) -> None:
        """Write the entry in one store, as soon as that can be used."""
        logged = ""
        while not stopping.is_set():
            try:
                await self._enter(connection)
                return
            except (Unavailable, StoreFull) as error:
                left_s = until_s - monotonic_s()
                if left_s <= 0 and not self._entered:
                    raise
                if str(error) != logged:
                    self._log(
                        f"goes on without it: {error}"
                        if self._entered
                        else f"waiting up to {left_s:.0f} s: {error}"
                    )
                logged = str(error)
                stopped = asyncio.create_task(stopping.wait())
                await asyncio.wait([stopped], timeout=min(RETRY_S, max(left_s, 0)) or RETRY_S)
                stopped.cancel()
            except HoldfastError as error:
                if not self._is_registered:
                    raise
                self._log(f"goes on without it: {error}")
                return

    async def _enter(self, connection: Connection) -> None:
        if not await asyncio.to_thread(connection.appear, self._worker.name):
            self._without_presence.add(connection)
        await self._update_entry(connection)
        await self._publish(connection)
        self._entered.append(connection)

    async def publish(self) -> None:
        """Publish the defaults of this worker's tasks, unless it has published the same before.

        So a restarted executor does not overwrite the defaults of a worker that was started later.
        """
        await self._in_each(self._publish)

    async def _publish(self, connection: Connection) -> None:
        tasks = self._sources.defaults(connection)
        if self._publishers[connection].has_changes(tasks):
            await self._publishers[connection].publish_async(connection, tasks)

    async def update(self) -> None:
        """Write the entry in every store."""
        self._updated_s = monotonic_s()
        await self._in_each(self._update_entry)

    async def _in_each(
        self, change: Callable[[Connection], Awaitable[None]], some: Sequence[Connection] | None = None
    ) -> None:
        """Change something in every store that has an entry; the first error is raised at the end."""
        asks = (change(connection) for connection in (self._entered if some is None else some))
        for reply in await asyncio.gather(*asks, return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply

    async def _update_entry(self, connection: Connection) -> None:
        now_ms: int = await connection.ask_async(q.GetTime())
        until_ms = now_ms + ENTRY_LIFE_MS if connection in self._without_presence else 0
        serves = self._sources.serves(connection)
        worker = replace(self._worker, serves=serves, said_at=now_ms, until_ms=until_ms)
        await connection.ask_async(c.Enlist(worker=worker))

    async def keep_updated(self, counts: Callable[[], dict[str, int]]) -> None:
        """Write the entries when something has changed, or must be renewed; look whether to stop."""
        while True:
            await asyncio.sleep(CHECK_S)
            before, self._worker = self._worker, replace(self._worker, **counts())
            must_update = before != self._worker or (
                self._without_presence and monotonic_s() - self._updated_s > RENEW_S
            )
            try:
                await self._check_stops(everywhere=bool(must_update))
                await self.publish()
                if must_update:
                    await self.update()
            except HoldfastError as error:
                self._log(f"the registry of workers: {error}")

    async def _check_stops(self, *, everywhere: bool) -> None:
        """Look whether this worker is to stop: in local stores, and seldom or `everywhere` in the others."""
        if everywhere or monotonic_s() - self._looked_s > STOP_CHECK_S:
            self._looked_s = monotonic_s()
            await self._in_each(self._check_stop)
        else:
            await self._in_each(self._check_stop, [one for one in self._entered if _is_local(one)])

    async def _check_stop(self, connection: Connection) -> None:
        """Have the worker stop if its entry says so."""
        found: list[Worker] = await connection.ask_async(q.ListWorkers(name=self._worker.name))
        if any(entry.stopping for entry in found):
            self._on_stop()

    async def unregister(self) -> None:
        """Remove the entries."""
        for one in self._entering:
            one.cancel()
        await self._in_each(lambda connection: connection.ask_async(c.Dismiss(name=self._worker.name)))


def _is_local(connection: Connection) -> bool:
    """Whether the store may be read often."""
    try:
        return connection.store.capabilities.is_local
    except BadInput:
        return False


def new_worker(*, processes: int, threads: int, health: str, now_ms: int) -> Worker:
    """The record of this process as a worker, with a unique name."""
    host, pid = socket.gethostname(), os.getpid()
    name = f"{re.sub(r'[^A-Za-z0-9.]', '_', host)[:64]}-{pid}-{secrets.token_hex(4)}"
    path = str(Path(health).absolute()) if health else ""
    return Worker(
        name=name, host=host, pid=pid, started_at=now_ms, processes=processes, threads=threads, health=path
    )
