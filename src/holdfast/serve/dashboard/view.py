"""One request of the dashboard: who asks, of which tenant, and what the pages need to answer."""

import asyncio
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ...core import commands as c
from ...core import queries as q
from ...core.access import Grant, Scope
from ...core.errors import BadInput, Forbidden
from ...core.handler import Handler
from ...core.ids import MAX_ID
from ...work.runners.isolation import Isolation, find_isolation
from ...work.runners.records import RunResult
from ...work.runners.runner import run_once
from ...work.runners.settings import read_settings
from ..http.exchange import Exchange
from .markup import Markup
from .sessions import ActionBudget, SignIn

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


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a page function makes; the layout puts it into the frame."""

    title: str
    body: Markup
    # Which entry of the navigation is current.
    section: str = ""
    status: int = 200
    # What the page listens to for changes: "" the counts, else the id of a job; None: it does not change.
    live: str | None = ""


PageOrResponse = Page | Response


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was admitted."""

    exchange: Exchange
    request: Request
    grant: Grant
    session: SignIn | None
    form_token: str
    now_ms: int
    # Where the dashboard is mounted: "", or a path without a slash at its end.
    base: str = ""
    store: str = ""
    budget: ActionBudget
    # Runs handlers with sample data; None: this server runs none.
    trials: HandlerTrials | None = None
    # The tenants that have jobs, for a client that may see all.
    tenants: tuple[str, ...] = ()
    # The fields of a form that was sent.
    form: Mapping[str, list[str]] = {}

    async def ask(self, asked: c.Command | q.Query) -> Any:
        """The reply to a command or query, as far as the grant allows it."""
        return await self.exchange.ask(self.grant, asked)

    def allows(self, scope: Scope) -> bool:
        """Whether the client has a scope."""
        return scope in self.grant.scopes

    def require(self, scope: Scope) -> None:
        """Raise `Forbidden` if the client lacks a scope."""
        if not self.allows(scope):
            raise Forbidden(f"this needs a token with scope {scope}")

    @property
    def can_manage(self) -> bool:
        """Whether actions are shown."""
        return self.allows(Scope.MANAGE)

    @property
    def tenant(self) -> str | None:
        """The tenant that is looked at; None: all."""
        if self.grant.tenant is not None:
            return self.grant.tenant
        return self.request.query_params.get("tenant")

    @property
    def has_tenants(self) -> bool:
        """Whether any job of the store has a tenant."""
        return any(self.tenants)

    @property
    def one_tenant(self) -> str:
        """The tenant of what belongs to exactly one: limits, schedules, consumers."""
        return self.tenant or ""

    def param(self, name: str) -> str:
        """A field of the address; "" if it is not there."""
        return self.request.query_params.get(name, "")

    def number(self, name: str) -> int | None:
        """A number of the address; None: there is none."""
        text = self.param(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None

    def field(self, name: str) -> str:
        """A field of the form; "" if it is not there."""
        return self.form.get(name, [""])[0].replace("\r\n", "\n")

    def typed(self, name: str, value: Any = "") -> Any:
        """The value of a form's field: what was typed, if the form was sent and refused, else a value."""
        return self.field(name) if name in self.form else value

    def url(self, path: str, **params: Any) -> str:
        """The address of a page; the tenant that is looked at stays."""
        kept = self.request.query_params.get("tenant")
        if self.grant.tenant is None and kept is not None:
            params.setdefault("tenant", kept)
        elif self.grant.tenant is not None:
            params.pop("tenant", None)
        said = {name: value for name, value in params.items() if value is not None}
        return f"{self.base}{path}{'?' + urlencode(said) if said else ''}"

    @property
    def job_id(self) -> int:
        """The id in the path."""
        return read_job_id(self.request.path_params["job_id"])


def read_job_id(text: str) -> int:
    """The id of a job as people paste it."""
    text = text.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > MAX_ID:
        raise BadInput("id", text, needed="the id of a job, a number")
    return int(text)
