"""The dashboard as an ASGI application: pages, actions, files, and who may see them.

    request ──▶ token in the header, session of the cookie, or loopback ──▶ Grant ──▶ page or action
       │ none of them                                                         │ action without its form token
       ▼                                                                      ▼
    sign-in page                                                             403

`holdfast serve` has it at `/`. In another application: `app.mount("/holdfast", dashboard(queue))`.

Pages are live: an event tells that what a page shows has changed, and it is read again.

    GET /live                `changed`, when jobs have come, moved or ended, or a pause has come or gone
    GET /live?of=SECTION     and when something that this page lists was set, changed or removed
    GET /live?job=ID         `changed`, at each change of the job, until it has ended

All pages of one tenant share one read of the store a second, however many are open.
"""

import logging
import re
from binascii import a2b_qp
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from ...core import queries as q
from ...core.access import Grant, Scope, confine
from ...core.bounds import DATA_BYTES, HTTP_BODY_BYTES
from ...core.errors import BadInput, Forbidden, HoldfastError, NotFound, Unauthenticated
from ...core.token import hash_of
from ...core.units import counted
from ...queue.base import BaseQueue
from ...store.common.clock import system_clock
from ..guard import REFUSED, Guard, incidents
from ..http.events import Feeds, event_response, job_stream
from ..http.exchange import Exchange, header_of, peer_of
from ..http.problems import TITLES, Refusal, status_of
from ..http.router import Router
from . import audit, parts, tenants
from .actions import ACTIONS, HANDLER_ACTIONS, NOTICES, Act
from .layout import HEADERS, TYPES, asset, render, respond
from .markup import el, hidden, join
from .pages import (
    consumers,
    handlers,
    job,
    jobs,
    journal,
    limits,
    overview,
    schedules,
    settings,
    tasks,
    workers,
)
from .sessions import COOKIE, SESSION_MS, ActionBudget, EndedSessions, Sessions, SignIn, read_session
from .tenants import TenantNames
from .view import HandlerTrials, Page, PageOrResponse, View, read_job_id

log = logging.getLogger("holdfast.serve")

PAGES: dict[str, Act] = {
    "/": overview.overview,
    "/jobs": jobs.jobs,
    "/jobs/{job_id}": job.job,
    "/jobs/{job_id}/data": job.data,
    "/jobs/{job_id}/edit": job.edit,
    "/jobs/{job_id}/signal": job.job,
    "/tasks": tasks.tasks,
    "/task": tasks.task,
    "/schedules": schedules.schedules,
    "/limits": limits.limits,
    "/workers": workers.workers,
    "/handlers": handlers.handlers,
    "/handler": handlers.handler,
    "/consumers": consumers.consumers,
    "/journal": journal.journal,
    "/settings": settings.settings,
}
# The page of a form: it comes back with what was typed if that is refused.
FORM_PAGES: dict[str, Act] = {
    "/limits/set": limits.limits,
    "/settings/tokens/create": settings.settings,
    "/settings/retention": settings.settings,
    "/settings/purge": settings.settings,
    "/jobs/{job_id}/edit": job.edit,
    "/jobs/{job_id}/signal": job.job,
    "/handlers/set": handlers.draft,
    "/handlers/try": handlers.draft,
}
# What is shown while the store is away.
WITHOUT_STORE = (journal.journal,)
# A form may contain the data of a job, each byte of it escaped.
FORM_BYTES, FORM_FIELDS = 3 * DATA_BYTES, 20_000
_BAD_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")
# A token, and the address of the page to go to.
SIGN_IN_BYTES = 16 * 1024
NO_FORM_TOKEN = "this form is not of your session; go back, reload the page and try again"


