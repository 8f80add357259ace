"""Searches for people: newest jobs first, however many there are and however few match.

A search goes back through time in windows of ids, which are in order of time: the first one is a minute, and
each is longer than the one before while that took little time. It ends when it has enough, or for the time
that it took; the reply says where to go on. So a page comes at once, also where one in a million matches.
"""

from collections.abc import Sequence
from itertools import islice

import msgspec

from ..core import ids, rank
from ..core.bounds import MINUTE_MS
from ..core.job import Body, Job, Place, State
from ..core.queries import (
    CountJobs,
    DataMatch,
    JobFilter,
    JobPage,
    ListTasks,
    SearchJobs,
    TaskState,
)
from ..core.redaction import redact
from ..store.common.clock import monotonic_s
from ..store.contract import CountKey, ReadTxn
from .records import check_page

# A search that has nothing to show yet goes on for so long; then a window may take as long again.
SEARCH_S = 0.06
# The factor by which the next window is longer after one that took less time.
QUICK_S, LONGER = 0.01, 4
# A place that has no more jobs is looked through at once, by its index.
FEW = 2_000
# The most counts that a pair of tenant and task has: QUEUED and RUNQUEUED in three places, RUNNING and
# RUNQUEUED, PAUSED, and three ends.
COUNTS_OF_PAIR = 16
# Bodies that are read at once while data is searched.
BODIES = 200
_PLACES = {
    State.RUNNING: Place.RUNNING,
    State.PAUSED: Place.PAUSED,
    State.FAILED: Place.DONE,
}


def search_jobs(txn: ReadTxn, query: SearchJobs) -> JobPage:
    """A page of jobs; see `SearchJobs`."""
    limit, before = max(query.limit, 1), query.before or ids.MAX_ID
    if query.until_ms:
        before = min(before, ids.first_at(query.until_ms))
    if (few := _few(txn, query.filter)) is not None:
        found = [job for job in few if _first_id(query) < job.id < before]
        return _page(_matching(txn, found, query)[: limit + 1], limit, reached=0)
    begun_s, found, span_ms = monotonic_s(), list[Job](), MINUTE_MS
    around = _around(query.filter)
    first = _first_id(query)
    while newest := txn.jobs(around, after=first, before=before, limit=1):
        # Over a time without jobs, to the next one: behind it there may be very many, so begin with a minute.
        newest_ms = ids.ms_of(newest[0].id)
        span_ms = MINUTE_MS if newest_ms < ids.ms_of(before) - span_ms else span_ms
        after = max(ids.first_at(newest_ms - span_ms) - 1, first)
        started_s = monotonic_s()
        page, before = _look(txn, query, after, before, limit + 1 - len(found))
        found += page
        if len(found) > limit or before <= first + 1 or monotonic_s() - begun_s > SEARCH_S:
            reached = before if before > first + 1 else 0
            oldest = txn.jobs(around, after=first, limit=1) if reached else []
            return _page(found, limit, reached=reached, oldest=oldest)
        span_ms = span_ms * LONGER if monotonic_s() - started_s < QUICK_S else span_ms
    return _page(found, limit, reached=0)


def _first_id(query: SearchJobs) -> int:
    """The id below all that a search may find."""
    return max(ids.first_at(query.since_ms) - 1, 0) if query.since_ms else 0


def _page(found: list[Job], limit: int, *, reached: int, oldest: Sequence[Job] = ()) -> JobPage:
    """The reply; `reached` is the id down to which was searched, 0: to the end."""
    if len(found) > limit:
        return JobPage(jobs=tuple(found[:limit]), before=found[limit - 1].id)
    if not reached:
        return JobPage(jobs=tuple(found))
    return JobPage(
        jobs=tuple(found),
        before=reached,
        is_cut=True,
        searched_ms=ids.ms_of(reached),
        oldest_ms=ids.ms_of(oldest[0].id) if oldest else 0,
    )


def _few(txn: ReadTxn, wanted: JobFilter) -> list[Job] | None:
    """All jobs that match, newest first, where they stand in a place that has few; None: it has many."""
    place = _PLACES.get(wanted.state) if wanted.state else wanted.place
    if place is None and not wanted.archived:
        return None
    totals = txn.totals()
    counts = totals if wanted.tenant is None else txn.counts(tenant=wanted.tenant)
    if not _sum(counts, wanted, place or Place.DONE):
        return []
    if wanted.archived or place is None or _sum(totals, JobFilter(state=wanted.state), place) > FEW:
        return None
    if place in (Place.PAUSED, Place.DONE):
        return txn.jobs(wanted, after=0, before=ids.MAX_ID, limit=FEW)
    found = [job for job in txn.first(place, rank.LAST, FEW) if wanted.takes(job)]
    return sorted(found, key=lambda job: -job.id)


