"""Tries handlers with sample data: in contexts like those of jobs, a few at once, and not for long."""

import asyncio
from functools import cached_property

from ...core.handler import Handler
from ...work.runners.isolation import Isolation, find_isolation
from ...work.runners.once import run_once
from ...work.runners.records import RunResult
from ...work.runners.settings import read_settings

AT_ONCE = 2
# A reader waits for the page meanwhile.
TRIAL_MS = 30_000


class HandlerTrials:
    """Runs handlers for people. `runners` is the file with the settings of runners; "": there is none.

    `private_hosts`: http handlers may reach private networks, unless the file says.
    """

    def __init__(self, runners: str = "", *, private_hosts: bool = False) -> None:
        self._runners, self._private_hosts = runners, private_hosts
        self._slots = asyncio.Semaphore(AT_ONCE)

    @cached_property
    def _isolation(self) -> Isolation:
        return find_isolation(read_settings(self._runners, private_hosts=self._private_hosts))

    async def run(self, handler: Handler, payload: bytes) -> RunResult:
        """How a run with this data ends; no job is added, and none of those that the handler adds."""
        async with self._slots:
            return await asyncio.to_thread(self._run, handler, payload)

    def _run(self, handler: Handler, payload: bytes) -> RunResult:
        return run_once(handler, payload, self._isolation, timeout_ms=TRIAL_MS)
