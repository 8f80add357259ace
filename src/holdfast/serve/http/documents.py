"""The paths of three of the documents, as they have them: Jobber's queue, Walrus's schedule, serverless.

    POST /jobber/queue   {"type", "payload"}                         201 {"job-id": uuid}
    POST /schedule/      {"job_type", "payload", "run_after_secs"}   201 {"job_id": id}
    PUT /schedule/ID     {"payload"}                                 204
    DELETE /schedule/ID                                              204

A uuid is the job's id in another form, and leads back to it. docs/http.md tells where the originals differ.

In the paths of the serverless document CLIENT is the tenant, TYPE the task.

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
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from ...core import commands as c
from ...core.access import Grant
from ...core.bounds import MAX_DURATION_MS, NAME_BYTES
from ...core.creating import adds_of_lines, check_line_names
from ...core.errors import BadInput, NotFound, StoreError
from ...core.handler import DeleteHandler, GetHandler, Handler, RunnerOptions, SetHandler
from ...core.ids import MAX_ID
from ...core.units import iso
from ..guard import incidents
from .exchange import Exchange, lines_of, mark_trace, respond
from .problems import Refusal
from .values import Id, Name, read_body

WRONG = "body not in the right format"
# The upper half of the uuid of a job: a version 8, whose bits are the maker's own. Never change it.
_UPPER = 0x686F6C64_6661_8736
_VARIANT = 0b10 << 62
NO_TYPE = "JobType cannot be empty"


def uuid_of(job_id: int) -> str:
    """The uuid of a job: its id, in the 62 bits that a uuid of version 8 leaves in its lower half."""
    return str(UUID(int=_UPPER << 64 | (job_id >> 62 & 1) << 64 | _VARIANT | job_id & (1 << 62) - 1))


def id_of(text: str) -> int:
    """The id of a job from its uuid, or from its digits; `NotFound` where no job has it."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_ID:
        return int(text)
    try:
        number = UUID(text).int
    except ValueError:
        raise NotFound("job", text[:40]) from None
    upper, lower = number >> 64, number & (1 << 64) - 1
    job_id = (upper & 1) << 62 | lower & (1 << 62) - 1
    if upper & ~1 != _UPPER or lower >> 62 != 0b10:
        raise NotFound("job", text[:40])
    return job_id


async def queue_job(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Queue a job, as the document has it."""
    body = _body(await exchange.body(request))
    task = _value(body.type)
    if not isinstance(task, str) or not task.strip():
        raise Refusal(400, "BAD_INPUT", WRONG)
    job_id = await _add(exchange, request, grant, c.NewJob(task=task.strip(), data=body.data))
    return respond({"job-id": uuid_of(job_id)}, 201)


async def schedule_job(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Schedule a job, a number of seconds from now."""
    body = _body(await exchange.body(request))
    task, after_s = _value(body.job_type), _value(body.run_after_secs)
    if not isinstance(task, str) or not task.strip():
        raise Refusal(500, "BAD_INPUT", NO_TYPE)
    if (
        isinstance(after_s, bool)
        or not isinstance(after_s, int | float)
        or not 0 <= after_s * 1000 <= MAX_DURATION_MS
    ):
        raise BadInput("run_after_secs", after_s, needed="seconds from now, 0 or more")
    new = c.NewJob(task=task.strip(), data=body.data, delay_ms=int(after_s * 1000))
    return respond({"job_id": str(await _add(exchange, request, grant, new))}, 201)


async def change_job(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Give a scheduled job another payload."""
    body = _body(await exchange.body(request))
    if body.payload is UNSET:
        raise Refusal(400, "BAD_INPUT", WRONG)
    job_id = id_of(request.path_params["job_id"])
    await exchange.ask(grant, c.Update(job_id=job_id, data=body.data))
    return Response(status_code=204)


async def unschedule_job(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Remove a scheduled job: it does not run."""
    await exchange.ask(grant, c.Delete(job_id=id_of(request.path_params["job_id"])))
    return Response(status_code=204)


async def _add(exchange: Exchange, request: Request, grant: Grant, new: c.NewJob) -> int:
    try:
        (job_id,) = await exchange.ask(grant, c.Add(jobs=mark_trace(request, [new])))
    except StoreError as error:
        # The status of the original. Its cause is for the log: it has the address of the store.
        raise Refusal(500, error.code, f"the job could not be queued: {incidents.report(error)}") from None
    return int(job_id)


class SentJob(msgspec.Struct, frozen=True):
    """A body of either system. Of a payload no objects are made: it is kept as it came, without blanks."""

    type: Raw = Raw(b"null")
    job_type: Raw = Raw(b"null")
    run_after_secs: Raw = Raw(b"0")
    payload: Raw | UnsetType = UNSET

    @property
    def data(self) -> str:
        """The payload as data of a job."""
        payload = b"null" if self.payload is UNSET else bytes(self.payload)
        return read_body(msgspec.json.format(payload, indent=-1))


def _body(raw: bytes) -> SentJob:
    try:
        return msgspec.json.decode(raw, type=SentJob)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Refusal(400, "BAD_INPUT", WRONG) from None


def _value(raw: Raw) -> Any:
    """A name or a number; what is too long for either is none."""
    return msgspec.json.decode(raw) if len(bytes(raw)) <= 6 * NAME_BYTES else None


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
