"""Jobs over HTTP, where a path is more than one command: adding many, or once; pages, bodies, results."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from ...core import commands as c
from ...core import queries as q
from ...core.access import Grant, confine
from ...core.bounds import BATCH_JOBS, HTTP_KEY_BYTES, PAGE_JOBS
from ...core.checks import check_signal_size
from ...core.creating import add_commands
from ...core.errors import BadInput, HoldfastError, NotFound, Unavailable
from ...core.ids import SLOTS, IdRange, moved
from ...core.job import Body, Job, readable
from ...core.slots import slot_for
from ...engine.commands.requests import NoteRequest, RequestNote
from .exchange import (
    BYTES,
    JSON,
    NDJSON,
    Exchange,
    decode,
    header_of,
    lines_of,
    mark_trace,
    read,
    read_query,
    respond,
    wait_s_of,
)
from .forms import Part, define, form_of
from .problems import Refusal
from .values import Id, Name, Whole, read_body, read_id

log = logging.getLogger("holdfast.serve")

KEY = b"idempotency-key"
# How many jobs of a stream are looked up, and written, at a time.
STREAMED = 200
# How many lines are read before other requests have their turn.
READ_AT_ONCE = 200
NEW_JOB = form_of(c.NewJob).type
_FILTER = form_of(q.JobFilter).type.__annotations__
JOB_QUERY = (
    Part("tenant", Name, False),
    Part("task", Name, False),
    Part("state", _FILTER["state"], False),
    Part("place", _FILTER["place"], False),
    Part("domain", str, False),
    Part("parent_id", Id, False),
    Part("schedule", Name, False),
    Part("archived", bool, False),
)
PAGE = (Part("cursor", Id, False), Part("limit", Whole, False))
JobQuery = define("JobQuery", [*JOB_QUERY, *PAGE], "Which jobs, and which page of them.")
PageQuery = define("PageQuery", [*PAGE, Part("tenant", Name, False)], "Which page.")


class AddedJob(msgspec.Struct, frozen=True):
    """A job that was added."""

    id: Id


class JobList(msgspec.Struct, frozen=True):
    """Some jobs by id; `cursor` leads to the next ones, null: there are no more."""

    jobs: list[form_of(Job).type]  # type: ignore[valid-type]
    cursor: Id | None = None


# Adding


async def add(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Add a job, or of NDJSON one for each line."""
    raw = await exchange.body(request)
    many = _is_ndjson(header_of(request, b"content-type"))
    if many:
        found = await _read_lines(raw)
    else:
        found = [await exchange.decoding.run(len(raw), lambda: _read_new(raw, 0))]
    news = list(mark_trace(request, found))
    key = header_of(request, KEY)
    if key is not None:
        ids = await _add_once(exchange, grant, news, key, hashlib.sha256(raw).hexdigest())
    elif many:
        ids = await _add_all(exchange, grant, news)
    else:
        ids = await exchange.ask(grant, c.Add(jobs=tuple(news), mark_existing=True))
    if not many:
        # The id of a job that had the unique key before is negated.
        (job_id,), status = [abs(one) for one in ids], 201 if ids[0] > 0 else 200
        return Response(b'{"id":"%d"}' % job_id, status, {"Location": f"/v1/jobs/{job_id}"}, JSON)
    return Response(b"".join(b'{"id":"%d"}\n' % one for one in ids), 201, None, NDJSON)


async def _read_lines(raw: bytes) -> list[c.NewJob]:
    """The job of each line. Other requests have their turn meanwhile."""
    news: list[c.NewJob] = []
    for at, line in enumerate(lines_of(raw), 1):
        if line.strip():
            news.append(_read_new(line, at))
        if at % READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    return news


def _read_new(line: bytes, number: int) -> c.NewJob:
    try:
        new: c.NewJob = read(c.NewJob, decode(line, NEW_JOB))
        return new
    except (Refusal, BadInput) as error:
        if not number:
            raise
        raise Refusal(400, "BAD_INPUT", f"line {number}: {error}") from None


async def _add_all(
    exchange: Exchange, grant: Grant, news: list[c.NewJob], ids: list[int] | None = None
) -> list[int]:
    """Add jobs, as many at a time as one transaction takes; each such batch all or none."""
    made: list[int] = []
    for command in add_commands(news):
        own = () if ids is None else tuple(ids[len(made) : len(made) + command.count])
        made += await exchange.ask(grant, replace(command, ids=own), ids_are_own=ids is not None)
    return made


async def _add_once(
    exchange: Exchange, grant: Grant, news: list[c.NewJob], key: str, fingerprint: str
) -> list[int]:
    """Add jobs that may be asked for again under the same key; see `engine.commands.requests`."""
    if not 1 <= len(key) <= HTTP_KEY_BYTES or not key.isprintable():
        raise BadInput("Idempotency-Key", key, needed=f"1 to {HTTP_KEY_BYTES} printable characters")
    if any(new.id for new in news):
        raise BadInput("id", "given", needed="absent where there is an Idempotency-Key")
    if len(news) > BATCH_JOBS:
        raise BadInput("jobs", len(news), needed=f"at most {BATCH_JOBS:,} under one Idempotency-Key")
    # Before the key is noted: a client that may not add these jobs, or none, must not use it up.
    confine(grant, c.Add(jobs=tuple(news)))
    tenant = news[0].tenant if grant.tenant is None and news else grant.tenant or ""
    ids = [] if not news else _spread(await exchange.ask(grant, c.ReserveIds(count=len(news))), news)
    note = RequestNote(fingerprint=fingerprint, ids=tuple(ids))
    ask = exchange.asking.ask_async
    found: RequestNote = await ask(NoteRequest(tenant=tenant, key=key, note=note))
    if found.fingerprint != fingerprint:
        raise Refusal(422, "KEY_REUSED", "this Idempotency-Key was used for a request with another body")
    if found.is_done:
        return list(found.ids)
    made = await _add_all(exchange, grant, news, list(found.ids))
    done = RequestNote(fingerprint=fingerprint, ids=tuple(made), is_done=True)
    await ask(NoteRequest(tenant=tenant, key=key, note=done))
    return made