class Dashboard:
    """The pages over one store."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        store: str = "",
        key: bytes | None = None,
        is_tls: bool = False,
        admit: Callable[[Request], Grant] | None = None,
        is_live: bool = True,
        trials: HandlerTrials | None = None,
    ) -> None:
        self._exchange, self._store, self._is_tls, self._trials = exchange, store, is_tls, trials
        self._sessions, self._ended = Sessions(key), EndedSessions(exchange.asking)
        self._budget = ActionBudget()
        self._tenants = TenantNames(exchange.asking)
        self._live = LivePages(exchange, self._readmit)
        # What an application around it lets its clients do; None: they sign in with a token.
        self._admit_client = admit
        # Whether pages listen for changes, over connections that stay open.
        self._is_live = is_live

    def add_to(self, router: Router) -> None:
        """Have a router answer the paths of the dashboard."""
        for path, page in PAGES.items():
            router.add("GET", path, self._shown(page))
        for path, act in ACTIONS.items():
            router.add("POST", path, self._done(act, Scope.MANAGE, FORM_PAGES.get(path)))
        for path, act in HANDLER_ACTIONS.items():
            router.add("POST", path, self._done(act, Scope.HANDLERS, FORM_PAGES.get(path)))
        if self._is_live:
            router.add("GET", "/live", self._shown(self._live.stream))
        router.add("GET", "/sign-in", self._sign_in_page)
        router.add("POST", "/sign-in", self._open_session)
        router.add("POST", "/sign-out", self._close_session)
        router.add("GET", "/static/{name}", _static)
        router.missing_page = self._shown(_missing)

    # Who asks

    async def _admit(self, request: Request) -> tuple[Grant, SignIn | None]:
        if self._admit_client is not None:
            return self._admit_client(request), None
        session = await self._session_of(request)
        if session is None:
            return await self._exchange.admit(request), None
        grant = await self._grant_of(session)
        self._exchange.guard.spend(grant, loopback=self._exchange.loopback, peer=peer_of(request))
        return grant, session

    async def _readmit(self, request: Request) -> None:
        """Raise `Unauthenticated` if the token was revoked, or has expired, since the client was admitted."""
        if self._admit_client is not None:
            return
        session = await self._session_of(request)
        await (self._exchange.readmit(request) if session is None else self._grant_of(session))

    async def _session_of(self, request: Request) -> SignIn | None:
        """The session of the cookie; None: there is none, or the client shows a token itself.

        Where no token is needed, a session that does not hold is none: the cookie may be of another server,
        because a browser sends it to all ports of a machine.
        """
        if header_of(request, b"authorization") is not None:
            return None
        session = read_session(request.cookies.get(COOKIE))
        if session is not None and self._exchange.is_open:
            try:
                await self._grant_of(session)
            except Unauthenticated:
                return None
        return session

    async def _grant_of(self, session: SignIn) -> Grant:
        """What the token of a session allows now; raises `Unauthenticated`."""
        token, now_ms = await self._exchange.guard.find_token(session.name)
        if token is None or not self._sessions.holds(session, token.hash, now_ms=now_ms):
            raise Unauthenticated(REFUSED)
        if (token.expires_at and now_ms >= token.expires_at) or await self._ended.has(session):
            raise Unauthenticated(REFUSED)
        grant = Grant(tenant=token.tenant, scopes=token.scopes, name=token.name)
        return self._exchange.guard.restrict(grant, loopback=self._exchange.loopback)

    async def _view(self, request: Request, *, has_store: bool) -> View:
        grant, session = await self._admit(request)
        exchange = self._exchange
        names = has_store and grant.tenant is None and Scope.READ in grant.scopes
        return View(
            exchange=exchange,
            request=request,
            grant=grant,
            session=session,
            form_token=self._sessions.form_token(session, grant.name),
            budget=self._budget,
            now_ms=await exchange.asking.ask_async(q.GetTime()) if has_store else system_clock(),
            base=request.scope.get("root_path", ""),
            store=self._store,
            trials=self._trials,
            tenants=await self._tenants.listed() if names else (),
        )

    # Pages and actions

    def _shown(self, page: Act) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return await self._answer(request, page, None)

        return answer

    def _done(self, act: Act, scope: Scope, form_page: Act | None) -> Callable[[Request], Any]:
        async def answer_or_form(view: View) -> PageOrResponse:
            try:
                return await act(view)
            except BadInput as error:
                if form_page is None or not isinstance(page := await form_page(view), Page):
                    raise
                problem = el("p", str(error), class_="problem", role="alert")
                return replace(page, body=join(problem, page.body), status=status_of(error), live=None)

        async def answer(request: Request) -> Response:
            return await self._answer(request, answer_or_form, scope)

        return answer

    async def _form(self, request: Request, *, max_bytes: int) -> dict[str, list[str]]:
        kind = (header_of(request, b"content-type") or "").partition(";")[0].strip()
        if kind != "application/x-www-form-urlencoded":
            raise Refusal(415, "CONTENT_TYPE", "forms are sent as application/x-www-form-urlencoded")
        raw = await self._exchange.body(request, max_bytes=max_bytes)
        return await self._exchange.decoding.run(len(raw), lambda: read_form(raw))

    async def _answer(self, request: Request, answer: Act, scope: Scope | None) -> Response:
        """The page, or the reply to a form, which needs a scope."""
        view: View | None = None
        try:
            view = await self._view(request, has_store=answer not in WITHOUT_STORE)
            if scope is not None:
                # Before anything is read, asked or written down.
                view.require(scope)
                # Only now: a client without a token must not fill the memory.
                view = replace(view, form=await self._form(request, max_bytes=FORM_BYTES))
                self._check_form(view)
                self._budget.spend(view.grant.name, now_ms=view.now_ms)
            made = await answer(view)
            if isinstance(made, Response):
                return made
            made = _with_notice(view, made if self._is_live else replace(made, live=None))
            if answer not in WITHOUT_STORE and not await tenants.is_known(view):
                made = replace(made, body=join(tenants.unknown(view), made.body))
            return render(view, made)
        except Unauthenticated as error:
            return _problem(request, error, None) if scope is not None else _to_sign_in(request)
        except HoldfastError as error:
            if view is not None and scope is not None and isinstance(error, Forbidden):
                audit.record_refused(view)
            return _problem(request, error, view)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            # Its type alone: there may be data in its text.
            log.error("a page failed: %s", type(error).__name__, exc_info=log.isEnabledFor(logging.DEBUG))
            return _problem(request, HoldfastError("the server failed; its log tells more"), view)

    def _check_form(self, view: View) -> None:
        """Refuse a form that no page of this session made."""
        if not self._sessions.is_form_token(view.field("csrf"), view.session, view.grant.name):
            raise Forbidden(NO_FORM_TOKEN)
        check_origin(view.request)

    # Sign-in

    async def _sign_in_page(self, request: Request) -> Response:
        return _sign_in_form(request, request.query_params.get("next", ""))

    async def _open_session(self, request: Request) -> Response:
        try:
            check_origin(request)
            fields = await self._form(request, max_bytes=SIGN_IN_BYTES)
            secret = fields.get("token", [""])[0].strip()
            guard = self._exchange.guard
            try:
                grant = await guard.grant(secret or "-", loopback=False, peer=peer_of(request))
            except Unauthenticated as error:
                return _sign_in_form(request, fields.get("next", [""])[0], problem=str(error))
            _, now_ms = await guard.find_token(grant.name)
            session = self._sessions.open(grant.name, hash_of(secret), now_ms=now_ms)
        except HoldfastError as error:
            return _problem(request, error, None)
        except ClientDisconnect:
            return Response(status_code=400)
        base = request.scope.get("root_path", "")
        there = fields.get("next", [""])[0]
        response = RedirectResponse(there if _is_own(base, there) else f"{base}/", 303, HEADERS)
        response.set_cookie(
            COOKIE,
            session.value,
            max_age=SESSION_MS // 1000,
            path=f"{base}/",
            httponly=True,
            samesite="strict",
            secure=self._is_tls or request.url.scheme == "https",
        )
        return response

    async def _close_session(self, request: Request) -> Response:
        try:
            check_origin(request)
        except HoldfastError as error:
            return _problem(request, error, None)
        session = read_session(request.cookies.get(COOKIE))
        try:
            if session is not None:
                await self._grant_of(session)
                _, now_ms = await self._exchange.guard.find_token(session.name)
                await self._ended.end(session, now_ms=now_ms)
        except HoldfastError as error:
            # A session that does not hold is over already; while the store is away, this server alone knows.
            incidents.report(error)
        base = request.scope.get("root_path", "")
        response = RedirectResponse(f"{base}/sign-in", 303, HEADERS)
        response.delete_cookie(COOKIE, path=f"{base}/")
        return response


def read_form(raw: bytes) -> dict[str, list[str]]:
    """The values of each field of a form; raises `BadInput` for too many, and for an escape that is none."""
    if raw.count(b"&") >= FORM_FIELDS:
        raise BadInput("fields of the form", "more", needed=f"at most {FORM_FIELDS:,}")
    if _BAD_ESCAPE.search(raw) is not None:
        raise BadInput("form", "a % without two digits", needed="%25")
    found: dict[str, list[str]] = {}
    for part in filter(None, raw.split(b"&")):
        name, _, value = part.partition(b"=")
        found.setdefault(_unescaped(name), []).append(_unescaped(value))
    return found


def _unescaped(part: bytes) -> str:
    # Quoted-printable has the same escapes with another sign. Its decoder makes no object of each: a form of
    # escapes took 75 times its bytes.
    text = part.replace(b"+", b" ").replace(b"=", b"%3D").replace(b"%", b"=")
    return a2b_qp(text).decode("utf-8", "replace")


def check_origin(request: Request) -> None:
    """Refuse a form that a page of another site sends; browsers say where a form comes from."""
    origin, host = header_of(request, b"origin"), header_of(request, b"host") or ""
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise Forbidden("forms of pages of other sites are refused")
    if header_of(request, b"sec-fetch-site") not in (None, "same-origin", "none"):
        raise Forbidden("forms of pages of other sites are refused")


def _is_own(base: str, there: str) -> bool:
    """Whether an address is one of the dashboard's own pages."""
    return there.startswith(f"{base}/") and not there.startswith(("//", "/\\")) and "\\" not in there


