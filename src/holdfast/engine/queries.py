"""The functions that execute queries, each on one consistent view. `core.queries` describes the replies."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from ..core import handler as h
from ..core import queries as q
from ..core import rank, unique
from ..core.bounds import PAGE_JOBS, PORT_CHILDREN
from ..core.defaults import Defaults, follow
from ..core.errors import NotFound
from ..core.family import waits_for_parent
from ..core.history import GetHistory
from ..core.job import WAITING, Body, Job, Place, State, Unreadable, WaitsFor, marked, readable, unreadable
from ..core.kinds import HANDLED, LIMIT, PATTERNS, PAUSE, SCHEDULE, name_of
from ..core.limits import Limit, find_pattern, is_pattern
from ..core.notes import StepResult, undone_steps
from ..core.queries import GetRetention, ListTasks, SearchJobs
from ..core.redaction import redact_body, redact_named
from ..core.rules import waits_for_signal
from ..core.why import Facts, why
from ..core.worker import Blocker, Worker, runs_handlers, runs_task
from ..store.contract import AnyStore, CountKey, ReadTxn, WaitingQuery, added, count_key
from .batch import notes
from .batch.holders import find_holders
from .batch.limiting import find_domains, find_limits, list_domains
from .batch.task_defaults import read_published
from .commands import handlers, indexing, tokens
from .commands.governing import get_retention
from .commands.schedules import fires_at, read_kept
from .commands.workers import alive, dead_of, list_workers, summarize_workers
from .ended import load_ended
from .history import get_history
from .records import check_page, read_limit, read_limit_name, read_patterns, read_pause, scan_of
from .search import list_tasks, page_of_pairs, search_jobs

# Queries of one job.
OfJob = q.GetJob | q.GetData | q.GetSteps | q.GetLog | q.Explain
# How many pages of PAUSED jobs are searched for one that will continue.
PAUSED_PAGES = 10
# How many tasks are examined to count READY jobs.
READY_TASKS = 64
# How many tenants are examined for tasks that have a handler, if none of the first ones has any.
HANDLED_LOOKED_AT = (4_096, 65_536)
# How many due jobs are examined for one of certain tenants.
DUE_LOOKED_AT = 100
# How many running jobs and workers an overview shows, and how many pairs are examined for their first job.
RUNNING_SHOWN, WORKERS_SHOWN, HEADS_SHOWN = 200, 100, 128
# How many domains with jobs are examined for those whose limits hold jobs back.
HOLDING_DOMAINS = 1_000
_SHOWN_PLACES = {Place.SCHEDULED: "SCHEDULED", Place.READY: "WAITING", Place.HELD: "WAITING"}
_SHOWN_PLACES |= {Place.RUNNING: "RUNNING", Place.PAUSED: "PAUSED"}


# One job


def _find(txn: ReadTxn, query: OfJob) -> Job:
    """A job, live or archived; `NotFound` also for a job of another tenant than the query names."""
    job_id = query.job_id
    found = txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)
    if found is None or query.tenant not in (None, found.tenant):
        raise NotFound("job", job_id)
    if found.damaged is not None:
        raise unreadable(job_id, "record")
    return found


def _get_job(txn: ReadTxn, query: q.GetJob) -> Job:
    job = _find(txn, query)
    return follow(job, read_published(txn)) if query.as_claimed and job.place in WAITING else job


def _get_data(txn: ReadTxn, query: q.GetData) -> Body:
    job = _find(txn, query)
    found = readable(job.id, "data", txn.bodies([job.id]).get(job.id))
    return redact_body(found) if query.redacted else found


def _get_steps(txn: ReadTxn, query: q.GetSteps) -> list[StepResult]:
    check_page(query)
    found = notes.steps(txn.rows, _find(txn, query), after=query.after, limit=query.limit)
    if not query.redacted:
        return found
    return [
        replace(step, result=redact_named(step.name, step.result)) if step.result else step for step in found
    ]


def _explain(txn: ReadTxn, query: q.Explain) -> str:
    job = _find(txn, query)
    limit = domain = None
    if job.domain is not None:
        key = (job.tenant, job.domain)
        limit = find_limits(txn.rows, _pauses(txn, job.tenant), [key])[key]
        domain = find_domains(txn, [key]).get(key)
    counts = txn.counts(tenant=job.tenant)
    ready = sum(n for k, n in counts.items() if k.place == Place.READY and k.task == job.task)
    workers, name = alive(txn), name_of(job.tenant, job.task)
    is_handled = name in txn.rows(HANDLED, [name])
    knowing = [one for one in workers if runs_task(one, job.tenant, job.task, is_handled=is_handled)]
    dead = dead_of(txn, job.owner) if job.place is Place.RUNNING else []
    facts = Facts(
        now_ms=txn.now_ms,
        parent=txn.load([job.parent_id]).get(job.parent_id) if job.parent_id else None,
        limit=limit,
        domain=domain,
        paused=_pauses_of(txn, job),
        workers=len(knowing),
        is_handled=is_handled,
        handler_workers=sum(runs_handlers(worker, job.tenant) for worker in workers),
        ready_before=max(ready - 1, 0) if job.place == Place.READY else 0,
        undone=_undone(txn, job) if job.ended == State.FAILED else None,
        holders=tuple(sorted(one.name for one in knowing if one.owner and one.owner == job.owner)),
        dead=tuple(one.name for one in dead if runs_task(one, job.tenant, job.task, is_handled=is_handled)),
        blockers=tuple(one for worker in knowing for one in worker.blocked if one.part != "slots"),
        occupied=_occupied(job, knowing),
    )
    return why(job, facts)


def _undone(txn: ReadTxn, job: Job) -> tuple[str, ...] | None:
    after = max(job.steps - PAGE_JOBS, 0)
    return undone_steps(notes.steps(txn.rows, job, after=after, limit=PAGE_JOBS) if job.steps else [])


def _occupied(job: Job, workers: Sequence[Worker]) -> tuple[tuple[str, Blocker], ...]:
    """What has all slots for a job, by worker; nothing if a worker may have another."""
    found = [
        (worker.name, one)
        for worker in workers
        for one in worker.blocked
        if one.part == "slots" and job.task in one.tasks
    ]
    return tuple(found) if len(found) == len(workers) else ()


def _pauses_of(txn: ReadTxn, job: Job) -> tuple[str, ...]:
    texts = []
    for tenant, task, domain in _pauses(txn, job.tenant):
        if task not in (None, job.task) or domain not in (None, job.domain):
            continue
        if task is not None:
            texts.append(f"task {task!r}")
        elif domain is not None:
            texts.append(f"domain {domain.decode(errors='replace')!r}")
        else:
            texts.append(f"tenant {tenant!r}" if tenant else "whole queue")
    return tuple(texts)


# Jobs


def _load_jobs(txn: ReadTxn, query: q.LoadJobs) -> q.Loaded:
    jobs, holder_id = txn.load(query.job_ids), 0
    if query.holder_of is not None and (key := unique.key_of(query.holder_of)) is not None:
        holder, new = find_holders(txn, [key]).get(key), query.holder_of
        if holder is not None:
            holder_id = holder.job_id
        elif new.strict:
            holder_id = txn.named(new.tenant, new.task, mock=new.mock) or 0
        jobs = jobs | txn.load([holder_id]) if holder_id else jobs
    if query.tenant is not None:
        jobs = {id: job for id, job in jobs.items() if job.tenant == query.tenant}
    data = _bodies(txn, jobs, redacted=query.redacted) if query.data else {}
    return q.Loaded(jobs=jobs, data=data, holder_id=holder_id)


def _bodies(txn: ReadTxn, job_ids: Collection[int], *, redacted: bool) -> dict[int, Body]:
    """The data of jobs; damaged data as raw bytes."""
    found = txn.bodies(job_ids).items()
    bodies = {id: marked(body) for id, body in found}
    whole = {id: bytes(body) if isinstance(body, Unreadable) else body for id, body in bodies.items()}
    return {id: redact_body(body) for id, body in whole.items()} if redacted else whole


def _load_families(txn: ReadTxn, query: q.LoadFamilies) -> dict[int, q.Family]:
    found = txn.load(query.job_ids)
    loaded = {id: job for id, job in found.items() if query.tenant in (None, job.tenant)}
    jobs = [loaded[id] for id in query.job_ids if id in loaded]
    parents = {job.parent_id for job in jobs} & loaded.keys()
    data = _bodies(txn, parents, redacted=query.redacted)
    known = {id: q.JobData(job=loaded[id], data=data.get(id, "{}")) for id in parents}
    return {
        job.id: q.Family(
            parent=known.get(job.parent_id),
            children=tuple(_ended_children(txn, job.id, redacted=query.redacted))
            if job.children.kept
            else (),
        )
        for job in jobs
    }


def _ended_children(txn: ReadTxn, parent_id: int, *, redacted: bool) -> list[q.JobData]:
    found: list[q.JobData] = []
    after = 0
    while page := txn.children(parent_id, place=Place.DONE, after=after, limit=PAGE_JOBS):
        after = page[-1].id
        ended = [child for child in page if child.ended != State.FAILED]
        data = _bodies(txn, [child.id for child in ended], redacted=redacted)
        found += [q.JobData(job=child, data=data.get(child.id, "{}")) for child in ended]
        if len(page) < PAGE_JOBS or len(found) >= PORT_CHILDREN:
            break
    return found[:PORT_CHILDREN]


def _list_children(txn: ReadTxn, query: q.ListChildren) -> list[Job]:
    if query.tenant is not None:
        # A parent and its children have the same tenant.
        parent = txn.load([query.job_id]).get(query.job_id)
        if parent is None or parent.tenant != query.tenant:
            return []
    return txn.children(query.job_id, after=query.after, limit=query.limit)


def _select_jobs(txn: ReadTxn, query: q.SelectJobs) -> bytes:
    # Needs apsw, which only a server must have.
    from .sql import Search

    return Search(txn, query.tenant).run(query.text)


# How many


def check_counts(txn: ReadTxn) -> list[tuple[CountKey, int, int]]:
    """The counts that differ from the jobs, except for tasks whose counts change during the check.

    A view of Redis, or of several shards, may be of several moments.
    """
    kept, found = txn.counts(), Counter[CountKey]()
    for archived in (False, True):
        after = 0
        while page := txn.jobs(q.JobFilter(archived=archived), after=after, limit=PAGE_JOBS):
            found.update(map(count_key, page))
            after = page[-1].id
    changing = {(key.tenant, key.task) for key, _ in kept.items() ^ txn.counts().items()}
    keys = [key for key in sorted(kept.keys() | found.keys()) if (key.tenant, key.task) not in changing]
    return [(key, kept.get(key, 0), found[key]) for key in keys if kept.get(key, 0) != found[key]]


def _check_counts(txn: ReadTxn, _query: q.CheckCounts) -> list[tuple[q.JobKind, int, int]]:
    """The same as users see them: a suspended job that counts as another one is left out."""
    sums: dict[q.JobKind, tuple[int, int]] = {}
    for key, kept, found in check_counts(txn):
        before = sums.get(_shown(key), (0, 0))
        sums[_shown(key)] = (before[0] + kept, before[1] + found)
    return [(key, kept, found) for key, (kept, found) in sums.items() if kept != found]


def _has_unfinished(txn: ReadTxn, query: q.HasUnfinished) -> bool:
    whose: Collection[str | None] = (None,) if query.tenants is None else query.tenants
    return any(_is_unfinished(txn, tenant, query) for tenant in whose)


def _is_unfinished(txn: ReadTxn, tenant: str | None, query: q.HasUnfinished) -> bool:
    keys = [key for key in txn.counts(tenant=tenant) if query.tasks is None or key.task in query.tasks]
    if query.handled:
        handled = handlers.find_handled(txn, [(key.tenant, key.task) for key in keys])
        keys = [key for key in keys if (key.tenant, key.task) in handled]
    paused = [(whose, task) for whose, task, domain in _pauses(txn, tenant) if domain is None]
    for key in keys:
        is_paused = any(who in (None, key.tenant) and task in (None, key.task) for who, task in paused)
        if key.place == Place.RUNNING or (key.place in WAITING and not is_paused):
            return True
    return any(_goes_on(txn, tenant, key.task) for key in keys if key.place == Place.PAUSED)


def _goes_on(txn: ReadTxn, tenant: str | None, task: str) -> bool:
    """Whether any PAUSED job of a task will continue by itself."""
    wanted, after = q.JobFilter(tenant=tenant, task=task, place=Place.PAUSED), 0
    for _ in range(PAUSED_PAGES):
        page = txn.jobs(wanted, after=after, limit=PAGE_JOBS)
        parents = txn.load({job.parent_id for job in page if job.parent_id})
        if any(_is_going_on(txn, job, parents.get(job.parent_id)) for job in page):
            return True
        if len(page) < PAGE_JOBS:
            return False
        after = page[-1].id
    # Too many to examine all: as long as other jobs are active, one of them may continue.
    return any(key.place not in (Place.PAUSED, Place.DONE) for key in txn.counts(tenant=tenant))


def _is_going_on(txn: ReadTxn, job: Job, parent: Job | None) -> bool:
    """Whether a PAUSED job will continue without an operator.

    One does not whose parent is FAILED or gone, or whose unfinished children do not go on either.
    """
    if waits_for_parent(job):
        return parent is not None and parent.place != Place.DONE
    if waits_for_signal(job):
        return False
    if not job.children.pending:
        return False
    if any(txn.children(job.id, place=place, limit=1) for place in (*WAITING, Place.RUNNING)):
        return True
    paused = txn.children(job.id, place=Place.PAUSED, limit=PAGE_JOBS)
    return any(_is_going_on(txn, child, job) for child in paused)


def _count_ready(txn: ReadTxn, query: q.CountReady) -> int:
    whose = q.ListWaiting(tenants=query.tenants, tasks=query.tasks, handled=query.handled, limit=READY_TASKS)
    found = list_waiting(txn, whose)
    # While all workers are busy no process promotes due jobs.
    return sum(one.ready for one in found) or int(_is_any_due(txn, query.tenants))


def _is_any_due(txn: ReadTxn, tenants: Collection[str] | None) -> bool:
    """Whether a scheduled job is due; of certain tenants, only the first due jobs are examined."""
    due = txn.moments().scheduled
    if due is None or due > txn.now_ms or tenants is None:
        return due is not None and due <= txn.now_ms
    return any(job.tenant in tenants for job in txn.first(Place.SCHEDULED, txn.now_ms, DUE_LOOKED_AT))


def list_waiting(txn: ReadTxn, query: q.ListWaiting) -> list[q.Waiting]:
    """The pairs with READY jobs that are not paused; see `ReadTxn.waiting`."""
    skipped = tuple((tenant, task) for tenant, task, domain in _pauses(txn) if domain is None)
    wanted = WaitingQuery(
        limit=query.limit,
        tenants=query.tenants,
        tasks=query.tasks,
        skipped=skipped,
        handled=query.handled,
        after=(query.after_tenant, query.after_task),
    )
    found = txn.waiting(wanted)
    for looked_at in HANDLED_LOOKED_AT if query.handled else ():
        if found or len(txn.waiting(wanted._replace(handled=False))) < query.limit:
            break
        found = txn.waiting(wanted._replace(limit=looked_at))[: query.limit]
    return found


# What governs them


def _list_limits(txn: ReadTxn, query: q.ListLimits) -> list[q.LimitLoad]:
    check_page(query)
    tenant = query.tenant
    if query.holding:
        domains = {
            one.key: one for one in list_domains(txn, tenant, after=b"", limit=HOLDING_DOMAINS) if one.held
        }
        held = sorted(domains, key=lambda key: (-domains[key].held, key))[: query.limit]
        found = find_limits(txn.rows, _pauses(txn, tenant), held)
    elif query.domain is not None:
        found = find_limits(txn.rows, (), [(tenant, query.domain)])
        domains = find_domains(txn, found)
    else:
        found = {(tenant, domain): limit for domain, limit in _limits_after(txn, query)}
        domains = find_domains(txn, found)
    loads = [
        q.LimitLoad(domain=key[1], limit=limit, running=one.running, held=one.held)
        if (one := domains.get(key))
        else q.LimitLoad(domain=key[1], limit=limit)
        for key, limit in found.items()
        if limit is not None
    ]
    return _with_patterns(txn, tenant, loads) if any(is_pattern(one.domain) for one in loads) else loads


def _with_patterns(txn: ReadTxn, tenant: str, loads: list[q.LimitLoad]) -> list[q.LimitLoad]:
    """The loads of limits, with those of patterns: the sums of the domains that each one limits."""
    kept = txn.rows(PATTERNS, [name_of(tenant)]).get(name_of(tenant))
    patterns = read_patterns(kept).limits if kept else ()
    domains = list_domains(txn, tenant, after=b"", limit=HOLDING_DOMAINS)
    exact = txn.rows(LIMIT, [name_of(*one.key) for one in domains])
    running, held = Counter[bytes](), Counter[bytes]()
    for one in domains:
        found = None if name_of(*one.key) in exact else find_pattern(patterns, one.name)
        if found is not None:
            running[found[0]] += one.running
            held[found[0]] += one.held
    known = {pattern for pattern, _ in patterns}
    is_partial = len(domains) == HOLDING_DOMAINS
    return [
        replace(one, running=running[one.domain], held=held[one.domain], is_partial=is_partial)
        if one.domain in known
        else one
        for one in loads
    ]


def _limits_after(txn: ReadTxn, query: q.ListLimits) -> list[tuple[bytes, Limit]]:
    """A page of the limits of a tenant: those of domains, by the text of their keys, then patterns."""
    tenant, after = query.tenant, query.after_domain
    is_past = is_pattern(after)
    rows = [] if is_past else scan_of(txn, LIMIT, tenant, after, limit=query.limit)
    found = [(read_limit_name(name)[1], read_limit(raw)) for name, raw in rows]
    if len(found) < query.limit:
        raw = txn.rows(PATTERNS, [name_of(tenant)]).get(name_of(tenant))
        patterns = read_patterns(raw).limits if raw else ()
        found += [(pattern, limit) for pattern, limit in patterns if not is_past or pattern > after]
    return found[: query.limit]


def _list_schedules(txn: ReadTxn, query: q.ListSchedules) -> list[q.Planned]:
    check_page(query)
    rows = scan_of(txn, SCHEDULE, query.tenant, query.after_name, limit=query.limit)
    kept = (read_kept(raw) for _, raw in rows)
    return [q.Planned(schedule=one.schedule, task=one.job.task) for one in kept]


def _pauses(txn: ReadTxn, tenant: str | None = None) -> list[q.Paused]:
    """The pauses that apply to a tenant."""
    found = map(read_pause, txn.rows(PAUSE))
    return [one for one in found if tenant is None or one[0] in (None, tenant)]


def _list_defaults(txn: ReadTxn, query: q.ListDefaults) -> list[tuple[str | None, str, Defaults]]:
    found = read_published(txn).items()
    return [(*key, one) for key, one in found if query.tenant is None or key[0] in (None, query.tenant)]


# Workers and the store


def _get_overview(txn: ReadTxn, query: q.GetOverview) -> q.Overview:
    tenant = query.tenant
    counts = txn.totals() if tenant is None else txn.counts(tenant=tenant)
    tasks, held = dict[str, dict[str, int]](), dict[str, int]()
    suspended = dict[str, dict[str, int]]()
    for key, count in counts.items():
        task = key.task
        row = tasks.get(task) or tasks.setdefault(task, {})
        name = _SHOWN_PLACES.get(key.place) or key.state.value
        row[name] = row.get(name, 0) + count
        if key.place is Place.HELD:
            held[task] = held.get(task, 0) + count
        if isinstance(key.counted, WaitsFor):
            waits = suspended.setdefault(task, {})
            waits[key.counted.lower()] = waits.get(key.counted.lower(), 0) + count
    running = txn.first(Place.RUNNING, rank.LAST, RUNNING_SHOWN)
    heads = txn.first(Place.READY, rank.LAST, 1 if tenant is None else RUNNING_SHOWN)
    count, jobs, workers = summarize_workers(txn, tenant if query.only_own else None, shown=WORKERS_SHOWN)
    return q.Overview(
        now_ms=txn.now_ms,
        tasks=tasks,
        first=next((job for job in heads if tenant in (None, job.tenant)), None),
        running=tuple(job for job in running if tenant in (None, job.tenant)),
        workers=tuple(workers),
        worker_count=count,
        worker_jobs=jobs,
        pauses=tuple(_pauses(txn, tenant if query.only_own else None)),
        first_due=_find_first_due(txn, tenant),
        held=held,
        suspended=suspended,
    )


def _find_first_due(txn: ReadTxn, tenant: str | None) -> dict[str, int]:
    """By task: when the READY job that is claimed next became due. The first pairs are examined."""
    wanted = WaitingQuery(HEADS_SHOWN, None if tenant is None else (tenant,))
    found: dict[str, int] = {}
    for (_, task), job in txn.heads([one[:2] for one in txn.waiting(wanted)]).items():
        due_at = job.run_at or job.created_at
        found[task] = min(found.get(task, due_at), due_at)
    return found


def _count_jobs(txn: ReadTxn, query: q.CountJobs) -> list[tuple[q.JobKind, int]]:
    check_page(query)
    if query.merged:
        if query.tenant is None:
            return _shown_counts(txn.totals(task=query.task).items())
        found = txn.counts(tenant=query.tenant)
        return _shown_counts(
            (key._replace(tenant=""), n) for key, n in found.items() if query.task in (None, key.task)
        )
    return _shown_counts(page_of_pairs(txn, query))


def _shown(key: CountKey) -> q.JobKind:
    return q.JobKind(key.tenant, key.task, key.place, key.state)


def _shown_counts(counts: Iterable[tuple[CountKey, int]]) -> list[tuple[q.JobKind, int]]:
    """The counts by the states that users see, in order."""
    return sorted(added({_shown(key): number} for key, number in counts).items())


def _get_next_moment(txn: ReadTxn, _query: q.GetNextMoment) -> int | None:
    moments = (*txn.moments(), *map(fires_at, txn.rows(SCHEDULE).values()))
    return min((moment for moment in moments if moment is not None and moment > txn.now_ms), default=None)


QUERIES: dict[type[q.Query], Callable[[ReadTxn, Any], Any]] = {
    q.GetJob: _get_job,
    q.GetData: _get_data,
    q.GetSteps: _get_steps,
    q.GetLog: lambda txn, query: notes.log(txn, _find(txn, query)),
    q.Explain: _explain,
    q.LoadJobs: _load_jobs,
    q.LoadFamilies: _load_families,
    q.LoadEnded: load_ended,
    q.ListJobs: lambda txn, query: txn.jobs(query.filter, after=query.after, limit=query.limit),
    q.ListChildren: _list_children,
    q.SelectJobs: _select_jobs,
    q.CountJobs: _count_jobs,
    q.CheckCounts: _check_counts,
    q.HasUnfinished: _has_unfinished,
    q.CountReady: _count_ready,
    q.ListWaiting: list_waiting,
    q.ListLimits: _list_limits,
    q.ListSchedules: _list_schedules,
    q.ListPauses: lambda txn, query: _pauses(txn, query.tenant),
    q.ListDefaults: _list_defaults,
    q.ListWorkers: list_workers,
    q.GetOverview: _get_overview,
    q.GetNextMoment: _get_next_moment,
    q.ListTokens: tokens.list_tokens,
    q.FindToken: tokens.find,
    q.ListConsumers: indexing.list_consumers,
    q.GetProgress: indexing.get_progress,
    q.ReadLog: indexing.read_log,
    GetHistory: get_history,
    GetRetention: get_retention,
    SearchJobs: search_jobs,
    ListTasks: list_tasks,
    h.GetHandler: handlers.get_handler,
    h.FindHandlers: handlers.find_handlers,
    h.ListHandlers: handlers.list_handlers,
    h.ListHandlerVersions: handlers.list_versions,
}

# Queries to the store itself, without a transaction: its clock is local, or estimated.
STORE_QUERIES: dict[type[q.Query], Callable[[AnyStore], Any]] = {
    q.GetTime: lambda store: store.now_ms(),
    q.GetReport: lambda store: store.report(),
}
