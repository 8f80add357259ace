"""Questions to the store that change nothing: one consistent view each."""

from ..core.errors import NotFound
from ..core.job import Body, Job, Place
from ..core.limits import Limit, find_pattern
from ..core.schedule import Schedule
from ..core.why import Facts, why
from ..store.contract import CountKey, ReadTxn, Waiting, WaitingQuery
from .limiting import STOPPED
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
from .schedules import Kept, read_kept


def job(txn: ReadTxn, job_id: int) -> Job:
    """A job, live or archived, or `NotFound`."""
    found = txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)
    if found is None:
        raise NotFound("job", job_id)
    return found


def bodies(txn: ReadTxn, job_id: int) -> tuple[Body | None, Body | None]:
    """The data and the result of a job."""
    job(txn, job_id)
    return txn.bodies([job_id]).get(job_id), txn.bodies([job_id], result=True).get(job_id)


def reason(txn: ReadTxn, job_id: int) -> str:
    """Why a job is not running."""
    found = job(txn, job_id)
    parent = txn.load([found.parent_id]).get(found.parent_id) if found.parent_id else None
    limit = domain = None
    if found.domain is not None:
        limit = limit_of(txn, found.tenant, found.domain)
        domain = txn.domains([(found.tenant, found.domain)]).get((found.tenant, found.domain))
    counts = txn.counts(tenant=found.tenant)
    ready = sum(n for k, n in counts.items() if k.place == Place.READY and k.task == found.task)
    facts = Facts(
        now_ms=txn.now_ms,
        parent=parent,
        limit=limit,
        domain=domain,
        paused=_paused(txn, found),
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
            texts.append(f"The task {task!r}")
        elif domain is not None:
            texts.append(f"The domain {domain.decode(errors='replace')!r}")
        else:
            texts.append(f"The tenant {tenant!r}")
    return tuple(texts)


def pauses(txn: ReadTxn) -> list[Pause]:
    """What claims pass by."""
    return [read_pause(name) for name in txn.records(PAUSE)]


def waiting(
    txn: ReadTxn, *, tenants: tuple[str, ...] | None, tasks: tuple[str, ...], limit: int
) -> list[Waiting]:
    """Whose turn it is, of those that are not paused; see `ReadTxn.waiting`."""
    passing = tuple((tenant, task) for tenant, task, domain in pauses(txn) if domain is None)
    return txn.waiting(WaitingQuery(limit=limit, tenants=tenants, tasks=tasks, passing=passing))


def limit_of(txn: ReadTxn, tenant: str, domain: bytes) -> Limit | None:
    """The limit that governs a domain now."""
    if read_pause(name_of(tenant, None, domain)) in pauses(txn):
        return STOPPED
    name = name_of(tenant, domain)
    if raw := txn.records(LIMIT, [name]).get(name):
        return read_limit(raw)
    patterns = txn.records(PATTERNS, [tenant]).get(tenant)
    return find_pattern(read_patterns(patterns).limits, domain) if patterns else None


def limits(txn: ReadTxn, tenant: str) -> dict[bytes, Limit]:
    """All limits of a tenant, by domain or pattern."""
    exact = {read_limit_name(name): read_limit(raw) for name, raw in txn.records(LIMIT).items()}
    found = {domain: limit for (whose, domain), limit in exact.items() if whose == tenant}
    patterns = txn.records(PATTERNS, [tenant]).get(tenant)
    return dict(sorted((found | dict(read_patterns(patterns).limits if patterns else ())).items()))


def schedules(txn: ReadTxn, tenant: str) -> list[Kept]:
    """All schedules of a tenant, by name, with the jobs that they add."""
    kept = [read_kept(raw) for raw in txn.records(SCHEDULE).values()]
    mine = [one for one in kept if one.schedule.tenant == tenant]
    return sorted(mine, key=lambda one: one.schedule.name)


def schedule(txn: ReadTxn, tenant: str, name: str) -> Schedule | None:
    """One schedule, or None."""
    raw = txn.records(SCHEDULE, [name_of(tenant, name)]).get(name_of(tenant, name))
    return read_kept(raw).schedule if raw else None


def counts(txn: ReadTxn, tenant: str | None) -> dict[CountKey, int]:
    """How many jobs of a tenant, or of all, there are of each kind."""
    return dict(sorted(txn.counts(tenant=tenant).items()))
