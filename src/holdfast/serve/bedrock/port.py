"""What the commands act on: one tenant of one store, under the owner that all such ports share."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...core import commands as c
from ...core.errors import HoldfastError
from ...core.ids import PORT_SYSID
from ...core.job import Job
from ...engine.connection import Connection
from ...engine.engine import check
from ...store.contract import ReadTxn
from . import parameters as p
from .refusals import NO_JOB

T = TypeVar("T")


class Port:
    """The way from commands to the store. `lease_ms`: how long claims last that name no time of their own."""

    def __init__(self, committer: Connection, *, tenant: str = "", lease_ms: int | None = None) -> None:
        self.committer = committer
        self.tenant = tenant
        self.lease_ms = lease_ms
        # So many Query at a time: they are long, and nobody's work waits for them.
        self.querying = asyncio.Semaphore(2)
        self._giving_back: set[asyncio.Task[None]] = set()

    async def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """The reply to a command, once it is committed."""
        check(command)
        return await self.committer.ask_async(command, wait_s=wait_s)

    async def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Look at the store; not in the event loop, where others would wait for it."""
        return await asyncio.to_thread(self.committer.read, fn)

    def hold(self, job_id: int) -> c.Hold:
        """The port's right to answer for a job, whichever claim it has."""
        return c.Hold(job_id=job_id, owner=PORT_SYSID, tenant=self.tenant)

    def found(self, txn: ReadTxn, job_id: int) -> Job:
        """A live job of this tenant: what is over is gone at this port."""
        job = txn.load([job_id]).get(job_id) if p.may_exist(job_id) else None
        if job is None or job.tenant != self.tenant:
            raise p.Refusal(NO_JOB)
        return job

    def give_back(self, claimed: Iterable[c.Claimed]) -> None:
        """Let others have at once what could not be told to whom it was claimed for."""
        for one in claimed:
            task = asyncio.get_running_loop().create_task(self._release(one.job))
            self._giving_back.add(task)
            task.add_done_callback(self._giving_back.discard)

    async def _release(self, job: Job) -> None:
        hold = c.hold_of(job)
        try:
            await self.committer.ask_async(c.Release(hold=hold))
        except HoldfastError:
            # Somebody else has answered for it, or the store is gone: nothing is left to be done here.
            return

    async def settled(self) -> None:
        """Wait until all that is to be given back has been."""
        while self._giving_back:
            await asyncio.wait(self._giving_back)
