"""What holds of a queue at every moment, each promise by its name.

A check takes a view of the store and tells what breaks the promise, one text each. Promises about what
may follow what are in `history.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from holdfast.core import rank, unique
from holdfast.core.bounds import LOG_BYTES, LOG_LINES
from holdfast.core.family import tally, waits_for_parent
from holdfast.core.job import Job, Place, State, size_of
from holdfast.core.kinds import (
    CHORE,
    HANDLED,
    HANDLER,
    HANDLER_VERSION,
    JOB_LOG,
    LIMIT,
    PATTERNS,
    PAUSE,
    SIGNALS,
    STEPS,
    name_of,
)
from holdfast.core.limits import Domain, DomainKey, Limit, TaskLoad, find_pattern
from holdfast.core.notes import JobLog, StepResult
from holdfast.core.rules import waits_for_signal
from holdfast.engine.batch.notes import signals_of, step_name
from holdfast.engine.commands.handlers import HandlerHead
from holdfast.engine.records import read_limit, read_patterns
from holdfast.store.contract import count_key

from .view import View

Complaints = Iterator[str]


def counts_are_what_is_counted(view: View) -> Complaints:
    """Counts are kept as jobs change; counting the jobs comes to the same."""
    jobs = (*view.live.values(), *view.archived.values())
    counted = Counter(map(count_key, jobs))
    for key in sorted(counted.keys() | view.counts.keys()):
        if counted.get(key) != view.counts.get(key):
            yield f"{key}: {counted.get(key)} jobs, counted as {view.counts.get(key)}"


def a_parent_knows_its_children(view: View) -> Complaints:
    """The parent's `children` are those that there are."""
    family = view.family()
    for job in view.live.values():
        real = [sum(column) for column in zip((0, 0, 0), *map(tally, family.get(job.id, ())), strict=True)]
        known = [job.children.pending, job.children.failed, job.children.kept]
        if real != known:
            yield f"job {job.id} has {real} children pending, failed and kept, and knows of {known}"


def who_is_paused_waits_for_somebody(view: View) -> Complaints:
    """A function for a signal; a parent for a child; a child for its parent's run.

    A parent waits for a child that has not ended, or failed, where it says so.
    """
    for job in view.at(Place.PAUSED):
        if waits_for_signal(job):
            continue
        if waits_for_parent(job):
            parent = view.live.get(job.parent_id)
            if parent is None or (parent.place == Place.PAUSED and not _goes_on(view, "release", parent.id)):
                yield f"child {job.id} is PAUSED, its parent is {parent.state if parent else 'gone'}"
        elif not job.children.pending and not (job.wait_for_failed and job.children.failed):
            yield f"parent {job.id} is PAUSED and waits for nobody"


def domains_know_what_stands_in_them(view: View) -> Complaints:
    """Where a domain is kept, its loads and its running are the real numbers."""
    real: dict[DomainKey, Counter[tuple[str, Place]]] = {}
    for job in view.at(Place.READY, Place.HELD, Place.RUNNING):
        if job.domain is not None:
            real.setdefault((job.tenant, job.domain), Counter())[job.task, job.place] += 1
    for key, domain in view.domains.items():
        here = real.get(key, Counter())
        running = sum(n for (_, place), n in here.items() if place == Place.RUNNING)
        tasks = {task for task, place in here if place != Place.RUNNING}
        loads = {task: TaskLoad(ready=here[task, Place.READY], held=here[task, Place.HELD]) for task in tasks}
        known = {task: replace(load, last=None) for task, load in domain.loads.items()}
        if (running, loads) != (domain.running, known):
            yield f"{key} has {running} running and {loads}, and knows of {domain.running} and {known}"


def no_ready_job_comes_after_the_last(view: View) -> Complaints:
    """Where the load of a domain knows the last of its READY jobs."""
    for job in view.at(Place.READY):
        domain = view.domains.get((job.tenant, job.domain or b""))
        load = domain.loads.get(job.task) if domain is not None and job.domain is not None else None
        if load is not None and load.last is not None and (job.rank, job.id) > load.last:
            yield f"job {job.id} is READY with rank {job.rank}, behind the last of {load}"


