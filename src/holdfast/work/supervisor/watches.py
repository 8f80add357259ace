"""Background loops of a supervisor: the health file, reloading."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from .. import health
from ..files import WatchedFiles
from ..logs import WORKER
from .executor_pool import ExecutorPool

RELOAD_CHECK_S = 0.3


async def write_health(path: str, now: Callable[[], health.Health], log: Callable[[str], None]) -> None:
    """Write the health file periodically, until the worker ends."""
    file, logged = Path(path), ""
    try:
        while True:
            try:
                health.write(file, now())
                logged = ""
            except OSError as error:
                # The reader will find an old file, and take the worker for unhealthy.
                text = f"the health file {path} cannot be written: {error.strerror}"
                if text != logged:
                    log(text)
                logged = text
            await asyncio.sleep(health.WRITE_S)
    finally:
        health.remove(file)


class Reloader:
    """For development: replaces the executors when a file that they have imported changes."""

    def __init__(self, pool: ExecutorPool, log: Callable[[str], None]) -> None:
        self._pool, self._log = pool, log
        self.files = WatchedFiles()

    async def watch(self) -> None:
        """Check for changes and reload. If new executors fail to start, log that and keep the old ones."""
        while True:
            await asyncio.sleep(RELOAD_CHECK_S)
            if changed := self.files.changed():
                names = ", ".join(sorted(Path(file).name for file in changed))
                if await self._pool.reload():
                    WORKER.info("reloaded after a change of %s", names)
                else:
                    self._log(f"not reloaded after a change of {names}: {self._pool.error}")
