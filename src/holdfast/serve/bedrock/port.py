"""What the commands use: one tenant of one store, with the owner that all such ports share."""

from collections.abc import Iterable
from typing import Any

from ...core import commands as c
from ...core.checks import check_command
from ...core.ids import PORT_SYSID
from ...core.queries import Loaded, LoadJobs
from ...engine.connection import Connection
from . import parameters as p
from .refusals import NO_JOB


class Port:
    """Submits commands to the store. `lease_ms`: the lease of claims that name none."""

    def __init__(self, committer: Connection, *, tenant: str = "", lease_ms: int | None = None) -> None:
        self.committer = committer
        self.tenant = tenant
        self.lease_ms = lease_ms

    async def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """The reply to a command, after its commit."""
        check_command(command)
        return await self.committer.ask_async(command, wait_s=wait_s)

    def hold(self, job_id: int) -> c.Hold:
        """The port's right to answer for a job, whichever claim it has."""
        return c.Hold(job_id=job_id, owner=PORT_SYSID, tenant=self.tenant)

    async def load(self, job_id: int, *, data: bool = False) -> Loaded:
        """A live job of this tenant and its parent, optionally with data; ended jobs are not found."""
        if not p.may_exist(job_id):
            raise p.PortRefusal(NO_JOB)
        found: Loaded = await self.committer.ask_async(LoadJobs(job_ids=(job_id,), data=data))
        if job_id not in found.jobs or found.jobs[job_id].tenant != self.tenant:
            raise p.PortRefusal(NO_JOB)
        return found

    def give_back(self, claimed: Iterable[c.Claimed], *, was_sent: bool = False) -> None:
        """Release claimed jobs whose reply could not be sent, or has perhaps not arrived."""
        self.committer.release((one.job for one in claimed), was_sent=was_sent)
