"""The entry of a worker in the registry of each of its stores. See docs/decisions/0006.

Written at the start and, every few seconds, if something has changed. Where the store detects by itself which
workers are connected, an idle worker writes nothing; elsewhere it renews its entry periodically.
"""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import BadInput, HoldfastError, SchemaMismatch, StoreFull, Unavailable
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
# How often an idle worker reads its entry on a server, also to see if it is to stop; on a local store at each
# check.
STOP_CHECK_S = 60.0
# How often an unavailable store is retried at the start.
RETRY_S = 1.0
# How long a worker that has one of its stores waits for the others before it claims.
OTHERS_S = 2.0
# How long a stopping worker waits for the removal of its entries.
DISMISS_S = 3.0


class StoreEntry:
    """The entry of a worker in one store."""

    def __init__(self, connection: Connection, sources: JobSources) -> None:
        self.connection, self._sources = connection, sources
        self._publisher = Publisher()
        # Whether the store detects which workers are connected.
        self._is_detected = False
        # What was written last, and when; when the entry was last read.
        self._written: Worker | None = None
        self._written_s = 0.0
        self._looked_s = monotonic_s()
        self._is_dismissed = False

    async def enter(self, worker: Worker) -> None:
        """Write it for the first time."""
        self._is_detected = await asyncio.to_thread(self.connection.appear, worker.name)
        await self.write(worker)
        await self.publish()

    async def write(self, worker: Worker) -> None:
        """Write it as it is now."""
        entry = self._with_tasks(worker)
        now_ms: int = await self.connection.ask_async(q.GetTime())
        until_ms = 0 if self._is_detected else now_ms + ENTRY_LIFE_MS
        self._written_s = monotonic_s()
        await self.connection.ask_async(c.Enlist(worker=replace(entry, said_at=now_ms, until_ms=until_ms)))
        self._written = entry

    def _with_tasks(self, worker: Worker) -> Worker:
        return replace(worker, serves=self._sources.serves(self.connection))

    async def publish(self) -> None:
        """Publish what the worker's queues have declared, unless it has published the same before.

        So a restarted executor does not overwrite the defaults of a worker that was started later.
        """
        declared = self._sources.defaults(self.connection), self._sources.declared(self.connection)
        if self._publisher.has_changes(*declared):
            await self._publisher.publish_async(self.connection, *declared)

    async def update(self, worker: Worker) -> bool:
        """Write it if it has changed, must be renewed or is gone; return whether the worker is to stop."""
        is_old = not self._is_detected and monotonic_s() - self._written_s > RENEW_S
        must_write = is_old or self._written != self._with_tasks(worker)
        if must_write:
            await self.write(worker)
        must_look = must_write or self._is_local() or monotonic_s() - self._looked_s > STOP_CHECK_S
        entries = await self._read(worker.name) if must_look else None
        if entries == [] and not self._is_dismissed:
            # Another process has removed it, because this one was not connected for a moment.
            await self.write(worker)
        await self.publish()
        return any(entry.stopping for entry in entries or ())

    def _is_local(self) -> bool:
        """Whether the store may be read often."""
        try:
            return self.connection.store.capabilities.reads_locally
        except BadInput:
            return False

    async def _read(self, name: str) -> list[Worker]:
        """The entry in the store, if it is there."""
        self._looked_s = monotonic_s()
        found: list[Worker] = await self.connection.ask_async(q.ListWorkers(name=name))
        return found

    async def dismiss(self, worker: Worker) -> None:
        """Remove it."""
        self._is_dismissed = True
        await self.connection.ask_async(c.Dismiss(name=worker.name))


class Registry:
    """The entries of one worker, one in each store."""

    def __init__(
        self, sources: JobSources, worker: Worker, log: Callable[[str], None], on_stop: Callable[[], None]
    ) -> None:
        self._worker, self._log = worker, log
        # Called when an operator has asked this worker to stop.
        self._on_stop = on_stop
        self._entries = [StoreEntry(connection, sources) for connection in sources.connections]
        # Those that are written, and the tasks that write the others.
        self._entered: list[StoreEntry] = []
        self._entering: set[asyncio.Task[None]] = set()
        self._is_registered = False

    async def register(self, *, wait_s: float, stopping: asyncio.Event) -> bool:
        """Write the entries, waiting up to `wait_s` for unavailable or full stores; False if stopped.

        One store is enough: the entries of others are written when these are back.
        """
        until_s = monotonic_s() + wait_s
        entering = {
            asyncio.create_task(self._keep_entering(entry, until_s, stopping)) for entry in self._entries
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

    async def _keep_entering(self, entry: StoreEntry, until_s: float, stopping: asyncio.Event) -> None:
        """Write the entry in one store, as soon as that can be used."""
        logged = ""
        while not stopping.is_set():
            try:
                await entry.enter(self._worker)
                self._entered.append(entry)
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

    async def publish(self) -> None:
        """Publish the defaults of this worker's tasks in every store."""
        await self._in_each(StoreEntry.publish)

    async def update(self) -> None:
        """Write the entry in every store."""
        await self._in_each(lambda entry: entry.write(self._worker))

    async def _in_each(self, change: Callable[[StoreEntry], Awaitable[None]]) -> None:
        """Change something in every store that has an entry; the first error is raised at the end."""
        for reply in await asyncio.gather(*map(change, self._entered), return_exceptions=True):
            if isinstance(reply, BaseException):
                raise reply

    async def keep_updated(self, fields: Callable[[], dict[str, Any]]) -> None:
        """Write the entries when something has changed, or must be renewed; look whether to stop.

        In each store by itself: one that does not answer holds up no other.
        """
        await asyncio.gather(*(self._keep_updated(entry, fields) for entry in self._entries))

    async def _keep_updated(self, entry: StoreEntry, fields: Callable[[], dict[str, Any]]) -> None:
        logged = ""
        while True:
            await asyncio.sleep(CHECK_S)
            if entry not in self._entered:
                continue
            self._worker = replace(self._worker, **fields())
            try:
                if await entry.update(self._worker):
                    self._on_stop()
                logged = ""
            except SchemaMismatch:
                # The worker ends.
                raise
            except HoldfastError as error:
                if str(error) != logged:
                    self._log(f"the registry of workers: {error}")
                logged = str(error)

    async def unregister(self) -> None:
        """Remove the entries. In a store that does not answer an entry stays until it expires."""
        for one in self._entering:
            one.cancel()
        try:
            async with asyncio.timeout(DISMISS_S):
                await self._in_each(lambda entry: entry.dismiss(self._worker))
        except TimeoutError:
            self._log(
                "the registry of workers: a store did not answer in time, and may list this worker still"
            )


def new_worker(*, processes: int, threads: int, health: str, now_ms: int) -> Worker:
    """The record of this process as a worker, with a unique name."""
    host, pid = socket.gethostname(), os.getpid()
    name = f"{re.sub(r'[^A-Za-z0-9.]', '_', host)[:64]}-{pid}-{os.urandom(4).hex()}"
    path = str(Path(health).absolute()) if health else ""
    return Worker(
        name=name, host=host, pid=pid, started_at=now_ms, processes=processes, threads=threads, health=path
    )
