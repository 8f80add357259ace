"""The workers of a server: separate processes that start and stop with it.

    --worker app:queue   a worker of that queue
    --http               a worker of the handlers in the store, once a job waits for one

They are processes because workers run user code: if it crashes its process, the servers continue. A worker
that ends by itself is started again, after a delay that doubles.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core import queries as q
from ..core.errors import HoldfastError
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s
from ..work.options import SERVED_STORE

FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0
# A worker that has run so long was well: the next pause is short again.
WELL_S = 60.0
# How often the store is asked whether a job waits that has a handler, until the first does.
POLL_S = 1.0
# Longer than a worker's own --drain-timeout.
DRAIN_S = 40.0
# The journal of the worker of handlers, inside that of the server.
HANDLERS_FOLDER = "handlers"


class WorkerProcess:
    """A worker of one queue."""

    name = "worker"

    def __init__(
        self, where: str, *, store: str, log: Callable[[str], None], arguments: Sequence[str] = ()
    ) -> None:
        self.where = where
        self._store, self._log = store, log
        self._arguments = arguments or (where,)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> list[str]:
        """Start it, and see that it keeps running."""
        self._process = await self._begin()
        self._task = asyncio.create_task(self._keep_running())
        return [f"worker of {self.where}"]

    async def drain(self) -> None:
        """Have it finish what it runs, and end."""
        if self._task is not None:
            self._task.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), DRAIN_S)
        except TimeoutError:
            self._log(f"worker {self.where} does not end, and is killed")
            process.kill()
            await process.wait()

    async def _begin(self) -> asyncio.subprocess.Process:
        words = ("-m", "holdfast", "worker", *self._arguments)
        variables = os.environ | {SERVED_STORE: self._store}
        return await asyncio.create_subprocess_exec(sys.executable, *words, env=variables)

    async def _keep_running(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            assert self._process is not None
            begun_s = monotonic_s()
            code = await self._process.wait()
            pause_s = FIRST_PAUSE_S if monotonic_s() - begun_s >= WELL_S else pause_s
            self._log(f"worker {self.where} has ended with code {code}; again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)
            self._process = await self._begin()


class HandlerProcess(WorkerProcess):
    """A worker of the handlers in the store. It starts when the first job waits that has one."""

    name = "handlers"

    def __init__(
        self,
        connection: Connection,
        *,
        store: str,
        runners: str,
        slots: int,
        private_hosts: bool,
        journal: str,
        log: Callable[[str], None],
    ) -> None:
        arguments = ("--handlers", *(("--runners", runners) if runners else ()))
        arguments += ("--private-hosts",) if private_hosts else ()
        arguments += ("--handler-slots", str(slots)) if slots else ()
        # A journal has one process: that of the server has the folder itself.
        arguments += ("--journal", str(Path(journal, HANDLERS_FOLDER))) if journal else ()
        super().__init__("handlers", store=store, log=log, arguments=arguments)
        self._connection = connection

    async def start(self) -> list[str]:
        """Wait for jobs in the background; the server is ready without it."""
        self._task = asyncio.create_task(self._start_when_needed())
        return []

    async def _start_when_needed(self) -> None:
        while not await self._has_jobs():  # noqa: ASYNC110 - the job may be added by another process
            await asyncio.sleep(POLL_S)
        self._process = await self._begin()
        await self._keep_running()

    async def _has_jobs(self) -> bool:
        try:
            return bool(await self._connection.ask_async(q.ListWaiting(handled=True, limit=1)))
        except HoldfastError:
            return False  # the upkeep of the server logs it
