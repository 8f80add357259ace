"""Turns the working set of a batch into the `Changes` that the store writes."""

from msgspec import Struct
from msgspec.structs import replace

from ...core.job import Job, Place, State
from ...store.contract import ENDS, JOBS, NO_WAKE, Changes, NewJobs
from .working_set import WorkingSet


class _Jobs(Struct):
    """The changed jobs by what is done with them."""

    added: list[NewJobs] = []
    swapped: list[Job] = []
    archived: list[Job] = []
    removed: list[Job] = []


def take_changes(batch: WorkingSet, *, last: bool = False) -> Changes:
    """The changes since the last call; `last`: with domains, counts and the sysid, which are written once."""
    jobs, counts = _Jobs(), batch.counts
    if batch.new_jobs.size[0]:
        jobs.added, batch.woke = batch.new_jobs.take(), True
        for group in jobs.added:
            counts.came_alike(group.template, len(group.rows))
    if batch.touched:
        _take_jobs(batch, jobs)
    if batch.known_holders is not None:
        batch.known_holders.write()
    if last and batch.known_domains is not None:
        batch.known_domains.write()
    if last and batch.ids.rows:
        batch.rows.update(batch.ids.rows)
    # Which waiting processes the commit wakes up. Also if upkeep has more to do: this one may never claim.
    wake = JOBS if batch.woke or batch.wants_upkeep else ENDS if batch.ended or batch.news else NO_WAKE
    changes = Changes(
        added=jobs.added,
        swapped=jobs.swapped,
        removed=jobs.removed,
        archived=jobs.archived,
        forgotten=batch.forgotten,
        data=batch.data,
        results=batch.results,
        rows=batch.rows,
        dues=batch.dues,
        counts=counts.take() if last else {},
        tallies=counts.take_tallies() if last and (counts.ends or counts.moved) else {},
        wake=wake if last else NO_WAKE,
    )
    if not last:
        batch.begin_drafts()
    return changes


def _take_jobs(batch: WorkingSet, jobs: _Jobs) -> None:
    changed = _changed(batch)
    if batch.known_domains is not None or batch.has_domains:
        batch.domains.account(changed)
    batch.counts.count_changes(changed, batch.counted, batch.jobs)
    _sort(batch, changed, jobs)
    stored, counted = batch.stored, batch.counted
    for job in jobs.swapped:
        stored[job.id] = counted[job.id] = job
        dict.__setitem__(batch.jobs, job.id, job)
    batch.finals |= {job.id: job for job in (*jobs.swapped, *jobs.removed, *jobs.archived)}
    if jobs.archived:
        _archive(batch, jobs)


def _changed(batch: WorkingSet) -> list[int]:
    """The jobs that differ from the stored or the counted record."""
    stored, counted, jobs = batch.stored, batch.counted, batch.jobs
    changed = [
        id
        for id in batch.touched
        if id in jobs
        and not (id in stored and id in counted and jobs[id] is stored[id] is counted[id])
        and not (jobs[id] is None and id not in stored and id not in counted)
    ]
    batch.touched.clear()
    return changed


def _sort(batch: WorkingSet, changed: list[int], jobs: _Jobs) -> None:
    """Sort changed jobs into added, replaced, archived and removed ones; note whom the commit must wake."""
    stored, counted, now = batch.stored, batch.counted, batch.jobs
    archived, swapped, over, woke = jobs.archived, jobs.swapped, dict[int, None](), batch.woke
    for job_id in changed:
        before = stored[job_id] if job_id in stored else None  # noqa: SIM401 - a call less
        after = now[job_id]
        if after is None:
            batch.drop_bodies(job_id)
            counted.pop(job_id, None)
            over[job_id] = None
            if before is not None:
                jobs.removed.append(stored.pop(job_id))
            continue
        if before is None:
            jobs.added.append(NewJobs(after, [(job_id, batch.data.pop(job_id, "{}"))]))
            batch.finals[job_id] = before = stored[job_id] = after
        counted[job_id], place = after, after.place
        if place is Place.DONE:
            over[job_id] = None
            if after.ended is not State.FAILED and (not after.parent_id or batch.is_archivable(after)):
                archived.append(replace(after, version=before.version + 1))
                continue
        elif place is not Place.RUNNING and not woke:
            # SCHEDULED too: waiting processes must know when it is due or expires.
            woke = place is Place.READY or place is Place.SCHEDULED or bool(after.expires_at)
        if before is not after:
            swapped.append(replace(after, version=before.version + 1))
    batch.woke = woke
    if over:
        batch.ended.update(over)


def _archive(batch: WorkingSet, jobs: _Jobs) -> None:
    """Remove archived jobs from the working set; without retention they are deleted altogether."""
    archived = jobs.archived
    batch.jobs.update(dict.fromkeys([job.id for job in archived]))
    if not batch.retention_ms:
        for job in archived:
            jobs.removed.append(batch.stored[job.id])
            batch.drop_bodies(job.id)
    for job in archived:
        del batch.stored[job.id], batch.counted[job.id]
    if not batch.retention_ms:
        batch.uncount(archived)
        archived.clear()
