"""The application: a table of paths, each admitted, asked and answered in the same way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...core import commands as c
from ...core import handler as h
from ...core import queries as q
from ...core.access import Grant, check_kind, confine
from ...core.errors import HoldfastError, NotFound, Unavailable
from ...core.verbs import Asked
from ..service import StoreProbe
from . import documents, jobs, tokens
from .events import Feeds, event_response, job_events
from .exchange import Endpoint, Exchange, check_site, decode, read, read_query, respond, wait_s_of
from .forms import form_of, reply_form
from .metrics import metrics
from .openapi import document
from .problems import bad_json, response_to, unexpected
from .router import Router
from .routes import BY_NAME, ROUTES, RoutePlan, plan_of, wire_fields
from .values import Name

log = logging.getLogger("holdfast.serve")

PLANS = tuple(plan_of(route) for route in (*ROUTES, *BY_NAME))

# Paths that are more than one command, or have a form of their own; and what a client must be allowed to ask
# for before its body is read.
SPECIAL: tuple[tuple[str, str, Endpoint, Asked], ...] = (
    ("POST", "/v1/jobs", jobs.add, c.Add),
    ("GET", "/v1/jobs", jobs.list_jobs, q.ListJobs),
    ("GET", "/v1/jobs/{job_id}/data", jobs.get_data, q.GetData),
    ("GET", "/v1/jobs/{job_id}/result", jobs.get_result, c.Await),
    ("GET", "/v1/jobs/{job_id}/children", jobs.list_children, q.ListChildren),
    ("GET", "/v1/jobs/{job_id}/events", job_events, q.GetJob),
    ("POST", "/v1/jobs/{job_id}/signals/{name}", jobs.signal, c.SendSignal),
    ("POST", "/v1/tokens", tokens.create_token, c.CreateToken),
    ("POST", "/jobber/queue", documents.queue_job, c.Add),
    ("POST", "/schedule/", documents.schedule_job, c.Add),
    ("PUT", "/schedule/{job_id}", documents.change_job, c.Update),
    ("DELETE", "/schedule/{job_id}", documents.unschedule_job, c.Delete),
    ("POST", "/{client}/job/{type}/add", documents.add_jobs, c.Add),
    ("POST", "/{client}/handler/add/{type}/add", documents.set_handler, h.SetHandler),
    ("GET", "/{client}/handler/get/{type}", documents.get_handler, h.GetHandler),
    ("POST", "/{client}/handler/del/{type}/delete", documents.delete_handler, h.DeleteHandler),
    ("DELETE", "/{client}/handler/del/{type}/delete", documents.delete_handler, h.DeleteHandler),
)


def application(exchange: Exchange) -> Router:
    """The application of one server."""
    feeds = Feeds(exchange)

    async def events(exchange: Exchange, request: Request, grant: Grant) -> Response:
        asked = confine(grant, q.GetOverview(tenant=_tenant(request)))
        return event_response(feeds.stream(asked), partial(exchange.readmit, request))

    endpoints = [
        *SPECIAL,
        ("GET", "/v1/events", events, q.GetOverview),
        *((p.route.method, p.route.path, _endpoint(p), p.route.kind) for p in PLANS),
    ]
    router = Router()
    router.add("GET", "/healthz", _healthz)
    router.add("GET", "/readyz", _readyz(exchange))
    router.add("GET", "/metrics", _guarded(exchange, metrics))
    router.add("GET", "/v1/openapi.json", _openapi)
    # Those that begin with any name come last: the others need not be held against them.
    for method, path, endpoint, kind in sorted(endpoints, key=lambda one: one[1].startswith("/{")):
        router.add(method, path, _guarded(exchange, endpoint, kind))
    return router


def _guarded(
    exchange: Exchange, endpoint: Endpoint, kind: Asked | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Admit the client, then have the endpoint answer; whatever is refused is a problem.

    A client that may not ask for what the endpoint is about is refused before its body is read.
    """

    async def answer(request: Request) -> Response:
        try:
            check_site(request)
            grant = await exchange.admit(request)
            if kind is not None:
                check_kind(grant, kind)
            return await endpoint(exchange, request, grant)
        except HoldfastError as error:
            return response_to(error)
        except ClientDisconnect:
            # The client has disconnected.
            return Response(status_code=400)
        except Exception as error:
            # Its type alone: there may be data in its text.
            log.error("a request failed: %s", type(error).__name__)
            return unexpected()

    return answer