def _around(wanted: JobFilter) -> JobFilter:
    """The jobs whose newest is found at once: all, or those of a place in which stores order them by id."""
    place = _PLACES.get(wanted.state) if wanted.state else wanted.place
    is_ordered = place in (Place.PAUSED, Place.DONE) and not wanted.archived
    return JobFilter(archived=wanted.archived, place=place if is_ordered else None)


def _sum(counts: dict[CountKey, int], wanted: JobFilter, place: Place) -> int:
    return sum(
        number
        for key, number in counts.items()
        if key.place is place
        and wanted.tenant in (None, key.tenant)
        and wanted.task in (None, key.task)
        and wanted.state in (None, key.state)
    )


def _look(txn: ReadTxn, query: SearchJobs, after: int, before: int, limit: int) -> tuple[list[Job], int]:
    """The jobs of a window that match, newest first, and the id down to which was searched."""
    if not (query.data or query.error_text or query.owner or query.priority is not None):
        return txn.jobs(query.filter, after=after, before=before, limit=limit), after + 1
    found: list[Job] = []
    begun_s = monotonic_s()
    while True:
        page = txn.jobs(query.filter, after=after, before=before, limit=BODIES)
        found += _matching(txn, page, query)
        if len(page) < BODIES:
            return found[:limit], after + 1
        before = page[-1].id
        if len(found) >= limit or monotonic_s() - begun_s > SEARCH_S:
            return found[:limit], before


def _matching(txn: ReadTxn, jobs: Sequence[Job], query: SearchJobs) -> list[Job]:
    """The jobs that match what a store does not filter by."""
    text = query.error_text.lower()
    found = [
        job
        for job in jobs
        if (not query.owner or query.owner in _owners_of(job))
        and query.priority in (None, job.priority)
        and (not text or text in _error_of(job).lower())
    ]
    if not query.data or not found:
        return found
    bodies = txn.bodies([job.id for job in found])
    return [job for job in found if _has(bodies.get(job.id), query.data, redacted=query.redacted)]


def _owners_of(job: Job) -> set[int]:
    """The processes that have claimed a job, as far as its record tells."""
    return {job.owner, *(end.owner for end in (job.outcome, *job.errors) if end is not None)}


def _error_of(job: Job) -> str:
    """What is known of why a job failed, or of its last attempt."""
    last = job.errors[-1] if job.errors else job.outcome
    return f"{job.reason}\n{last.error if last else ''}"


def _has(body: Body | None, wanted: tuple[DataMatch, ...], *, redacted: bool) -> bool:
    """Whether data has these texts at these paths; `redacted`: a secret is not found by its value."""
    if not isinstance(body, str):
        return False
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    if redacted:
        value, _ = redact(value)
    return all(_text_at(value, path.split(".")) == text for path, text in wanted)


def _text_at(value: object, path: list[str]) -> str | None:
    for name in path:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_FIELDS = {
    Place.READY: "ready",
    Place.HELD: "held",
    Place.SCHEDULED: "scheduled",
    Place.RUNNING: "running",
    Place.PAUSED: "paused",
}


def page_of_pairs(txn: ReadTxn, query: CountJobs | ListTasks) -> list[tuple[CountKey, int]]:
    """All counts of the first `query.limit` pairs of tenant and task, in order."""
    after = (query.after_tenant, query.after_task)
    counts = txn.counts(tenant=query.tenant, after=after, limit=query.limit * COUNTS_OF_PAIR)
    pairs = {key[:2]: None for key in counts}
    shown = set(islice(pairs, query.limit))
    return [(key, number) for key, number in counts.items() if key[:2] in shown]


def list_tasks(txn: ReadTxn, query: ListTasks) -> list[TaskState]:
    """The tasks that have jobs; see `ListTasks`."""
    check_page(query)
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for key, number in page_of_pairs(txn, query):
        fields = counts.setdefault((key.tenant, key.task), {})
        name = _field(key)
        fields[name] = fields.get(name, 0) + number
    heads = txn.heads([pair for pair in counts if counts[pair].get("ready")])
    return [
        TaskState(
            tenant=pair[0],
            task=pair[1],
            **counts[pair],
            first_due_at=heads[pair].run_at or heads[pair].created_at if pair in heads else 0,
        )
        for pair in counts
    ]


def _field(key: CountKey) -> str:
    return _FIELDS.get(key.place) or key.state.value.lower()
