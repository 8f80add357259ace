"""All commands of the port. Each reads its parameters, submits one engine command and renders the reply.

Anything more belongs in the rules. An error is a `Refusal`, whose text is the status line.

CreateJob and CreateJobs: parameters are checked in the order of the protocol.

    name ▸ jobPriority ▸ data ▸ retryAfter, firstRun, timeout ▸ the parent: is there, its state ▸ a unique job
    that is another's child ▸ (one that has just these data: done) ▸ repeat, priority ▸ mocked alike ▸
    generation

Everything before the parent is checked here, and most of the rest by the rules when the job is added. Only if
`repeat` or `priority`, which come late, are wrong, the earlier checks are made here too.

FinishJob, RetryJob and FailJob: the outcome of a job that was claimed through the port.

The protocol's order of checks: the job exists ▸ it is running ▸ its parent waits ▸ data ▸ (RetryJob)
priority, time. The rules check the first three; only if a later check fails, these are checked here before.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import family, rules, unique
from ...core import queries as q
from ...core.bounds import PORT_UPDATE_BYTES, QUERY_BYTES
from ...core.columns import MANUAL, data_now, modifier, moment, next_run, seconds, shown_data
from ...core.commands import Claimed
from ...core.errors import HoldfastError, QueryFailed, Refused
from ...core.ids import PORT_SYSID
from ...core.job import STORED_LOSSES, Body, Code, Job, Place, State
from ...core.queries import JobData, Loaded, LoadJobs
from . import parameters
from . import parameters as p
from .port import Port


async def finish(port: Port, headers: p.Headers) -> None:
    """FinishJob."""
    number, data = p.job_id(headers), _data(headers)
    if data is not None:
        _check_mocked(await _standing(port, number, "finish"), data)
    fields: dict[str, Any] = {"ignore_repeat": _forgets_repeat(headers, data)}
    await _say(port, number, Code.OK, data, fields)


async def retry(port: Port, headers: p.Headers) -> None:
    """RetryJob: back in the queue, by its repeat, at `nextRun`, or after `delay`."""
    number, data = p.job_id(headers), _data(headers)
    fields: dict[str, Any] = {"counts": False, "ignore_repeat": _forgets_repeat(headers, data)}
    fields["task"] = p.job_name(headers, needed=False) or None
    late, late_time = None, None
    try:
        fields["priority"] = p.priority(headers)
    except p.PortRefusal as refusal:
        late = refusal
    try:
        fields["run_at"] = p.moment(headers, "nextRun") or 0
        fields["delay_ms"] = 0 if fields["run_at"] else p.delay_ms(headers)
    except p.PortRefusal as refusal:
        late_time = refusal
        fields["delay_ms"] = 0
    if data is not None or late or late_time:
        job = await _standing(port, number, "retry")
        _check_mocked(job, data)
        # A repeat takes precedence over a given time, valid or not.
        repeats = bool(job.repeat) and not fields["ignore_repeat"]
        if late or (late_time and not repeats):
            raise late or late_time or AssertionError
    await _say(port, number, Code.RETRY, data, fields)


async def fail(port: Port, headers: p.Headers) -> None:
    """FailJob."""
    number, data = p.job_id(headers), _data(headers)
    await _say(port, number, Code.FAILED, data, {})


def _data(headers: p.Headers) -> p.DataHeader | None:
    """`data`; None if it is empty."""
    return p.data(headers) if headers.get("data") else None


def _forgets_repeat(headers: p.Headers, data: p.DataHeader | None) -> bool:
    return p.flag(headers, "ignoreRepeat") or (data is not None and data.delete)


async def _say(
    port: Port, number: int, code: Code, data: p.DataHeader | None, fields: dict[str, Any]
) -> None:
    if not p.may_exist(number):
        raise p.PortRefusal(parameters.NO_JOB)
    text = data.text if data is not None else None
    try:
        await port.ask(c.Answer(hold=port.hold(number), code=code, data=text, **fields))
    except HoldfastError as error:
        told = parameters.failing if code == Code.FAILED else parameters.answering
        raise told(error) or error from None


async def _standing(port: Port, number: int, verb: str) -> Job:
    """The job, if the rules allow an answer; raises their refusal otherwise."""
    jobs = (await port.load(number)).jobs
    job = jobs[number]
    try:
        rules.check_hold(job, port.hold(number), verb)
        family.check_child_may_end(job, jobs.get(job.parent_id), verb)
    except HoldfastError as error:
        raise parameters.answering(error) or error from None
    return job


def _check_mocked(job: Job, data: p.DataHeader | None) -> None:
    if data is not None and data.mock != job.mock:
        raise p.PortRefusal(parameters.MOCK_MISMATCH)


class _Draft(NamedTuple):
    """A job from its parameters; `late` is the error that is raised after all others."""

    new: c.NewJob
    asks_mock: bool
    late: p.PortRefusal | None


async def create(port: Port, jobs: Sequence[p.Headers], *, mock: bool) -> list[int]:
    """Add jobs, all or none; return their ids, or those of existing jobs with the same unique key."""
    drafts = [_draft(port, headers) for headers in jobs]
    late = next((draft.late for draft in drafts if draft.late is not None), None)
    parent_ids = dict.fromkeys(draft.new.parent_id for draft in drafts if draft.new.parent_id)
    mock = mock or any(draft.asks_mock for draft in drafts)
    if parent_ids or late:
        only = drafts[0].new if late and len(drafts) == 1 else None
        query = LoadJobs(job_ids=tuple(parent_ids), data=only is not None, holder_of=only)
        found: Loaded = await port.query(query)
        parents = _parents(port, found, parent_ids)
        mocked = {parent.mock for parent in parents}
        if late or len(mocked) > 1:
            for parent in parents:
                _check_parent(parent)
            if only is not None and (same := _same(found, only)):
                return [same]
            raise late or p.PortRefusal(parameters.MOCK_PARENT)
        mock = mocked.pop() if mocked else mock
    news = tuple(_as_asked(draft.new, mock=mock) for draft in drafts)
    hold = c.Hold(job_id=0, owner=PORT_SYSID, tenant=port.tenant) if parent_ids else None
    try:
        ids: list[int] = await port.ask(c.Add(jobs=news, hold=hold))
    except HoldfastError as error:
        raise parameters.creating(error) or error from None
    return ids


def _draft(port: Port, headers: p.Headers) -> _Draft:
    name = p.job_name(headers)
    priority = p.priority(headers)
    data = p.data(headers) or p.NO_DATA
    after = p.retry_after(headers)
    first_run = p.moment(headers, "firstRun")
    timeout = p.duration_ms(headers, "timeout")
    late, repeat = None, ""
    try:
        repeat = p.repeat(headers)
        priority = p.priority(headers, "priority") if priority is None else priority
    except p.PortRefusal as refusal:
        late = refusal
    new = c.NewJob(
        task=name,
        tenant=port.tenant,
        data=data.text,
        priority=priority,
        run_at=first_run or 0,
        retry_after=after or 0,
        repeat=repeat,
        timeout_ms=timeout,
        unique=name.encode() if headers.get("unique") == "true" else None,
        on_conflict="merge" if headers.get("overwrite", "") in ("", "true") else "keep",
        parent_id=_parent(headers),
        # As in the protocol: retried without limit, but lost ten times at most.
        strict=True,
        wait_for_failed=True,
        max_attempts=0,
        max_losses=0 if name.startswith(MANUAL) else STORED_LOSSES,
        given=("timeout",) if timeout else (),
    )
    return _Draft(new, data.mock or "mockrequest" in headers, late)


def _parent(headers: p.Headers) -> int:
    """`parentJobID`: 0 if it is not a number; a number that no job can have is not found."""
    try:
        number = p.job_id({"jobid": headers.get("parentjobid", "") or "0"})
    except p.PortRefusal:
        return 0
    return number if number == 0 or p.may_exist(number) else 1


def _as_asked(new: c.NewJob, *, mock: bool) -> c.NewJob:
    # A mocked job does not repeat.
    return replace(new, mock=True, repeat="") if mock else new


def _parents(port: Port, found: Loaded, parent_ids: Iterable[int]) -> list[Job]:
    """The parents, which must all be live jobs of this tenant."""
    parents = [found.jobs.get(parent_id) for parent_id in parent_ids]
    there = [job for job in parents if job is not None and job.tenant == port.tenant]
    if len(there) < len(parents):
        raise p.PortRefusal(parameters.PARENT_GONE)
    return there


def _check_parent(parent: Job) -> None:
    try:
        family.check_new_child(parent, c.Hold(job_id=parent.id, owner=PORT_SYSID), None, strict=True)
    except HoldfastError as error:
        refusal = parameters.creating(error)
        # The check for grandchildren comes later.
        if refusal is not None and refusal.status != parameters.GRANDCHILD:
            raise refusal from None


def _same(found: Loaded, new: c.NewJob) -> int:
    """The id of an existing unique job with the same data, or 0; a child of another parent is refused."""
    job = found.jobs.get(found.holder_id)
    if job is None:
        return 0
    if job.parent_id and job.parent_id != new.parent_id:
        raise p.PortRefusal(parameters.OTHER_PARENT)
    return job.id if unique.same(found.data.get(job.id, "{}"), new.data) else 0


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
        raise p.PortRefusal(parameters.NOTHING)
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
        raise parameters.gone(error) or error from None


async def cancel_job(port: Port, headers: p.Headers) -> None:
    """Cancel a child."""
    number = p.job_id(headers)
    job = (await port.load(number)).jobs[number]
    # No race: a child has no children, and no job gets a parent later.
    if job.children.pending or job.children.failed or job.children.kept:
        raise p.PortRefusal(parameters.WITH_CHILDREN)
    if not job.parent_id:
        raise p.PortRefusal(parameters.WITHOUT_PARENT)
    try:
        await port.ask(c.Cancel(job_id=number))
    except HoldfastError as error:
        raise parameters.gone(error) or error from None


async def delete_job(port: Port, headers: p.Headers) -> None:
    """Delete a job."""
    number = p.job_id(headers)
    await port.load(number)
    try:
        await port.ask(c.Delete(job_id=number))
    except HoldfastError as error:
        raise parameters.deleting(error) or error from None


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
            raise p.PortRefusal(parameters.KEY_TAKEN) from None


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
    "FinishJob": finish,
    "RetryJob": retry,
    "FailJob": fail,
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
        raise parameters.otherwise(error, name) from error


_encode = msgspec.json.Encoder().encode


def as_json(found: dict[str, Any]) -> bytes:
    """A reply's body: one object, its keys in alphabetical order whatever their case."""
    return _encode(dict(sorted(found.items(), key=lambda item: item[0].lower())))


