"""The paths of two of the documents, as they have them: Jobber's queue, and Walrus's schedule.

    POST /jobber/queue   {"type", "payload"}                         201 {"job-id": uuid}
    POST /schedule/      {"job_type", "payload", "run_after_secs"}   201 {"job_id": id}
    PUT /schedule/ID     {"payload"}                                 204
    DELETE /schedule/ID                                              204

A uuid is the job's id in another form, and leads back to it. docs/http.md tells where the originals differ.
"""

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ...core import commands as c
from ...core.access import Grant
from ...core.bounds import MAX_DURATION_MS, NAME_BYTES
from ...core.errors import BadInput, NotFound, StoreError
from ...core.ids import MAX_ID
from ..guard import incidents
from .exchange import Exchange, mark_trace, respond
from .problems import Refusal
from .values import read_body

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