def _with_notice(view: View, page: Page) -> Page:
    """The page with a line about the action that led to it."""
    text = NOTICES.get(view.param("done"))
    if text is None:
        return page
    count, left = view.number("count"), view.number("left")
    if count is not None:
        text = f"{text} {counted(count, 'job')}{f', {left:,} left as they are' if left else ''}."
    notice = el("p", text, class_="notice", role="status")
    return replace(page, body=join(notice, page.body))


def _to_sign_in(request: Request) -> Response:
    base, url = request.scope.get("root_path", ""), request.url
    there = url.path + (f"?{url.query}" if url.query else "")
    return RedirectResponse(f"{base}/sign-in?{urlencode({'next': there})}", 303, HEADERS)


def _sign_in_form(request: Request, there: str, problem: str = "") -> Response:
    base = request.scope.get("root_path", "")
    body = el(
        "body",
        el(
            "main",
            parts.icon("holdfast"),
            el("h1", "Sign in"),
            el("p", problem, class_="problem", role="alert") if problem else None,
            el(
                "form",
                el("label", "Token", for_="token"),
                el(
                    "input",
                    type="password",
                    id="token",
                    name="token",
                    required=True,
                    autocomplete="current-password",
                    autofocus=True,
                ),
                hidden(next=there),
                el("button", "Sign in", type="submit", class_="primary"),
                method="post",
                action=f"{base}/sign-in",
                class_="fields",
            ),
            el("p", "An operator makes tokens: ", el("code", "holdfast token create NAME"), class_="note"),
            class_="card sign-in",
        ),
        class_="bare",
    )
    return respond(base, "Sign in", body, 401 if problem else 200)