def _columns(job: Job) -> dict[str, Any]:
    return {
        "jobID": job.id,
        "name": job.task,
        "created": seconds(job.created_at),
        "repeat": job.repeat,
        "retryAfter": modifier(job.retry_after),
        "priority": job.priority,
    }


def queried(job: Job, body: Body) -> dict[str, Any]:
    """What QueryJob tells: ten keys, and of a job with a timeout that, and when it is up."""
    found = _columns(job) | {
        "state": str(job.state),
        "nextRun": next_run(job),
        "lastRun": seconds(job.started_at),
        "data": data_now(job, body),
    }
    if job.timeout_ms:
        found["timeout"] = job.timeout_ms
        found["expires"] = moment(job.lease_until) if job.place == Place.RUNNING else ""
    return found


def handed_out(claimed: Claimed) -> dict[str, Any]:
    """The reply of GetJob: nine fields, as they were before this claim."""
    job = claimed.job
    return _columns(job) | {
        "nextRun": moment(job.run_at),
        "lastRun": seconds(claimed.last_run),
        "data": shown_data(job, claimed.data, count=job.losses),
    }


def ended_children(children: Iterable[JobData]) -> dict[str, Any]:
    """The fields about ended children in the reply of GetJob for a parent."""
    told: dict[str, list[dict[str, Any]]] = {"finishedChildJobs": [], "cancelledChildJobs": []}
    for child in children:
        kind = "finishedChildJobs" if child.job.ended == State.FINISHED else "cancelledChildJobs"
        told[kind].append({"data": data_now(child.job, child.data), "jobID": child.job.id})
    return dict(told) if any(told.values()) else {}
