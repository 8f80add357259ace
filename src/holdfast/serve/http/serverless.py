"""The paths of the serverless document, as it has them. CLIENT is the tenant, TYPE the task.

    POST /CLIENT/job/TYPE/add                     a job for each line of the body     201 {"ids": [id, …]}
    POST /CLIENT/handler/add/TYPE/add?method=     the handler's lang and its body     201 the handler
    POST or DELETE /CLIENT/handler/del/TYPE/delete                                    204
    GET /CLIENT/handler/get/TYPE                                                      200 the handler

The body of a handler is its `body`; the document's other parts go in the query (`before`, `beforeEach`,
`afterEach`, `eid`), and so do the options (`batch`, `batchSize`, `timeoutMs`, …). The names are those of the
document, also in the reply.
"""

import re
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ...core.access import Grant
from ...core.creating import adds_of_lines, check_line_names
from ...core.errors import BadInput
from ...core.handler import DeleteHandler, GetHandler, Handler, RunnerOptions, SetHandler
from ...core.units import iso
from .exchange import Exchange, lines_of, mark_trace, respond
from .values import Id, Name


def _document_names(*names: str) -> dict[str, str]:
    """Our names by those of the document, which has capitals where ours have underscores."""
    return {re.sub("_(.)", lambda found: found[1].upper(), name): name for name in names}


_SCRIPTS = _document_names("eid", "before", "before_each", "after_each")
_OPTIONS = _document_names(*RunnerOptions.__struct_fields__)


class AddedIds(msgspec.Struct, frozen=True):
    """The ids of the jobs that were added, in order."""

    ids: list[Id]


class ServerlessHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler in the words of the document."""

    id: Id
    type: str
    dt: str
    version: int
    lang: str
    eid: str
    before: str
    beforeEach: str  # noqa: N815
    body: str
    afterEach: str  # noqa: N815
    options: dict[str, Any]


async def add_jobs(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Add a job for each line of the body."""
    tenant, task = _names(request)
    raw = await exchange.body(request)
    ids: list[int] = []
    for command in adds_of_lines(tenant, task, lines_of(raw)):
        ids += await exchange.ask(grant, replace(command, jobs=mark_trace(request, command.jobs)))
    return respond(AddedIds([str(job_id) for job_id in ids]), 201)


async def set_handler(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Make a new version of a handler: the body is its body, `method` its language."""
    tenant, task = _names(request)
    given = dict(request.query_params)
    try:
        body = (await exchange.body(request)).decode()
    except UnicodeDecodeError:
        raise BadInput("body", "bytes", needed="UTF-8 text") from None
    lang = given.pop("method", "")
    scripts: dict[str, Any] = {_SCRIPTS[name]: given.pop(name) for name in list(given) if name in _SCRIPTS}
    options = {_OPTIONS[name]: given.pop(name) for name in list(given) if name in _OPTIONS}
    if given:
        known = ", ".join(("method", *_SCRIPTS, *_OPTIONS))
        raise BadInput("parameter", min(given), needed=f"one of {known}")
    try:
        made = msgspec.convert(options, RunnerOptions, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput("options", str(error), needed="numbers") from None
    handler = Handler(task=task, tenant=tenant, lang=lang, body=body, options=made, **scripts)
    kept: Handler = await exchange.ask(grant, SetHandler(handler=handler))
    return respond(_shown(kept), 201)


async def get_handler(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """The newest version of a handler."""
    tenant, task = _names(request)
    return respond(_shown(await exchange.ask(grant, GetHandler(tenant=tenant, task=task))))


async def delete_handler(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Delete a handler with all its versions."""
    tenant, task = _names(request)
    await exchange.ask(grant, DeleteHandler(tenant=tenant, task=task))
    return Response(status_code=204)


def _names(request: Request) -> tuple[str, str]:
    """The tenant and the task that the path names."""
    tenant, task = (request.path_params[name] for name in ("client", "type"))
    for what, name in (("client", tenant), ("type", task)):
        try:
            msgspec.convert(name, Name)
        except msgspec.ValidationError:
            raise BadInput(
                what, name, needed="text of at most 255 bytes without control characters"
            ) from None
    check_line_names(tenant, task)
    return tenant, task


def _shown(handler: Handler) -> ServerlessHandler:
    options = {name: getattr(handler.options, field) for name, field in _OPTIONS.items()}
    return ServerlessHandler(
        id=str(handler.id),
        type=handler.task,
        dt=iso(handler.created_at),
        version=handler.version,
        lang=handler.lang,
        eid=handler.eid,
        before=handler.before,
        beforeEach=handler.before_each,
        body=handler.body,
        afterEach=handler.after_each,
        options={name: value for name, value in options.items() if value},
    )
