"""The reads of jobs in a Redis store: by id and in order, with bodies, moments, pairs and listings.

An order is a sorted set. Jobs that the batch has written are removed from the server's result and inserted
where they belong now. So a batch sees its own writes.

Jobs of listings are not noted in `seen`: there may be millions, and no decision uses them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from ...core import rank
from ...core.damage import UNREADABLE
from ...core.job import COUNTED, Body, Job, Place, State
from ...core.kinds import CHORE, DOMAIN, PAUSE, SCHEDULE, name_of
from ...core.limits import DomainCounts, DomainKey
from .. import ready_pairs
from ..contract import CountKey, JobFilter, Moments, Waiting, WaitingQuery
from .connection import PAGE, Command
from .keys import (
    EXPIRABLE,
    LARGE,
    STAMP_BYTES,
    Pair,
    data_of,
    member,
    pair_of,
    read_bodies,
    read_job,
    read_jobs,
)
from .ready_pairs import KnownPairs, RedisPairs
from .rows import RedisRows, in_pairs

# How many members of an order are read to find its first time, as the batch may have moved some of them.
HEADS = 8
# Up to how many pairs with READY jobs are prefetched with the moments.
FEW_PAIRS = 256
# More than the size of any order.
ALL = 1 << 40

_COUNTED = (Place.READY, Place.HELD, Place.RUNNING)


class RedisReads(RedisRows):
    """A view of a store; see `ReadTxn` for what each method promises."""

    # Tables that are prefetched with the moments, because claims need them.
    tables_read_along: tuple[str, ...] = (PAUSE,)
    # The pairs that have READY jobs, if they were read and are few.
    ready_pairs: list[Pair] | None = None

    # The first members of the orders with times, with scores, and how many of each were read.
    _heads: list[list[bytes]] | None = None
    _heads_read = 0
    # The jobs that the batch has written, by order; None: not computed since the last write.
    _orders: dict[bytes, dict[int, Job]] | None = None

    # Jobs by id

    def note_jobs(self, ids: Sequence[int], raws: Sequence[bytes | None], *, archived: bool = False) -> None:
        """Note jobs as the server returned them, unless they were noted before."""
        seen = self.seen
        jobs, stamps = (seen.archive, seen.archive_stamps) if archived else (seen.jobs, seen.stamps)
        fresh = {id: raw for id, raw in zip(ids, raws, strict=True) if id not in jobs}
        there = {id: raw for id, raw in fresh.items() if raw is not None}
        if len(there) < len(fresh):
            jobs |= dict.fromkeys([id for id in fresh if id not in there])
        if not there:
            return
        try:
            found = read_jobs([*there.values()])
        except UNREADABLE:
            # Readable ones are noted first, so that taken jobs can be put back.
            for id, raw in there.items():
                try:
                    jobs[id], stamps[id] = read_job(raw), raw[:STAMP_BYTES]
                except UNREADABLE:
                    continue
            raise
        jobs |= zip(there, found, strict=True)
        seen.data |= {id: data_of(raw) for id, raw in there.items()}
        stamps |= {id: raw[:STAMP_BYTES] for id, raw in there.items()}

    def fetch(self, ids: Iterable[int]) -> None:
        """Read these jobs into `seen`."""
        seen, written = self.seen.jobs, self.written.jobs
        unseen = [id for id in dict.fromkeys(ids) if id not in seen and id not in written]
        if unseen:
            (raws,) = self.ask([(b"HMGET", self.keys.jobs, *[b"%019d" % id for id in unseen])])
            self.note_jobs(unseen, raws)

    def _now(self, ids: Iterable[int]) -> dict[int, Job]:
        """Fetched jobs that exist, with the changes of the batch."""
        seen, written = self.seen.jobs, self.written.jobs
        found = {id: written[id] if id in written else seen[id] for id in ids}
        return {id: job for id, job in found.items() if job is not None}

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs with these ids, and their parents."""
        self.fetch(ids)
        found = self._now(ids)
        parents = {job.parent_id for job in found.values() if job.parent_id}
        if parents:
            self.fetch(parents)
            found |= self._now(parents)
        return found

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs with these ids."""
        seen, written = self.seen.archive, self.written.archive
        unseen = [id for id in dict.fromkeys(ids) if id not in seen and id not in written]
        if unseen:
            (raws,) = self.ask([(b"HMGET", self.keys.archive, *map(member, unseen))])
            self.note_jobs(unseen, raws, archived=True)
        found = {id: written[id] if id in written else seen[id] for id in ids}
        return {id: job for id, job in found.items() if job is not None}

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, or their results, by id."""
        written = self.written.results if result else self.written.data
        wanted = [id for id in ids if id not in written] if written else ids
        found = read_bodies(self._results(wanted) if result else self._data(wanted))
        if not written:
            return found
        now = {id: written[id] if id in written else found.get(id) for id in ids}
        return {id: body for id, body in now.items() if body is not None}

    def _results(self, ids: Collection[int]) -> dict[int, bytes]:
        names = [b"%019d" % id for id in ids]
        values = self.ask([(b"HMGET", self.keys.results, *names)])[0] if names else []
        return {id: value for id, value in zip(ids, values, strict=True) if value is not None}

    def _data(self, ids: Collection[int]) -> dict[int, bytes]:
        keys, found = self.keys, self.seen.data
        if unread := [b"%019d" % id for id in ids if id not in found]:
            live, archived = self.ask([(b"HMGET", key, *unread) for key in (keys.jobs, keys.archive)])
            values = zip(unread, live, archived, strict=True)
            new = {int(id): job or ended for id, job, ended in values}
            found = found | {id: data_of(raw) for id, raw in new.items() if raw is not None}
        if large := [id for id in ids if found.get(id) == LARGE]:
            (bodies,) = self.ask([(b"HMGET", keys.data, *[b"%019d" % id for id in large])])
            found = found | {id: body or b"" for id, body in zip(large, bodies, strict=True)}
        return {id: found[id] for id in ids if found.get(id)}

    # Jobs in order

    def note_misplaced(self, job_id: int) -> None:
        """Note a job in an order that does not match its record; a view ignores it."""

    def standing(self, orders: Iterable[bytes]) -> dict[int, Job]:
        """The jobs written by the batch that are now in one of these orders."""
        if not self.written.jobs:
            return {}
        if self._orders is None:
            self._orders = {}
            for job_id, job in self.written.jobs.items():
                for key in self.keys.scores(job) if job is not None else ():
                    self._orders.setdefault(key, {})[job_id] = job  # type: ignore[assignment]
        return {id: job for key in orders for id, job in self._orders.get(key, {}).items()}

    def _ordered(
        self,
        orders: Sequence[bytes],
        words: Command,
        *,
        own: Sequence[bytes] = (),
        match: Callable[[Job], bool],
        by: Callable[[Job], tuple[int, ...]],
        limit: int,
        backwards: bool = False,
    ) -> list[Job]:
        """The first matching jobs of some orders, with the changes of the batch."""
        written = self.written.jobs
        most = (*words, "LIMIT", 0, limit + len(written))
        found: dict[int, Job] = {}
        for members, raws in self.ask([PAGE.command((order, self.keys.jobs), *most) for order in orders]):
            ids = [*map(int, members)]
            self.note_jobs(ids, raws)
            for job_id in ids:
                if job_id not in written:
                    if (job := self.seen.jobs[job_id]) is not None:
                        found[job_id] = job
                    if job is None or not match(job):
                        self.note_misplaced(job_id)
        found |= self.standing(own or orders)
        return sorted(filter(match, found.values()), key=by, reverse=backwards)[: max(limit, 0)]

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job with an id above `after`. The parent is noted, and so may not change."""
        if not parent_id:
            return []
        self.fetch([parent_id])
        places = [*Place] if place is None else [place]
        return self._ordered(
            [self.keys.children(parent_id, one) for one in places],
            (b"(" + member(after), b"+", "BYLEX"),
            match=lambda job: job.parent_id == parent_id and job.place in places and job.id > after,
            by=_id,
            limit=limit,
        )

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place, by (rank, id), whose rank is at most `up_to`."""
        keys = self.keys
        return self._ordered(
            [keys.ready, keys.ready_mock] if place is Place.READY else [keys.places[place]],
            (b"-inf", up_to, "BYSCORE"),
            match=lambda job: job.place is place and job.rank <= up_to,
            by=_spot,
            limit=limit,
        )

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and whose `expires_at` is at most `up_to`, earliest first."""
        order = self.keys.expiring
        return self._ordered(
            [order],
            (b"-inf", up_to, "BYSCORE"),
            match=lambda job: self.keys.scores(job).get(order, up_to + 1) <= up_to,
            by=lambda job: (job.expires_at, job.id),
            limit=limit,
        )

    def domain_queue(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """Jobs of a domain's task in a place, by (rank, id): the first, or the last in reverse order."""
        order = self.keys.domain_queue(key, task, place)
        return self._ordered(
            [order] if self.seen.domain_sizes.get(name_of(*key), 1) else [],
            (b"+inf", b"-inf", "BYSCORE", "REV") if last else (b"-inf", b"+inf", "BYSCORE"),
            own=[order],
            match=lambda job: (job.tenant, job.domain, job.task, job.place) == (*key, task, place),
            by=_spot,
            limit=limit,
            backwards=last,
        )

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """The numbers of READY, HELD and RUNNING jobs of domains, by task."""
        self.rows(DOMAIN, [name_of(*key) for key in keys])
        found: dict[DomainKey, DomainCounts] = {}
        for key in keys:
            order = self.keys.domain(name_of(*key))
            jobs = self._ordered(
                [order] if self.seen.domain_sizes.get(name_of(*key), 1) else [],
                (b"-", b"+", "BYLEX"),
                own=[order],
                match=lambda job, key=key: (job.tenant, job.domain) == key and job.place in _COUNTED,  # type: ignore[misc]
                by=_id,
                limit=ALL,
            )
            for job in jobs:
                counts = found.setdefault(key, {})
                counts[job.task, job.place] = counts.get((job.task, job.place), 0) + 1
        return found

    def ended(self, before_ms: int, *, tenant: str | None, limit: int) -> list[Job]:
        """The first archived jobs that ended before `before_ms`, by (finished_at, id)."""
        written, keys, skip = self.written.archive, self.keys, 0
        own = [job for job in written.values() if job is not None and job.finished_at < before_ms]
        found = [job for job in own if tenant in (None, job.tenant)]
        page, theirs = limit + len(written), 0
        while theirs < limit:
            words = (b"-inf", b"(%d" % before_ms, "BYSCORE", "LIMIT", skip, page)
            members, raws = self.page(keys.archive_ends, keys.archive, *words)
            rows = [(int(name), raw) for name, raw in zip(members, raws, strict=True) if raw is not None]
            rows = [(id, raw) for id, raw in rows if id not in written]
            if tenant is not None:
                # Not noted in `seen`: jobs of other tenants may change.
                rows = [(id, raw) for id, raw in rows if read_job(raw).tenant == tenant]
            self.note_jobs([id for id, _ in rows], [raw for _, raw in rows], archived=True)
            found += [job for id, _ in rows if (job := self.seen.archive[id]) is not None]
            theirs, skip = theirs + len(rows), skip + page
            if len(members) < page:
                break
        return sorted(found, key=lambda job: (job.finished_at, job.id))[: max(limit, 0)]

    def jobs(self, query: JobFilter, *, after: int, limit: int, before: int | None = None) -> list[Job]:
        """Jobs that match, with an id above `after`, ordered by id."""
        return list_jobs(self, query, after=after, limit=limit, before=before)

    def heads(self, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        """The first READY job of each pair."""
        return find_heads(self, pairs)

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of a task, in the places that have some by the counts."""
        return find_named(self, tenant, task, mock=mock)

    # Moments and pairs

    def moments(self) -> Moments:
        """When upkeep has something to do next; also prefetches what a claim needs."""
        if self._heads is None:
            self._read_heads(HEADS)
        if not self.written.jobs and not self.written.rows:
            firsts = [int(float(flat[1])) if flat else rank.LAST for flat in self._heads or ()]
        elif -1 in (firsts := self._firsts()):
            # The batch has moved all members that were read: read more.
            self._read_heads(HEADS + len(self.written.jobs) + len(self.written.rows))
            firsts = self._firsts()
        return Moments(*[None if first >= rank.LAST else first for first in firsts])

    def _read_heads(self, count: int) -> None:
        keys = self.keys
        orders = (keys.places[Place.SCHEDULED], keys.in_process_queue, keys.expiring, keys.due_rows(DOMAIN))
        commands: list[Command] = [(b"ZRANGE", order, 0, count - 1, "WITHSCORES") for order in orders]
        commands += ((b"ZRANGE", keys.pairs, 0, FEW_PAIRS),)
        *self._heads, pairs = self.ask_rows(dict.fromkeys(self.tables_read_along), commands)
        self._heads_read = count
        self.ready_pairs = [pair_of(name) for name in pairs] if len(pairs) <= FEW_PAIRS else None

    def _firsts(self) -> list[int]:
        """The first time of each kind; `LAST` for none, -1 if too few members were read."""
        written, rows, dues = self.written.jobs, self.written.rows, self.written.dues
        jobs = [job for job in written.values() if job is not None]
        own = (
            [job.rank for job in jobs if job.place is Place.SCHEDULED],
            [job.rank for job in jobs if job.place is Place.RUNNING],
            [job.expires_at for job in jobs if job.expires_at and job.place in EXPIRABLE],
            [
                due
                for (table, key), due in dues.items()
                if table == DOMAIN and rows.get((table, key)) is not None
            ],
        )
        moved = {b"%019d" % id for id in written}
        moved_rows = {key.encode() for table, key in rows if table == DOMAIN}
        firsts = []
        for flat, scores, gone in zip(self._heads or (), own, [moved] * 3 + [moved_rows], strict=True):
            theirs = [int(float(score)) for name, score in in_pairs(flat) if name not in gone][:1]
            is_short = not theirs and len(flat) == 2 * self._heads_read
            firsts.append(-1 if is_short else min([*scores, *theirs], default=rank.LAST))
        return firsts

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The pairs with READY jobs."""
        return ready_pairs.waiting(RedisPairs(self.ask, self.keys, self.written.counts), query, self.rows)


class RedisView(RedisReads):
    """A view that detects whether another batch was committed between its round trips."""

    # The mark of the last commit before the first round trip, and after the last one.
    mark: bytes | None = None
    last_mark: bytes | None = None

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Replies to several commands; the mark of the last commit is read with them."""
        if not commands:
            return []
        mark = (b"LINDEX", self.keys.marks, 0)
        if not self.trips:
            self.mark, *replies = self.begin([mark, *commands])
        else:
            self.trips += 1
            *replies, self.last_mark = self.server.call_many([*commands, mark])
        return replies

    @property
    def is_of_one_moment(self) -> bool:
        """Whether nothing was committed between its round trips."""
        return self.trips < 2 or self.mark == self.last_mark


class RedisHint(RedisView):
    """The view of a process that waits for jobs: everything is read in the first round trip.

    If few pairs have READY jobs they are known from it, but not how many jobs each has.
    """

    tables_read_along = (PAUSE, SCHEDULE, CHORE)

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """The pairs with READY jobs; if there are few, without their numbers of jobs."""
        if self._heads is None:
            self._read_heads(HEADS)
        if self.ready_pairs is None:
            return super().waiting(query)
        return ready_pairs.waiting(KnownPairs(self.ready_pairs), query, self.rows)


def _spot(job: Job) -> tuple[int, ...]:
    return job.rank, job.id


def _id(job: Job) -> tuple[int, ...]:
    return (job.id,)


# How many jobs a listing reads at once; and the ids of a place with no more jobs than that.
LISTED, PLACED = 2_000, 50_000
_PLACES = {
    State.RUNNING: Place.RUNNING,
    State.PAUSED: Place.PAUSED,
    State.FAILED: Place.DONE,
    State.FINISHED: Place.DONE,
    State.CANCELLED: Place.DONE,
}


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
    reads: RedisReads, query: JobFilter, *, after: int, limit: int, before: int | None = None
) -> list[Job]:
    """Jobs that match, by id, from the first above `after`; or backwards, from the first below `before`."""
    span = Span(after, before)
    own = (reads.written.archive if query.archived else reads.written.jobs).values()
    found = [job for job in own if job is not None and span.has(job.id) and query.takes(job)]
    placed = _of_place(reads, query, span, limit)
    found += _listed(reads, query, span, limit) if placed is None else placed
    return sorted(found, key=lambda job: job.id, reverse=before is not None)[: max(limit, 0)]


def _listed(reads: RedisReads, query: JobFilter, span: Span, limit: int) -> list[Job]:
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


def _of_place(reads: RedisReads, query: JobFilter, span: Span, limit: int) -> list[Job] | None:
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


def find_heads(reads: RedisReads, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], Job]:
    """The first READY job of each pair, as far as the store knows: what the batch wrote does not matter."""
    if not pairs:
        return {}
    queues = [(b"ZRANGE", reads.keys.queue(tenant, task), 0, 0) for tenant, task in pairs]
    members = [found[0] for found in reads.ask(queues) if found]
    if not members:
        return {}
    (raws,) = reads.ask([(b"HMGET", reads.keys.jobs, *members)])
    return {(job.tenant, job.task): job for job in read_jobs([raw for raw in raws if raw])}


def find_named(reads: RedisReads, tenant: str, task: str, *, mock: bool) -> int | None:
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


def _named_in(reads: RedisReads, order: bytes, named: tuple[str, str, bool, Place]) -> int | None:
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