def _endpoint(plan: RoutePlan) -> Endpoint:
    """What a path of the table does."""
    route = plan.route
    form, reply = form_of(route.kind), reply_form(route.kind)

    async def answer(exchange: Exchange, request: Request, grant: Grant) -> Response:
        has_body = route.method in ("POST", "PUT", "PATCH")
        raw = await exchange.body(request) if has_body else b""
        path = {name: _checked(name, value) for name, value in request.path_params.items()}

        def record() -> tuple[dict[str, Any], Any]:
            said = _fields(request, plan, raw if has_body else None)
            return said, read(route.kind, form.type(**wire_fields(plan, said, path)))

        try:
            said, asked = await exchange.decoding.run(len(raw), record)
        except TypeError as error:
            raise bad_json(error) from None
        wait_s = wait_s_of(said.get("wait")) if route.waits else 0.0
        asking = exchange.ask(grant, asked, wait_s=wait_s)
        found = await (exchange.wait(request, asking, None) if wait_s else asking)
        if route.waits and not wait_s:
            found = await exchange.unless_gone(request, found)
        if route.kind is c.Claim:
            exchange.release_unless_arrived(request, found or [])
        if isinstance(asked, q.PagedQuery):
            # In a thread: a page may have a thousand entries, and other requests must not wait for them.
            return await asyncio.to_thread(_shown, plan, reply.write, found, asked)
        return _shown(plan, reply.write, found, asked)

    return answer


def _shown(plan: RoutePlan, write: Callable[[Any], Any] | None, found: Any, asked: Any) -> Response:
    route = plan.route
    if found == "gone" and not route.reply == "why":
        raise NotFound("job", asked.job_id)
    if route.status == 204:
        return Response(status_code=204)
    if found is None and route.kind.__name__ == "Claim":
        # The server closes.
        found = []
    value = found if write is None or found is None else write(found)
    return respond({route.reply: value} if route.reply else value, route.status)


def _fields(request: Request, plan: RoutePlan, raw: bytes | None) -> dict[str, Any]:
    """The fields in the body, or in the query if the method has none; no body is an object without any."""
    if plan.type is None:
        return {}
    said = read_query(request, plan.type) if raw is None else decode(raw or b"{}", plan.type)
    return {
        part.name: value for part in plan.parts if (value := getattr(said, part.name)) is not msgspec.UNSET
    }


def _checked(name: str, value: str) -> str:
    """A name in a path, which must be one that things can have."""
    if name in ("job_id", "domain"):
        return value
    try:
        checked: str = msgspec.convert(value, Name)
    except msgspec.MsgspecError as error:
        raise bad_json(error) from None
    return checked


def _tenant(request: Request) -> str | None:
    tenant = request.query_params.get("tenant")
    return None if tenant is None else _checked("tenant", tenant)


async def _healthz(_request: Request) -> Response:
    """Whether the server is alive: without its store too, which a new start would not bring back."""
    return respond({"status": "ok"})


def _readyz(exchange: Exchange) -> Callable[[Request], Awaitable[Response]]:
    """Whether the store answers and the server is not closing; needs no token, and reveals nothing else."""
    probe = StoreProbe(exchange.connection)

    async def answer(_request: Request) -> Response:
        if exchange.draining.is_set():
            return response_to(Unavailable("the server is closing"))
        if not await probe.is_ready():
            # Not why: the error of a store has its address.
            return response_to(Unavailable("the store does not answer"))
        return respond({"status": "ready"})

    return answer


async def _openapi(_request: Request) -> Response:
    return respond(document())
