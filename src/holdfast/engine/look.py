"""Questions to the store that change nothing: one consistent view each."""

from collections.abc import Sequence

from ..core import commands as c
from ..core.bounds import PAGE_JOBS
from ..core.defaults import follow
from ..core.errors import NotFound, StoreCorrupt
from ..core.family import is_stuck
from ..core.job import WAITING, Body, Job, Place, Unreadable
from ..core.limits import Limit, find_pattern
from ..core.notes import Log
from ..core.schedule import Schedule
from ..core.why import Facts, why
from ..core.worker import knows
from ..store.contract import CountKey, JobFilter, ReadTxn, Waiting, WaitingQuery
from .batch import notes
from .batch.limiting import STOPPED, find_domains
from .batch.task_defaults import read_published
from .commands.schedules import Kept, read_kept
from .commands.workers import alive
from .records import (
    LIMIT,
    PATTERNS,
    PAUSE,
    SCHEDULE,
    Pause,
    name_of,
    read_limit,
    read_limit_name,
    read_patterns,
    read_pause,
)

# How many pages of PAUSED jobs are looked through for one that will go on.
PAUSED_PAGES = 10
WAY_OUT = "its bytes are kept: restore a backup, or delete the job"


def job(txn: ReadTxn, job_id: int) -> Job:
    """A job, live or archived, or `NotFound`."""
    found = txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)
    if found is None:
        raise NotFound("job", job_id)
    if found.damaged is not None:
        raise StoreCorrupt(f"the record of job {job_id} is damaged and cannot be read; {WAY_OUT}")
    return found


def job_to_run(txn: ReadTxn, job_id: int) -> Job:
    """A job with what it would follow if it were claimed now; one that runs or has ended is as it is."""
    found = job(txn, job_id)
    return follow(found, read_published(txn)) if found.place in WAITING else found


def bodies(txn: ReadTxn, job_id: int) -> tuple[Body | None, Body | None]:
    """The data and the result of a job."""
    job(txn, job_id)
    data, result = (txn.bodies([job_id], result=result).get(job_id) for result in (False, True))
    return readable(job_id, "data", data), readable(job_id, "result", result)


def readable(job_id: int, what: str, body: Body | None) -> Body | None:
    """A body, or `StoreCorrupt`."""
    if isinstance(body, Unreadable):
        raise StoreCorrupt(f"the {what} of job {job_id} is damaged and cannot be read; {WAY_OUT}")
    return body


def steps(txn: ReadTxn, job_id: int) -> dict[str, str]:
    """The results of a job's steps so far, JSON texts, by name."""
    return notes.steps(txn, job(txn, job_id))


def log(txn: ReadTxn, job_id: int) -> Log:
    """The last lines of a job's log."""
    return notes.log(txn, job(txn, job_id))


def reason(txn: ReadTxn, job_id: int) -> str:
    """Why a job is not running."""
    found = job(txn, job_id)
    parent = txn.load([found.parent_id]).get(found.parent_id) if found.parent_id else None
    limit = domain = None
    if found.domain is not None:
        limit = limit_of(txn, found.tenant, found.domain)
        key = (found.tenant, found.domain)
        domain = find_domains(txn, [key]).get(key)
    counts = txn.counts(tenant=found.tenant)
    ready = sum(n for k, n in counts.items() if k.place == Place.READY and k.task == found.task)
    facts = Facts(
        now_ms=txn.now_ms,
        parent=parent,
        limit=limit,
        domain=domain,
        paused=_paused(txn, found),
        workers=sum(knows(worker, found.tenant, found.task) for worker in alive(txn)),
        ready_before=max(ready - 1, 0) if found.place == Place.READY else 0,
    )
    return why(found, facts)


def _paused(txn: ReadTxn, found: Job) -> tuple[str, ...]:
    texts = []
    for tenant, task, domain in pauses(txn):
        if tenant not in (None, found.tenant) or task not in (None, found.task):
            continue
        if domain is not None and domain != found.domain:
            continue
        if task is not None:
            texts.append(f"task {task!r}")
        elif domain is not None:
            texts.append(f"domain {domain.decode(errors='replace')!r}")
        else:
            texts.append(f"tenant {tenant!r}")
    return tuple(texts)


def pauses(txn: ReadTxn) -> list[Pause]:
    """What claims pass by."""
    return [read_pause(name) for name in txn.rows(PAUSE)]


