"""One tenant of one store, as the commands use it, and its access control by the `token` header."""

from collections.abc import Iterable
from typing import Any

from ...core import commands as c
from ...core.access import ADD, MANAGE, WORK, Grant, Scope
from ...core.checks import check_command
from ...core.errors import RateLimited, StoreError, Unauthenticated
from ...core.ids import PORT_SYSID
from ...core.queries import Loaded, LoadJobs, Query
from ...engine.connection import Connection
from ..asking import reply_in_time
from ..guard import Guard, incidents, is_loopback_name
from . import parameters as p
from .parameters import NO_JOB

TOKEN = "token"
UNKNOWN = "401 Unauthorized"
FORBIDDEN = "403 Forbidden"
TOO_MANY = "429 Too Many Requests"
UNREACHABLE = "502 The store cannot be reached"

_SCOPES: dict[str, tuple[Scope, ...]] = {
    **dict.fromkeys(("createjob", "createjobs"), ADD),
    **dict.fromkeys(("getjob", "getjobs", "finishjob", "retryjob", "failjob"), WORK),
    # What they show is not redacted.
    "queryjob": (Scope.DATA, Scope.WORK, Scope.MANAGE),
    "query": (Scope.DATA, Scope.MANAGE),
    **dict.fromkeys(("updatejob", "canceljob", "deletejob", "requeuejobs"), MANAGE),
}


class PortGuard:
    """Allows requests whose token is for the port's tenant and allows the command."""

    def __init__(self, guard: Guard, *, tenant: str, loopback: bool) -> None:
        self._guard, self._tenant, self._loopback = guard, tenant, loopback

    async def check(self, verb: str, headers: p.Headers, peer: str, *, is_counted: bool = True) -> None:
        """Raise a `PortRefusal` for a request that is not allowed. `is_counted`: it counts for the rate."""
        if self._loopback and not headers.get(TOKEN) and _is_of_a_page(headers):
            raise p.PortRefusal(FORBIDDEN, detail="without a token, web pages are not answered")
        grant = await self.grant(headers, peer)
        try:
            if is_counted:
                self._guard.spend(grant, loopback=self._loopback, peer=peer)
        except RateLimited as error:
            raise p.PortRefusal(TOO_MANY, detail=str(error)) from None
        if not self._is_allowed(grant, verb):
            raise p.PortRefusal(FORBIDDEN, detail="the token is for another tenant, or lacks the scope")

    async def grant(self, headers: p.Headers, peer: str) -> Grant:
        """What a request may do now, without counting it; raises a `PortRefusal`."""
        try:
            return await self._guard.grant(headers.get(TOKEN), loopback=self._loopback, peer=peer)
        except Unauthenticated as error:
            raise p.PortRefusal(UNKNOWN, detail=str(error)) from None
        except RateLimited as error:
            raise p.PortRefusal(TOO_MANY, detail=str(error)) from None
        except StoreError as error:
            raise p.PortRefusal(UNREACHABLE, detail=str(incidents.report(error))) from None

    def _is_allowed(self, grant: Grant, verb: str) -> bool:
        scopes = _SCOPES.get(verb.lower())
        is_own = grant.tenant in (None, self._tenant)
        return is_own and (scopes is None or any(scope in grant.scopes for scope in scopes))


def _is_of_a_page(headers: p.Headers) -> bool:
    """Whether a web page sends the request, from the browser of its reader: its verb is a method of HTTP."""
    return "origin" in headers or ("host" in headers and not is_loopback_name(headers["host"]))


class Port:
    """Submits commands to the store. `lease_ms`: the lease of claims that name none."""

    def __init__(self, committer: Connection, *, tenant: str = "", lease_ms: int | None = None) -> None:
        self.committer = committer
        self.tenant = tenant
        self.lease_ms = lease_ms

    async def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """The reply to a command, after its commit."""
        check_command(command)
        return await reply_in_time(self.committer.ask_async, command, wait_s=wait_s)

    async def query(self, query: Query) -> Any:
        """The reply to a query."""
        return await reply_in_time(self.committer.ask_async, query)

    def hold(self, job_id: int) -> c.Hold:
        """The port's right to answer for a job, whichever claim it has."""
        return c.Hold(job_id=job_id, owner=PORT_SYSID, tenant=self.tenant)

    async def load(self, job_id: int, *, data: bool = False) -> Loaded:
        """A live job of this tenant and its parent, optionally with data; ended jobs are not found."""
        if not p.may_exist(job_id):
            raise p.PortRefusal(NO_JOB)
        found: Loaded = await self.query(LoadJobs(job_ids=(job_id,), data=data))
        if job_id not in found.jobs or found.jobs[job_id].tenant != self.tenant:
            raise p.PortRefusal(NO_JOB)
        return found

    def give_back(self, claimed: Iterable[c.Claimed], *, was_sent: bool = False) -> None:
        """Release claimed jobs whose reply could not be sent, or has perhaps not arrived."""
        self.committer.release((one.job for one in claimed), was_sent=was_sent)
