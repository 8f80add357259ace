"""Access control of the job-command port by the `token` header."""

from ...core.access import ADD, MANAGE, WORK, Grant, Scope
from ...core.errors import RateLimited, StoreError, Unauthenticated
from ..guard import Guard, incidents, is_loopback_name
from .parameters import Headers, PortRefusal

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

    async def check(self, verb: str, headers: Headers, peer: str) -> None:
        """Raise a `PortRefusal` for a request that is not allowed."""
        if self._loopback and not headers.get(TOKEN) and _is_of_a_page(headers):
            raise PortRefusal(FORBIDDEN, detail="without a token, web pages are not answered")
        grant = await self.grant(headers, peer)
        try:
            self._guard.spend(grant, loopback=self._loopback, peer=peer)
        except RateLimited as error:
            raise PortRefusal(TOO_MANY, detail=str(error)) from None
        if not self._is_allowed(grant, verb):
            raise PortRefusal(FORBIDDEN, detail="the token is for another tenant, or lacks the scope")

    async def grant(self, headers: Headers, peer: str) -> Grant:
        """What a request may do now, without counting it; raises a `PortRefusal`."""
        try:
            return await self._guard.grant(headers.get(TOKEN), loopback=self._loopback, peer=peer)
        except Unauthenticated as error:
            raise PortRefusal(UNKNOWN, detail=str(error)) from None
        except RateLimited as error:
            raise PortRefusal(TOO_MANY, detail=str(error)) from None
        except StoreError as error:
            raise PortRefusal(UNREACHABLE, detail=str(incidents.report(error))) from None

    def _is_allowed(self, grant: Grant, verb: str) -> bool:
        scopes = _SCOPES.get(verb.lower())
        is_own = grant.tenant in (None, self._tenant)
        return is_own and (scopes is None or any(scope in grant.scopes for scope in scopes))


def _is_of_a_page(headers: Headers) -> bool:
    """Whether a web page sends the request, from the browser of its reader: its verb is a method of HTTP."""
    return "origin" in headers or ("host" in headers and not is_loopback_name(headers["host"]))
