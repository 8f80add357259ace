"""All commands of the port. Each reads its parameters, submits one engine command and renders the reply.

Anything more belongs in the rules. An error is a `Refusal`, whose text is the status line.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ...core import commands as c
from ...core import queries as q
from ...core.bounds import PORT_UPDATE_BYTES, QUERY_BYTES
from ...core.columns import data_now
from ...core.errors import HoldfastError, QueryFailed, Refused
from ...core.ids import PORT_SYSID
from ...core.job import Job
from . import answering, refusals
from . import parameters as p
from .creating import create
from .port import Port
from .view import as_json, ended_children, handed_out, queried


class PortReply(NamedTuple):
    """The body of a reply, and the claimed jobs in it."""

    body: bytes = b""
    claimed: tuple[c.Claimed, ...] = ()


NOTHING_TO_SAY = PortReply()


async def ping(_port: Port, _headers: p.Headers) -> None:
    """Reply that the server is running."""


async def status(port: Port, _headers: p.Headers) -> PortReply:
    """The status of the server."""
    facts = {"isLeader": True, "isMaster": True, "state": "LEADING", "tenant": port.tenant}
    return PortReply(as_json(facts | {"plugins": [{"name": "Jobs"}], "server": "holdfast"}))


async def create_job(port: Port, headers: p.Headers) -> PortReply:
    """Add one job."""
    ids = await create(port, [headers], mock="mockrequest" in headers)
    return PortReply(as_json({"jobID": ids[0]}))


async def create_jobs(port: Port, headers: p.Headers) -> PortReply:
    """Add several, all or none."""
    ids = await create(port, p.jobs(headers), mock="mockrequest" in headers)
    return PortReply(as_json({"jobIDs": ids}))


async def get_job(port: Port, headers: p.Headers) -> PortReply:
    """Claim one job."""
    found, claimed = await _hand_out(port, headers, many=False)
    return PortReply(as_json(found[0]), claimed)


async def get_jobs(port: Port, headers: p.Headers) -> PortReply:
    """Claim several jobs."""
    found, claimed = await _hand_out(port, headers, many=True)
    jobs = [dict(sorted(one.items(), key=lambda item: item[0].lower())) for one in found]
    return PortReply(as_json({"jobs": jobs}), claimed)


async def _hand_out(
    port: Port, headers: p.Headers, *, many: bool
) -> tuple[list[dict[str, Any]], tuple[c.Claimed, ...]]:
    wanted = p.wanted(headers)
    command = c.Claim(
        tasks=wanted.tasks,
        glob=wanted.glob,
        limit=p.num_results(headers, many=many),
        priority=p.priority(headers),
        tenant=port.tenant,
        lease_ms=port.lease_ms,
        owner=PORT_SYSID,
        mock="mockrequest" in headers or "getmockedjobs" in headers,
    )
    claimed: list[c.Claimed] = await port.ask(command, wait_s=p.wait_ms(headers) / 1000)
    if not claimed:
        raise p.PortRefusal(refusals.NOTHING)
    with_family = tuple(one.job.id for one in claimed if one.job.parent_id or one.job.children.kept)
    families: dict[int, q.Family] = {}
    try:
        if with_family:
            families = await port.query(q.LoadFamilies(job_ids=with_family))
    except BaseException:
        # The client will not get them.
        port.give_back(claimed)
        raise
    nobody = q.Family()
    return [handed_out(one) | _told(one.job, families.get(one.job.id, nobody)) for one in claimed], tuple(
        claimed
    )


def _told(job: Job, family: q.Family) -> dict[str, Any]:
    """The fields about a child's parent, or about a parent's ended children."""
    told: dict[str, Any] = {"parentJobID": job.parent_id} if job.parent_id else {}
    if family.parent is not None:
        told["parentData"] = data_now(family.parent.job, family.parent.data)
    return told | ended_children(family.children)


async def query_job(port: Port, headers: p.Headers) -> PortReply:
    """Reply one job."""
    number = p.job_id(headers)
    found = await port.load(number, data=True)
    return PortReply(as_json(queried(found.jobs[number], found.data.get(number, "{}"))))


async def update_job(port: Port, headers: p.Headers) -> None:
    """Change a job's data, time, repeat or priority, whatever its state."""
    number = p.job_id(headers)
    p.required(headers, "data")
    data = p.data(headers, most=PORT_UPDATE_BYTES)
    assert data is not None
    repeat, priority = p.repeat(headers), p.priority(headers)
    next_run = p.moment(headers, "nextRun")
    await port.load(number)
    command = c.Update(
        job_id=number,
        data=data.text,
        repeat="" if p.number_flag(headers, "shouldClearRepeat") else repeat or None,
        priority=priority,
        run_at=next_run,
    )
    try:
        await port.ask(command)
    except HoldfastError as error:
        raise refusals.gone(error) or error from None


