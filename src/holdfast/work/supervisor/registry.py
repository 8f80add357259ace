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
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import HoldfastError, StoreFull, Unavailable
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
# How often an unavailable store is retried at the start.
RETRY_S = 1.0


class Registry:
    """The entries of one worker, one in each store."""

    def __init__(self, sources: JobSources, worker: Worker, log: Callable[[str], None]) -> None:
        self._sources, self._log = sources, log
        self._worker = worker
        self._updated_s = 0.0
        # The stores that cannot detect which workers are connected.
        self._without_presence: list[Connection] = []
        self._publishers: defaultdict[Connection, Publisher] = defaultdict(Publisher)

    async def register(self, *, wait_s: float, stopping: asyncio.Event) -> bool:
        """Write the entries, waiting up to `wait_s` for unavailable or full stores; False if stopped."""
        until_s, logged = monotonic_s() + wait_s, ""
        while not stopping.is_set():
            try:
                await self._register_now()
                return True
            except (Unavailable, StoreFull) as error:
                left_s = until_s - monotonic_s()
                if left_s <= 0:
                    raise
                if str(error) != logged:
                    self._log(f"waiting up to {left_s:.0f} s: {error}")
                logged = str(error)
                stopped = asyncio.create_task(stopping.wait())
                await asyncio.wait([stopped], timeout=min(RETRY_S, left_s))
                stopped.cancel()
        return False

    async def _register_now(self) -> None:
        self._without_presence = []
        for connection in self._sources.connections:
            seen = await asyncio.to_thread(connection.appear, self._worker.name)
            if not seen:
                self._without_presence.append(connection)
        await self.update()
        await self.publish()

    async def publish(self) -> None:
        """Publish the defaults of this worker's tasks, unless it has published the same before.

        So a restarted executor does not overwrite the defaults of a worker that was started later.
        """
        for connection in self._sources.connections:
            tasks = self._sources.defaults(connection)
            if self._publishers[connection].has_changes(tasks):
                await self._publishers[connection].publish_async(connection, tasks)

    async def update(self) -> None:
        """Write the entry in every store."""
        self._updated_s = monotonic_s()
        await asyncio.gather(*(self._update_entry(connection) for connection in self._sources.connections))

    async def _update_entry(self, connection: Connection) -> None:
        now_ms: int = await connection.ask_async(q.GetTime())
        until_ms = now_ms + ENTRY_LIFE_MS if connection in self._without_presence else 0
        serves = self._sources.serves(connection)
        worker = replace(self._worker, serves=serves, said_at=now_ms, until_ms=until_ms)
        await connection.ask_async(c.Enlist(worker=worker))

    async def keep_updated(self, counts: Callable[[], dict[str, int]]) -> None:
        """Write the entries when something has changed, or where they must be renewed."""
        while True:
            await asyncio.sleep(CHECK_S)
            before, self._worker = self._worker, replace(self._worker, **counts())
            must_update = before != self._worker or (
                self._without_presence and monotonic_s() - self._updated_s > RENEW_S
            )
            try:
                await self.publish()
                if must_update:
                    await self.update()
            except HoldfastError as error:
                self._log(f"the registry of workers: {error}")

    async def unregister(self) -> None:
        """Remove the entries."""
        for connection in self._sources.connections:
            await connection.ask_async(c.Dismiss(name=self._worker.name))


def new_worker(*, processes: int, threads: int, health: str, now_ms: int) -> Worker:
    """The record of this process as a worker, with a unique name."""
    host, pid = socket.gethostname(), os.getpid()
    name = f"{re.sub(r'[^A-Za-z0-9.]', '_', host)[:64]}-{pid}-{secrets.token_hex(4)}"
    path = str(Path(health).absolute()) if health else ""
    return Worker(
        name=name, host=host, pid=pid, started_at=now_ms, processes=processes, threads=threads, health=path
    )
