"""What a supervisor keeps an eye on besides its jobs. Each is a loop that does one thing, and sleeps."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from ...core.errors import HoldfastError
from .. import health
from ..files import Watched
from ..logs import WORKER
from . import memory, scaling
from .crew import Crew

RELOAD_LOOK_S = 0.3


async def scale(crew: Crew, bounds: scaling.Scaling, waiting: Callable[[], Awaitable[int]]) -> None:
    """Start executors while jobs wait for one, and let those go that have nothing to do."""
    while True:
        await asyncio.sleep(scaling.LOOK_S)
        if bounds.is_short():
            try:
                bounds.grow(await waiting())
            except HoldfastError:
                # Whoever claims meets the same, and says so.
                continue
        elif member := bounds.surplus():
            member.condemned = True
            crew.track(asyncio.create_task(crew.dismiss(member)))


async def weigh(scales: memory.Scales) -> None:
    """Look at the memory of the executors."""
    while True:
        scales.weigh()
        await asyncio.sleep(memory.LOOK_S)


async def report(path: str, now: Callable[[], health.Health], log: Callable[[str], None]) -> None:
    """Write down how the worker is, until it ends."""
    file, told = Path(path), ""
    try:
        while True:
            try:
                health.write(file, now())
                told = ""
            except OSError as error:
                # Whoever reads it will find it old: that is as it should be.
                text = f"the health file {path} cannot be written: {error.strerror}"
                if text != told:
                    log(text)
                told = text
            await asyncio.sleep(health.WRITE_S)
    finally:
        health.remove(file)


class Reloading:
    """For development: fresh executors whenever a file that they have imported changes."""

    def __init__(self, crew: Crew, log: Callable[[str], None]) -> None:
        self._crew, self._log = crew, log
        self.files = Watched()

    async def watch(self) -> None:
        """Look for changes, and have them taken over; what is broken is told, and the old ones go on."""
        while True:
            await asyncio.sleep(RELOAD_LOOK_S)
            if changed := self.files.changed():
                names = ", ".join(sorted(Path(file).name for file in changed))
                if await self._crew.reload():
                    WORKER.info("reloaded after a change of %s", names)
                else:
                    self._log(f"not reloaded after a change of {names}: {self._crew.error}")