def _problem(request: Request, error: HoldfastError, view: View | None) -> Response:
    """What went wrong, as a page."""
    status = status_of(error)
    title = TITLES.get(status, "The request failed")
    base = request.scope.get("root_path", "")
    inside = join(
        parts.heading(title),
        el("p", str(incidents.report(error)), class_="problem"),
        el("p", el("a", "To the overview", href=f"{base}/")),
    )
    if view is not None:
        return render(view, Page(title=title, body=inside, status=status, live=None))
    return respond(base, title, el("body", el("main", inside, class_="card sign-in"), class_="bare"), status)


async def _missing(view: View) -> Page:
    """The answer to a path that no page has."""
    raise NotFound("page", view.request.url.path.removeprefix(view.base))


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    suffix = name[name.rfind(".") :]
    if suffix not in TYPES or "/" in name or name not in ("style.css", "app.js", "icon.svg"):
        return Response(status_code=404, headers=HEADERS)
    raw, mark = asset(name)
    headers = HEADERS | {"Cache-Control": "public, max-age=31536000, immutable", "ETag": f'"{mark}"'}
    return Response(raw, 200, headers, TYPES[suffix])


def dashboard(
    queue: BaseQueue,
    *,
    sign_in: bool = True,
    admit: Callable[[Request], Grant] | None = None,
    key: bytes | None = None,
    is_live: bool = True,
) -> Router:
    """The dashboard of a queue's store as an ASGI application, to be mounted in another one.

    Clients sign in with a token. Without `sign_in` each client may do everything, or what `admit` returns for
    its request, so the application around it must check who they are. Processes with the same `key` take each
    other's forms. Without `is_live` no connection stays open, and pages do not change by themselves.
    """
    if admit is None and not sign_in:
        admit = _admit_all
    guard = Guard(queue.connection, always=True)
    exchange = Exchange(queue.connection, guard, loopback=False, max_body_bytes=HTTP_BODY_BYTES)
    router = Router()
    Dashboard(exchange, admit=admit, key=key, is_live=is_live).add_to(router)
    return router