def _spread(ranges: list[IdRange], news: list[c.NewJob]) -> list[int]:
    """Reserved ids, each in the slot where its job must live."""
    firsts = (one.first + step * SLOTS for one in ranges for step in range(one.count))
    return [
        moved(first, at % SLOTS if (slot := slot_for(new)) is None else slot)
        for at, (first, new) in enumerate(zip(firsts, news, strict=True))
    ]


async def signal(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Send a signal; the body is its data, as webhooks send it: any JSON, and null without one."""
    raw = await exchange.body(request)
    # Before the JSON is looked at.
    check_signal_size(request.path_params["name"], len(raw))
    command = c.SendSignal(
        job_id=read_id(request.path_params["job_id"]),
        name=request.path_params["name"],
        data=await exchange.decoding.run(len(raw), lambda: _json_of(raw)),
        key=header_of(request, KEY) or "",
        tenant=request.query_params.get("tenant"),
    )
    await exchange.ask(grant, command)
    return Response(status_code=204)


def _json_of(raw: bytes) -> str:
    return read_body(decode(raw or b"null", msgspec.Raw))


# Looking


async def list_jobs(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """A page of jobs, or as NDJSON all of them."""
    said = read_query(request, JobQuery)
    wanted = {part.name: getattr(said, part.name) for part in JOB_QUERY}
    form = form_of(q.JobFilter)
    assert form.read is not None
    chosen = form.read(form.type(**wanted))
    after, limit = _page_of(said)
    if _is_ndjson(header_of(request, b"accept")):
        first = await exchange.ask(grant, q.ListJobs(filter=chosen, after=after, limit=STREAMED))
        return JobLines(_all_jobs(exchange, request, grant, chosen, first), media_type=NDJSON)
    jobs = await exchange.ask(grant, q.ListJobs(filter=chosen, after=after, limit=limit))
    # In a thread: a thousand jobs take as long as a hundred requests, which must not wait for them.
    return await asyncio.to_thread(lambda: respond(_page(jobs, limit)))


async def list_children(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """A page of a job's children."""
    said = read_query(request, PageQuery)
    after, limit = _page_of(said)
    tenant = None if said.tenant is msgspec.UNSET else said.tenant
    job_id = read_id(request.path_params["job_id"])
    jobs = await exchange.ask(grant, q.ListChildren(job_id=job_id, after=after, limit=limit, tenant=tenant))
    return await asyncio.to_thread(lambda: respond(_page(jobs, limit)))


class JobLines(StreamingResponse):
    """Jobs by line. An error cuts the connection: the client must not take some jobs for all of them."""

    async def stream_response(self, send: Send) -> None:
        """Send the lines, and the end of the reply only if all were sent."""
        try:
            await super().stream_response(send)
        except HoldfastError as error:
            log.warning("a list of jobs was cut off: %s", error)


async def _all_jobs(
    exchange: Exchange, request: Request, grant: Grant, chosen: q.JobFilter, page: list[Job]
) -> AsyncIterator[bytes]:
    while page:
        yield await asyncio.to_thread(_lines, page)
        if len(page) < STREAMED:
            return
        if exchange.draining.is_set():
            raise Unavailable("the server is closing")
        await exchange.readmit(request)
        page = await exchange.ask(grant, q.ListJobs(filter=chosen, after=page[-1].id, limit=STREAMED))


def _lines(page: list[Job]) -> bytes:
    return b"".join(msgspec.json.encode(_written(job)) + b"\n" for job in page)


def _page(jobs: list[Job], limit: int) -> JobList:
    return JobList([_written(job) for job in jobs], str(jobs[-1].id) if len(jobs) == limit else None)


def _written(job: Job) -> Any:
    write = form_of(Job).write
    assert write is not None
    return write(job)


async def get_data(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """The data of a job as it is: JSON, or bytes."""
    return _body_response(await exchange.ask(grant, q.GetData(job_id=read_id(request.path_params["job_id"]))))


async def get_result(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """How a job ended, and its result; `wait` seconds for it. 202 while it has not ended."""
    job_id = read_id(request.path_params["job_id"])
    wait_s = wait_s_of(request.query_params.get("wait"))
    asking = exchange.ask(grant, c.Await(job_id=job_id), wait_s=wait_s)
    found = await (exchange.wait(request, asking, None) if wait_s else asking)
    if found == "gone":
        raise NotFound("job", job_id)
    if found is None:
        return respond(None, 202)
    if found.result is not None:
        readable(job_id, "result", found.result)
    write = form_of(c.Ended).write
    assert write is not None
    return respond(write(found))


def _body_response(body: Body) -> Response:
    return Response(body, media_type=BYTES if isinstance(body, bytes) else JSON)


def _page_of(said: Any) -> tuple[int, int]:
    after = 0 if said.cursor is msgspec.UNSET else read_id(said.cursor)
    limit = 100 if said.limit is msgspec.UNSET else said.limit
    if not 1 <= limit <= PAGE_JOBS:
        raise BadInput("limit", limit, needed=f"a whole number from 1 to {PAGE_JOBS:,}")
    return after, limit


def _is_ndjson(text: str | None) -> bool:
    return text is not None and text.partition(";")[0].strip().lower() in (
        NDJSON,
        "application/jsonl",
        "application/ndjson",
    )
