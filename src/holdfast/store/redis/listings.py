"""Listings of jobs. Their jobs are not noted in `seen`: there may be millions, and no decision uses them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ...core.job import COUNTED, Job, Place, State
from ...core.kinds import name_of
from ..contract import CountKey, JobFilter
from .connection import Command
from .keys import Keys, member, read_jobs
from .seen import Written

# How many jobs a listing reads at once; and the ids of a place with no more jobs than that.
LISTED, PLACED = 2_000, 50_000
_PLACES = {
    State.RUNNING: Place.RUNNING,
    State.PAUSED: Place.PAUSED,
    State.FAILED: Place.DONE,
    State.FINISHED: Place.DONE,
    State.CANCELLED: Place.DONE,
}


class Listable(Protocol):
    """The interface of a view that listings use."""

    keys: Keys
    written: Written

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Replies to commands."""

    def page(self, order: bytes, records: bytes, *words: Any) -> tuple[list[bytes], list[bytes | None]]:
        """A part of an order, with the records of its members."""

    def standing(self, orders: Iterable[bytes]) -> dict[int, Job]:
        """The jobs written by the batch that are now in one of these orders."""


class Span(NamedTuple):
    """The ids between two; with an end the last ones come first."""

    after: int
    before: int | None

    def has(self, job_id: int) -> bool:
        """Whether an id is between them."""
        return job_id > self.after and (self.before is None or job_id < self.before)

    def words(self, size: int) -> tuple[Any, ...]:
        """The same for ZRANGE."""
        first = b"(" + member(self.after)
        if self.before is None:
            return (first, b"+", "BYLEX", "LIMIT", 0, size)
        return (b"(" + member(self.before), first, "BYLEX", "REV", "LIMIT", 0, size)

    def beyond(self, last: int) -> "Span":
        """The rest of the span, after the id `last` was read."""
        return Span(last, None) if self.before is None else Span(self.after, last)


def list_jobs(
    reads: Listable, query: JobFilter, *, after: int, limit: int, before: int | None = None
) -> list[Job]:
    """Jobs that match, by id, from the first above `after`; or backwards, from the first below `before`."""
    span = Span(after, before)
    own = (reads.written.archive if query.archived else reads.written.jobs).values()
    found = [job for job in own if job is not None and span.has(job.id) and query.takes(job)]
    placed = _of_place(reads, query, span, limit)
    found += _listed(reads, query, span, limit) if placed is None else placed
    return sorted(found, key=lambda job: job.id, reverse=before is not None)[: max(limit, 0)]


def _listed(reads: Listable, query: JobFilter, span: Span, limit: int) -> list[Job]:
    keys = reads.keys
    order, records = (keys.archive_ids, keys.archive) if query.archived else (keys.ids, keys.jobs)
    if query.domain is not None and query.tenant is not None and not query.archived:
        order = keys.domain(name_of(query.tenant, query.domain))
    moved = reads.written.archive if query.archived else reads.written.jobs
    found: list[Job] = []
    # As many as needed; more and more if few of them match.
    size = min(limit + len(moved), LISTED)
    while len(found) < limit:
        members, raws = reads.page(order, records, *span.words(size))
        # Not noted in `seen`.
        there = [raw for name, raw in zip(members, raws, strict=True) if raw and int(name) not in moved]
        found += [job for job in read_jobs(there) if query.takes(job)]
        if len(members) < size:
            break
        span, size = span.beyond(int(members[-1])), min(size * 2, LISTED)
    return found


def _of_place(reads: Listable, query: JobFilter, span: Span, limit: int) -> list[Job] | None:
    """The matching jobs of a small place; None if it is large, or the query names no place."""
    place = query.place or (_PLACES.get(query.state) if query.state else None)
    if query.archived or place in (None, Place.READY, Place.HELD, Place.SCHEDULED):
        return None
    assert place is not None
    (members,) = reads.ask([(b"ZRANGE", reads.keys.places[place], 0, PLACED)])
    if len(members) > PLACED:
        return None
    there = sorted(map(int, members), reverse=span.before is not None)
    ids = [id for id in there if span.has(id) and id not in reads.written.jobs]
    found: list[Job] = []
    size = max(limit, 1)
    while ids and len(found) < limit:
        page, ids, size = ids[:size], ids[size:], size * 2
        (raws,) = reads.ask([(b"HMGET", reads.keys.jobs, *map(member, page))])
        found += [job for job in read_jobs([raw for raw in raws if raw]) if query.takes(job)]
    return found


def find_heads(reads: Listable, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
    """The first READY job of each pair, as far as the store knows: what the batch wrote does not matter."""
    if not pairs:
        return {}
    queues = [(b"ZRANGE", reads.keys.queue(tenant, task), 0, 0) for tenant, task in pairs]
    members = [found[0] for found in reads.ask(queues) if found]
    if not members:
        return {}
    (raws,) = reads.ask([(b"HMGET", reads.keys.jobs, *members)])
    return {(job.tenant, job.task): job for job in read_jobs([raw for raw in raws if raw])}


def find_named(reads: Listable, tenant: str, task: str, *, mock: bool) -> int | None:
    """The id of the first live job of a task, in the places that have some by the counts."""
    keys = reads.keys
    fields = [CountKey(tenant, task, place, state) for place in Place for state in COUNTED.values()]
    (values,) = reads.ask([(b"HMGET", keys.counts, *map(keys.count_field, fields))])
    places = {field.place for field, value in zip(fields, values, strict=True) if value is not None}
    for place in sorted(places):
        queue = keys.queue(tenant, task, mock=mock) if place is Place.READY else keys.places[place]
        if (found := _named_in(reads, queue, (tenant, task, mock, place))) is not None:
            return found
    return None


def _named_in(reads: Listable, order: bytes, named: tuple[str, str, bool, Place]) -> int | None:
    """The first job of an order with this name and place."""
    written, skip = reads.written.jobs, 0
    own = [job for job in reads.standing([order]).values() if _name(job) == named]
    while True:
        words = (b"-inf", b"+inf", "BYSCORE", "LIMIT", skip, LISTED)
        members, raws = reads.page(order, reads.keys.jobs, *words)
        there = read_jobs([raw for raw in raws if raw is not None])
        found = [job for job in there if _name(job) == named and job.id not in written][:1]
        if found or len(members) < LISTED:
            return min([*own, *found], key=lambda job: (job.rank, job.id)).id if own or found else None
        skip += LISTED


def _name(job: Job) -> tuple[str, str, bool, Place]:
    return job.tenant, job.task, job.mock, job.place