def _admit_all(_: Request) -> Grant:
    return Grant()


CHANGED = b"event: changed\ndata: {}\n\n"
# What a page lists besides jobs, by the name of its section.
LISTED: dict[str, Callable[..., q.Query]] = {"limits": q.ListLimits, "schedules": q.ListSchedules}
# A browser that lost its connection comes back after so long.
HELLO = b"retry: 3000\n\n"


class LivePages:
    """The events of one server."""

    def __init__(self, exchange: Exchange, readmit: Callable[[Request], Awaitable[None]]) -> None:
        self._exchange, self._feeds, self._readmit = exchange, Feeds(exchange, _shown_event), readmit

    async def stream(self, view: View) -> Response:
        """The events for one page."""
        if job := view.param("job"):
            of_job = confine(view.grant, q.GetJob(job_id=read_job_id(job)))
            await self._exchange.asking.ask_async(of_job)
            events = job_stream(self._exchange, of_job)
        else:
            asked: list[q.Query] = [q.GetOverview(tenant=view.tenant, only_own=view.tenant is not None)]
            if (listed := LISTED.get(view.param("of"))) is not None:
                asked.append(listed(tenant=view.one_tenant))
            events = self._feeds.stream(*(confine(view.grant, one) for one in asked))
        return event_response(_changes(events), partial(self._readmit, view.request), headers=HEADERS)


def _shown_event(overview: q.Overview, *lists: Any) -> bytes:
    """A text that is another one whenever a page would be; a browser gets only that it has changed."""
    return msgspec.json.encode((overview.tasks, overview.pauses, lists), order="deterministic")


async def _changes(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """An event for each change; the first, which tells how things are, is none."""
    is_first = True
    yield HELLO
    async with aclosing(events):
        async for event in events:
            if event.startswith(b":"):
                yield event
            elif is_first:
                is_first = False
            else:
                yield CHANGED