def held_jobs_wait_for_something(view: View) -> Complaints:
    """Behind a domain that is kept, and that will come to let them go."""
    for job in view.at(Place.HELD):
        key = (job.tenant, job.domain or b"")
        domain, limit = view.domains.get(key), limit_of(view, key)
        if job.domain is None or domain is None:
            yield f"job {job.id} is HELD by {key}, which is not there"
        elif not (domain.due_ms or domain.loads[job.task].ready or _is_full(domain, limit)):
            yield f"job {job.id} is HELD by {domain}, which has room and no moment to look; {limit}"


def the_first_stand_ready(view: View) -> Complaints:
    """Of each domain and task no HELD job outranks a READY one."""
    lines: dict[tuple[DomainKey, str, Place], list[tuple[int, int]]] = {}
    for job in view.at(Place.READY, Place.HELD):
        if job.domain is not None:
            lines.setdefault(((job.tenant, job.domain), job.task, job.place), []).append((job.rank, job.id))
    for (key, task, place), held in lines.items():
        ready = lines.get((key, task, Place.READY))
        if place == Place.HELD and ready and min(held) < max(ready):
            yield f"{key} {task}: {min(held)} is HELD, {max(ready)} is READY"


def unique_keys_have_one_holder(view: View) -> Complaints:
    """Every job that has not ended holds its key, so no two have the same; who has ended holds none.

    Or, by `unique_for`, for a while; and to the message of the documents one that FAILED still does.
    """
    for job in view.live.values():
        key = unique.key_of(job)
        holder = view.uniques.get(key) if key else None
        holds = job.place != Place.DONE or (job.strict and job.ended == State.FAILED)
        if key and holds and (holder is None or holder.job_id != job.id or holder.until_ms):
            yield f"job {job.id} should hold {key}, which is held by {holder}"
        if key and not holds and holder and holder.job_id == job.id and not holder.until_ms:
            yield f"job {job.id} is {job.state}, and holds {key}"
    for holder in view.uniques.values():
        if not holder.until_ms and holder.job_id not in view.live:
            yield f"{holder} is not there"


def running_jobs_have_an_owner(view: View) -> Complaints:
    """And a claim; jobs that ended or wait for their family have neither owner nor lease."""
    for job in view.live.values():
        if job.place == Place.RUNNING and not (job.owner and job.claim):
            yield f"job {job.id} runs without an owner"
        if job.place in (Place.PAUSED, Place.DONE) and (job.owner or job.lease_until):
            yield f"job {job.id} is {job.state} and held by {job.owner}"


def ranks_follow_from_the_record(view: View) -> Complaints:
    """See `core.rank`."""
    for job in view.live.values():
        if job.rank != rank_of(job):
            yield f"job {job.id} in {job.place.name} has rank {job.rank}, not {rank_of(job)}"


def ended_jobs_leave(view: View) -> Complaints:
    """Live and ended is FAILED, or a child beside its parent; what is archived ended otherwise."""
    for job in view.live.values():
        done = job.place == Place.DONE
        if done != (job.ended is not None) or done != bool(job.finished_at):
            yield f"job {job.id} is in {job.place.name} and ended {job.ended} at {job.finished_at}"
        alone = job.parent_id not in view.live and not _goes_on(view, "sweep", job.parent_id)
        if done and job.ended != State.FAILED and alone:
            yield f"job {job.id} is {job.ended} and still live, without a parent"
    for job in view.archived.values():
        if job.place != Place.DONE or job.ended not in (State.FINISHED, State.CANCELLED):
            yield f"job {job.id} is archived and {job.state}"
    if both := view.live.keys() & view.archived.keys():
        yield f"jobs {sorted(both)} are live and archived"


def bodies_go_with_their_jobs(view: View) -> Complaints:
    """Every job has its data, of the size that it says, and a result if it says so; nothing else has."""
    jobs = view.live | view.archived
    if view.data.keys() != jobs.keys():
        yield f"there is data of {sorted(view.data)}, and there are jobs {sorted(jobs)}"
    for job in jobs.values():
        if job.id in view.data and job.size != size_of(view.data[job.id]):
            yield f"job {job.id} says that its data has {job.size} bytes, and it is {view.data[job.id]!r}"
        if job.has_result != (job.id in view.results):
            yield f"job {job.id} says {job.has_result} of a result that is {view.results.get(job.id)!r}"
    if strangers := view.results.keys() - jobs.keys():
        yield f"there are results of {sorted(strangers)}, and no such jobs"


