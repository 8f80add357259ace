"""Tries handlers with sample data: in contexts like those of jobs, a few at once, and not for long."""

import asyncio
from functools import cached_property

from msgspec.structs import replace

from ...core.handler import Handler
from ...work.runners.isolation import Isolation, find_isolation
from ...work.runners.records import RunResult
from ...work.runners.runner import run_once
from ...work.runners.settings import read_settings

AT_ONCE = 2
# The limit of a job, and of each script around it: a reader waits for the page meanwhile.
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
        # The limit of the handler, and not of a job, is that of the scripts around the job too.
        limit_ms = min(handler.options.timeout_ms or TRIAL_MS, TRIAL_MS)
        limited = replace(handler, options=replace(handler.options, timeout_ms=limit_ms))
        return run_once(limited, payload, self._isolation)
