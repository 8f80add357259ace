"""CreateJob and CreateJobs: parameters are checked in the order of the protocol.

    name ▸ jobPriority ▸ data ▸ retryAfter, firstRun, timeout ▸ the parent: is there, its state ▸ a unique job
    that is another's child ▸ (one that has just these data: done) ▸ repeat, priority ▸ mocked alike ▸
    generation

Everything before the parent is checked here, and most of the rest by the rules when the job is added. Only if
`repeat` or `priority`, which come late, are wrong, the earlier checks are made here too.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...core import commands as c
from ...core import family, unique
from ...core.columns import MANUAL
from ...core.errors import HoldfastError
from ...core.ids import PORT_SYSID
from ...core.job import STORED_LOSSES, Job
from ...core.queries import Loaded, LoadJobs
from . import parameters as p
from . import refusals
from .port import Port


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
            raise late or p.PortRefusal(refusals.MOCK_PARENT)
        mock = mocked.pop() if mocked else mock
    news = tuple(_as_asked(draft.new, mock=mock) for draft in drafts)
    hold = c.Hold(job_id=0, owner=PORT_SYSID, tenant=port.tenant) if parent_ids else None
    try:
        ids: list[int] = await port.ask(c.Add(jobs=news, hold=hold))
    except HoldfastError as error:
        raise refusals.creating(error) or error from None
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
        raise p.PortRefusal(refusals.PARENT_GONE)
    return there


def _check_parent(parent: Job) -> None:
    try:
        family.check_new_child(parent, c.Hold(job_id=parent.id, owner=PORT_SYSID), None, strict=True)
    except HoldfastError as error:
        refusal = refusals.creating(error)
        # The check for grandchildren comes later.
        if refusal is not None and refusal.status != refusals.GRANDCHILD:
            raise refusal from None


def _same(found: Loaded, new: c.NewJob) -> int:
    """The id of an existing unique job with the same data, or 0; a child of another parent is refused."""
    job = found.jobs.get(found.holder_id)
    if job is None:
        return 0
    if job.parent_id and job.parent_id != new.parent_id:
        raise p.PortRefusal(refusals.OTHER_PARENT)
    return job.id if unique.same(found.data.get(job.id, "{}"), new.data) else 0