async def cancel_job(port: Port, headers: p.Headers) -> None:
    """Cancel a child."""
    number = p.job_id(headers)
    job = (await port.load(number)).jobs[number]
    # No race: a child has no children, and no job gets a parent later.
    if job.children.pending or job.children.failed or job.children.kept:
        raise p.PortRefusal(refusals.WITH_CHILDREN)
    if not job.parent_id:
        raise p.PortRefusal(refusals.WITHOUT_PARENT)
    try:
        await port.ask(c.Cancel(job_id=number))
    except HoldfastError as error:
        raise refusals.gone(error) or error from None


async def delete_job(port: Port, headers: p.Headers) -> None:
    """Delete a job."""
    number = p.job_id(headers)
    await port.load(number)
    try:
        await port.ask(c.Delete(job_id=number))
    except HoldfastError as error:
        raise refusals.deleting(error) or error from None


async def requeue_jobs(port: Port, headers: p.Headers) -> None:
    """Requeue jobs, due since they were created; missing ones are ignored."""
    numbers = tuple(number for number in p.job_ids(headers) if p.may_exist(number))
    name = p.job_name(headers, needed=False) or None
    forgive = 1 if p.flag(headers, "decrementFailures") else 0
    if numbers:
        command = c.RequeueAll(job_ids=numbers, tenant=port.tenant, task=name, forgive=forgive)
        try:
            await port.ask(command)
        except Refused:
            raise p.PortRefusal(refusals.KEY_TAKEN) from None


async def query(port: Port, headers: p.Headers) -> PortReply:
    """Run an SQL query over the jobs."""
    text = p.required(headers, "query")
    if len(text) > QUERY_BYTES:
        raise p.malformed("query")
    try:
        return PortReply(await port.query(q.SelectJobs(text=text, tenant=port.tenant)))
    except QueryFailed as error:
        raise p.PortRefusal("502 Query failed", detail=str(error)) from None


Command = Callable[[Port, p.Headers], Awaitable[PortReply | None]]

COMMANDS: dict[str, Command] = {
    "CreateJob": create_job,
    "CreateJobs": create_jobs,
    "GetJob": get_job,
    "GetJobs": get_jobs,
    "QueryJob": query_job,
    "UpdateJob": update_job,
    "FinishJob": answering.finish,
    "RetryJob": answering.retry,
    "FailJob": answering.fail,
    "CancelJob": cancel_job,
    "DeleteJob": delete_job,
    "RequeueJobs": requeue_jobs,
    "Query": query,
    "Ping": ping,
    "Status": status,
}
_BY_VERB = {verb.lower(): (verb, command) for verb, command in COMMANDS.items()}

UNKNOWN = "430 Unrecognized command"


def is_claim(verb: str) -> bool:
    """Whether a command claims jobs: it is cancelled if the client disconnects."""
    return verb.lower() in ("getjob", "getjobs")


async def carry_out(port: Port, verb: str, headers: p.Headers) -> PortReply:
    """Execute a request; errors are raised as `Refusal`."""
    name, command = _BY_VERB.get(verb.lower(), ("", None))
    if command is None:
        raise p.PortRefusal(UNKNOWN)
    try:
        return await command(port, headers) or NOTHING_TO_SAY
    except HoldfastError as error:
        raise refusals.otherwise(error, name) from error