def steps_and_logs_go_with_their_jobs(view: View) -> Complaints:
    """A job has the steps, the signals and the lines that it says; who has ended gets no signals."""
    told = set()
    for job in (view.live | view.archived).values():
        told |= {(STEPS, step_name(job, number + 1)) for number in range(job.steps)}
        told |= {(SIGNALS, name) for name in signals_of(job)}
        left = (job.open_call, job.compensates, job.signals)
        if any(left) and job.place == Place.DONE and job.ended != State.FAILED:
            yield f"job {job.id} is {job.state} and has {left}"
        if job.log_lines:
            told.add((JOB_LOG, str(job.id)))
            log = msgspec.json.decode(view.records.get((JOB_LOG, str(job.id)), b"{}"), type=JobLog)
            size = sum(len(line.text.encode()) + 1 for line in log.lines)
            if len(log.lines) + log.cut != job.log_lines or size > LOG_BYTES or len(log.lines) > LOG_LINES:
                yield f"job {job.id} has {job.log_lines} lines; kept {len(log.lines)}, cut {log.cut}"
    if told != view.notes.keys():
        yield f"jobs tell of {sorted(told)}, and there are {sorted(view.notes)}"


def functions_wait_for_what_is_recorded(view: View) -> Complaints:
    """What a suspended job waits for is an entry of its steps that is not over."""
    for job in (view.live | view.archived).values():
        wait = job.waits_for
        if wait is None or job.place == Place.RUNNING:
            continue
        raw = view.notes.get((STEPS, step_name(job, wait.step)))
        entry = raw and msgspec.json.decode(raw, type=StepResult)
        if job.place == Place.DONE or (job.steps and (not entry or entry.kind != wait.kind or entry.ended)):
            yield f"job {job.id} is {job.state} and waits for {wait}, which is {entry}"


def handlers_have_their_versions(view: View) -> Complaints:
    """Each has all versions from the oldest to the newest, and its task is marked; nothing else is."""
    versions, marks = set(), set()
    for (kind, name), raw in view.records.items():
        if kind == HANDLER:
            head = msgspec.json.decode(raw, type=HandlerHead)
            newest = head.newest
            marks.add((HANDLED, name))
            kept = range(head.oldest, newest.version + 1)
            versions |= {
                (HANDLER_VERSION, name_of(newest.tenant, newest.task, f"{number:010}")) for number in kept
            }
    for kind, told in ((HANDLER_VERSION, versions), (HANDLED, marks)):
        if told != (found := {key for key in view.records if key[0] == kind}):
            yield f"handlers tell of {sorted(told)}, and there are {sorted(found)}"


CHECKS: tuple[Callable[[View], Complaints], ...] = (
    counts_are_what_is_counted,
    a_parent_knows_its_children,
    who_is_paused_waits_for_somebody,
    domains_know_what_stands_in_them,
    no_ready_job_comes_after_the_last,
    held_jobs_wait_for_something,
    the_first_stand_ready,
    unique_keys_have_one_holder,
    running_jobs_have_an_owner,
    ranks_follow_from_the_record,
    ended_jobs_leave,
    bodies_go_with_their_jobs,
    steps_and_logs_go_with_their_jobs,
    functions_wait_for_what_is_recorded,
    handlers_have_their_versions,
)


def rank_of(job: Job) -> int:
    """The rank that a job must have where it stands."""
    if job.place in (Place.READY, Place.HELD):
        return rank.ready(job.priority, job.run_at)
    if job.place == Place.RUNNING:
        return rank.lease(job.lease_until)
    if job.place == Place.SCHEDULED:
        return rank.scheduled(job.run_at, job.waits_for)
    return 0 if job.place == Place.PAUSED else job.finished_at


def limit_of(view: View, key: DomainKey, *, pauses: bool = True) -> Limit | None:
    """The limit of a domain: its own, else its longest pattern's; nothing may run while it is paused."""
    tenant, domain = key
    if pauses and (PAUSE, name_of(tenant, None, domain)) in view.records:
        return Limit(concurrency=0)
    if raw := view.records.get((LIMIT, name_of(tenant, domain))):
        return read_limit(raw)
    raw = view.records.get((PATTERNS, name_of(tenant)))
    found = find_pattern(read_patterns(raw).limits, domain) if raw else None
    return found[1] if found else None


def _goes_on(view: View, chore: str, parent_id: int) -> bool:
    """Whether upkeep has still to do with the children of a parent."""
    return (CHORE, name_of(chore, str(parent_id))) in view.records


def _is_full(domain: Domain, limit: Limit | None) -> bool:
    return limit is not None and limit.concurrency is not None and domain.running >= limit.concurrency