def waiting(
    txn: ReadTxn, *, tenants: tuple[str, ...] | None, tasks: tuple[str, ...] | None, limit: int
) -> list[Waiting]:
    """Whose turn it is, of those that are not paused; see `ReadTxn.waiting`."""
    passing = tuple((tenant, task) for tenant, task, domain in pauses(txn) if domain is None)
    return txn.waiting(WaitingQuery(limit=limit, tenants=tenants, tasks=tasks, passing=passing))


def limit_of(txn: ReadTxn, tenant: str, domain: bytes) -> Limit | None:
    """The limit that governs a domain now."""
    if read_pause(name_of(tenant, None, domain)) in pauses(txn):
        return STOPPED
    name = name_of(tenant, domain)
    if raw := txn.rows(LIMIT, [name]).get(name):
        return read_limit(raw)
    patterns = txn.rows(PATTERNS, [name_of(tenant)]).get(name_of(tenant))
    return find_pattern(read_patterns(patterns).limits, domain) if patterns else None


def limits(txn: ReadTxn, tenant: str) -> dict[bytes, Limit]:
    """All limits of a tenant, by domain or pattern."""
    exact = {read_limit_name(name): read_limit(raw) for name, raw in txn.rows(LIMIT).items()}
    found = {domain: limit for (whose, domain), limit in exact.items() if whose == tenant}
    patterns = txn.rows(PATTERNS, [name_of(tenant)]).get(name_of(tenant))
    return dict(sorted((found | dict(read_patterns(patterns).limits if patterns else ())).items()))


def schedules(txn: ReadTxn, tenant: str) -> list[Kept]:
    """All schedules of a tenant, by name, with the jobs that they add."""
    kept = [read_kept(raw) for raw in txn.rows(SCHEDULE).values()]
    mine = [one for one in kept if one.schedule.tenant == tenant]
    return sorted(mine, key=lambda one: one.schedule.name)


def schedule(txn: ReadTxn, tenant: str, name: str) -> Schedule | None:
    """One schedule, or None."""
    raw = txn.rows(SCHEDULE, [name_of(tenant, name)]).get(name_of(tenant, name))
    return read_kept(raw).schedule if raw else None


def counts(txn: ReadTxn, tenant: str | None) -> dict[CountKey, int]:
    """How many jobs of a tenant, or of all, there are of each kind."""
    return dict(sorted(txn.counts(tenant=tenant).items()))


def unfinished(txn: ReadTxn, tenant: str | None, tasks: tuple[str, ...] | None) -> int:
    """How many jobs of these tasks have yet to end, besides those that only an operator can move."""
    found = [(k, n) for k, n in txn.counts(tenant=tenant).items() if tasks is None or k.task in tasks]
    moving = sum(n for key, n in found if key.place not in (Place.PAUSED, Place.DONE))
    paused = [key.task for key, _ in found if key.place == Place.PAUSED]
    return moving or sum(_waits(txn, tenant, task) for task in paused)


def _waits(txn: ReadTxn, tenant: str | None, task: str) -> bool:
    """Whether any PAUSED job of a task will go on by itself."""
    query, after = JobFilter(tenant=tenant, task=task, place=Place.PAUSED), 0
    for _ in range(PAUSED_PAGES):
        page = txn.jobs(query, after=after, limit=PAGE_JOBS)
        parents = txn.load({job.parent_id for job in page if job.parent_id})
        if any(not is_stuck(job, parents.get(job.parent_id)) for job in page):
            return True
        if len(page) < PAGE_JOBS:
            return False
        after = page[-1].id
    # Too many to look at each: as long as anything moves, one of them may.
    return any(key.place not in (Place.PAUSED, Place.DONE) for key in txn.counts(tenant=tenant))


def find_ended(txn: ReadTxn, job_ids: Sequence[int]) -> dict[int, c.Ended | str | None]:
    """Of each job: how it ended, None while it has not, or "gone"."""
    live = txn.load(job_ids)
    archived = txn.archived([id for id in job_ids if id not in live])
    over = {id: job for id, job in {**live, **archived}.items() if job.ended is not None and id in job_ids}
    results = txn.bodies([id for id, job in over.items() if job.has_result], result=True)
    found: dict[int, c.Ended | str | None] = {}
    for job_id in job_ids:
        if job_id in over:
            found[job_id] = c.Ended(job=over[job_id], result=results.get(job_id))
        else:
            found[job_id] = None if job_id in live else "gone"
    return found
