"""The worker's entry in the registry of each store that it works. See docs/decisions/0006.

Said at the start and, every few seconds, if something has changed; whoever works commits more often than
that anyway. Where a store sees for itself who is there, an idle worker says nothing; elsewhere it renews
its entry now and then.
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
from .sources import Sources

# How often a worker looks whether anything about it has changed.
LOOK_S = 3.0
# How long an entry holds where the store cannot tell who is there, and how often it is renewed then.
LIFE_MS = 60_000
RENEW_S = 20.0
# How often a store that cannot be used yet is tried.
TRY_S = 1.0


class Registry:
    """One worker's entries."""

    def __init__(self, sources: Sources, worker: Worker, log: Callable[[str], None]) -> None:
        self._sources, self._log = sources, log
        self._worker = worker
        self._said_s = 0.0
        # The stores that cannot tell who is there.
        self._blind: list[Connection] = []
        self._publishers: defaultdict[Connection, Publisher] = defaultdict(Publisher)

    async def enter(self, *, wait_s: float, stopping: asyncio.Event) -> bool:
        """Make this worker known, waiting so long for stores that are away or full; False: it was stopped."""
        until_s, told = monotonic_s() + wait_s, ""
        while not stopping.is_set():
            try:
                await self._enter_now()
                return True
            except (Unavailable, StoreFull) as error:
                left_s = until_s - monotonic_s()
                if left_s <= 0:
                    raise
                if str(error) != told:
                    self._log(f"waiting up to {left_s:.0f} s: {error}")
                told = str(error)
                stopped = asyncio.create_task(stopping.wait())
                await asyncio.wait([stopped], timeout=min(TRY_S, left_s))
                stopped.cancel()
        return False

    async def _enter_now(self) -> None:
        self._blind = []
        for line in self._sources.lines:
            seen = await asyncio.to_thread(line.appear, self._worker.name)
            if not seen:
                self._blind.append(line)
        await self.say()
        await self.publish()

    async def publish(self) -> None:
        """Make known what this worker's tasks say of their jobs, unless this worker has just that already.

        So an executor that is started again says nothing: a worker that came later may have said otherwise.
        """
        for line in self._sources.lines:
            tasks = self._sources.defaults(line)
            if self._publishers[line].has_changes(tasks):
                await self._publishers[line].publish_async(line, tasks)

    async def say(self) -> None:
        """Say how this worker is, to every store that it works."""
        self._said_s = monotonic_s()
        await asyncio.gather(*(self._say_to(line) for line in self._sources.lines))

    async def _say_to(self, line: Connection) -> None:
        now_ms: int = await line.ask_async(q.GetTime())
        until_ms = now_ms + LIFE_MS if line in self._blind else 0
        serves = self._sources.serves(line)
        worker = replace(self._worker, serves=serves, said_at=now_ms, until_ms=until_ms)
        await line.ask_async(c.Enlist(worker=worker))

    async def keep(self, counts: Callable[[], dict[str, int]]) -> None:
        """Say what has changed, and nothing while nothing does, unless nobody sees that we are there."""
        while True:
            await asyncio.sleep(LOOK_S)
            before, self._worker = self._worker, replace(self._worker, **counts())
            has_news = before != self._worker or (self._blind and monotonic_s() - self._said_s > RENEW_S)
            try:
                await self.publish()
                if has_news:
                    await self.say()
            except HoldfastError as error:
                self._log(f"the registry of workers: {error}")

    async def leave(self) -> None:
        """Be forgotten."""
        for line in self._sources.lines:
            await line.ask_async(c.Dismiss(name=self._worker.name))


def new_worker(*, processes: int, threads: int, health: str, now_ms: int) -> Worker:
    """This process as a worker, under a name that no other ever has."""
    host, pid = socket.gethostname(), os.getpid()
    name = f"{re.sub(r'[^A-Za-z0-9.]', '_', host)[:64]}-{pid}-{secrets.token_hex(4)}"
    path = str(Path(health).absolute()) if health else ""
    return Worker(
        name=name, host=host, pid=pid, started_at=now_ms, processes=processes, threads=threads, health=path
    )
