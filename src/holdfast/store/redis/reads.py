"""What can be read of a Redis store: jobs by id and in their orders, their bodies, moments and turns.

An order is a sorted set. What the batch itself has moved is left out of what the server shows of an order,
and put in from the draft where it now stands: so a batch sees what it has decided.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from ...core import rank
from ...core.job import Body, Job, Place, State
from ...core.jump import Jump
from ...core.kinds import PAUSE
from ...core.limits import DomainCounts, DomainKey
from .. import fairness
from ..contract import CountKey, JobFilter, Moments, Waiting, WaitingQuery
from . import keys as k
from .calm import Heads, Sight, scored
from .connection import PAGE, Words
from .draft import Stamped
from .fairness import RedisTurns
from .keys import member
from .names import RedisNames

# A listing looks at no more jobs at once; a place of no more than this is listed by its ids.
LISTED = 2_000
# So many of the first of an order are looked at for its first moment: those before may have been moved by us.
HEADS = 8
# What whoever asks for the moments will ask for next: he is about to claim.
CLAIMERS_READ = PAUSE
# How many queues are few.
ROSTER = 256

_PLACES = {
    State.RUNNING: Place.RUNNING,
    State.PAUSED: Place.PAUSED,
    State.FAILED: Place.DONE,
    State.FINISHED: Place.DONE,
    State.CANCELLED: Place.DONE,
}


class RedisReads(RedisNames):
    """A view of a store; see `ReadTxn` for what each verb promises."""

    # The clock is the server's.
    jump: Jump | None = None
    _heads: Heads | None = None
    # All queues that have READY jobs, if they were looked at and are few.
    roster: list[bytes] | None = None

    # Jobs by id

    def see(self, job_id: int, raw: bytes | None) -> Job | None:
        """A job as it came from the server, unless it was seen before."""
        if job_id not in self.seen.jobs:
            stamped = None if raw is None else Stamped(raw[: k.STAMP_BYTES], k.read_job(raw))
            self.seen.jobs[job_id] = stamped
        found = self.seen.jobs[job_id]
        return None if found is None else found.job

    def fetch(self, ids: Iterable[int]) -> None:
        """Have these jobs seen."""
        unseen = [id for id in dict.fromkeys(ids) if id not in self.seen.jobs and id not in self.draft.jobs]
        if unseen:
            (raws,) = self.ask([(b"HMGET", self.keys.jobs, *map(member, unseen))])
            for job_id, raw in zip(unseen, raws, strict=True):
                self.see(job_id, raw)

    def job_now(self, job_id: int) -> Job | None:
        """A job that was fetched, as it stands now."""
        if job_id in self.draft.jobs:
            return self.draft.jobs[job_id]
        found = self.seen.jobs[job_id]
        return None if found is None else found.job

    def load(self, ids: Collection[int]) -> dict[int, Job]:
        """The live jobs among these, and the parents of all of them."""
        self.fetch(ids)
        found = {id: job for id in ids if (job := self.job_now(id)) is not None}
        parents = {job.parent_id for job in found.values() if job.parent_id}
        self.fetch(parents)
        return found | {id: job for id in parents if (job := self.job_now(id)) is not None}

    def archived(self, ids: Collection[int]) -> dict[int, Job]:
        """The archived jobs among these."""
        own, seen = self.draft.archive, self.seen.archive
        if unseen := [id for id in dict.fromkeys(ids) if id not in own and id not in seen]:
            (raws,) = self.ask([(b"HMGET", self.keys.archive, *map(member, unseen))])
            for job_id, raw in zip(unseen, raws, strict=True):
                self.see_archived(job_id, raw)
        found = {id: self._archived_now(id) for id in ids}
        return {id: job for id, job in found.items() if job is not None}

    def see_archived(self, job_id: int, raw: bytes | None) -> Job | None:
        """An archived job as it came from the server, unless it was seen before."""
        if job_id not in self.seen.archive:
            stamped = None if raw is None else Stamped(raw[: k.STAMP_BYTES], k.read_job(raw))
            self.seen.archive[job_id] = stamped
        found = self.seen.archive[job_id]
        return None if found is None else found.job

    def _archived_now(self, job_id: int) -> Job | None:
        if job_id in self.draft.archive:
            return self.draft.archive[job_id]
        found = self.seen.archive[job_id]
        return None if found is None else found.job

    def bodies(self, ids: Collection[int], *, result: bool = False) -> dict[int, Body]:
        """The data of jobs, live or archived, or their results; what does not exist is left out."""
        found: dict[int, Body | None] = {
            id: self.draft.bodies[id, result] for id in ids if (id, result) in self.draft.bodies
        }
        raws: dict[int, bytes | None] = {}
        if not result:
            raws = {id: self.seen.data[id] for id in ids if id in self.seen.data and id not in found}
        if unread := [id for id in dict.fromkeys(ids) if id not in found and id not in raws]:
            (values,) = self.ask([(b"HMGET", self.keys.bodies(result=result), *map(member, unread))])
            raws |= dict(zip(unread, values, strict=True))
        large = [id for id, raw in raws.items() if raw == k.LARGE]
        whole = self.ask([(b"GET", self.keys.body(id, result=result)) for id in large])
        raws |= dict(zip(large, whole, strict=True))
        found |= {id: k.read_body(raw) for id, raw in raws.items() if raw is not None}
        return {id: found[id] for id in ids if found.get(id) is not None}  # type: ignore[misc]

    # Jobs in order

    def astray(self, job_id: int) -> None:
        """An order has a job whose record does not say so: nothing to somebody who only looks."""

    def row(
        self,
        orders: Sequence[bytes],
        words: Words,
        *,
        own: Sequence[bytes] = (),
        match: Callable[[Job], bool],
        by: Callable[[Job], tuple[int, ...]],
        limit: int,
        backwards: bool = False,
    ) -> list[Job]:
        """The first jobs of some orders that match, with what the batch itself has moved."""
        most = (*words, "LIMIT", 0, limit + len(self.draft.jobs))
        found: dict[int, Job] = {}
        for members, raws in self.ask([PAGE.words((order, self.keys.jobs), *most) for order in orders]):
            for name, raw in zip(members, raws, strict=True):
                job_id = int(name)
                if job_id not in self.draft.jobs:
                    if (job := self.see(job_id, raw)) is not None:
                        found[job_id] = job
                    if job is None or not match(job):
                        self.astray(job_id)
        found |= self.draft.standing(own or orders)
        return sorted(filter(match, found.values()), key=by, reverse=backwards)[: max(limit, 0)]

    def children(
        self, parent_id: int, *, place: Place | None = None, after: int = 0, limit: int
    ) -> list[Job]:
        """The live children of a job, by id, from the first above `after`. The parent stands still."""
        if not parent_id:
            return []
        self.fetch([parent_id])
        places = [*Place] if place is None else [place]
        return self.row(
            [self.keys.children(parent_id, one) for one in places],
            (b"(" + member(after), b"+", "BYLEX"),
            match=lambda job: job.parent_id == parent_id and job.place in places and job.id > after,
            by=_id,
            limit=limit,
        )

    def first(self, place: Place, up_to: int, limit: int) -> list[Job]:
        """The first jobs of a place, by (rank, id), whose rank is at most `up_to`."""
        orders = [self.keys.ready, self.keys.ready_mock] if place is Place.READY else [self.keys.rows[place]]
        return self.row(
            orders,
            (b"-inf", up_to, "BYSCORE"),
            match=lambda job: job.place is place and job.rank <= up_to,
            by=_spot,
            limit=limit,
        )

    def expiring(self, up_to: int, limit: int) -> list[Job]:
        """Jobs that have not started and whose `expires_at` is at most `up_to`, first ones first."""
        return self.row(
            [self.keys.expiring],
            (b"-inf", up_to, "BYSCORE"),
            match=lambda job: self.keys.spots(job).get(self.keys.expiring, up_to + 1) <= up_to,
            by=lambda job: (job.expires_at, job.id),
            limit=limit,
        )

    def lineup(self, key: DomainKey, task: str, place: Place, *, last: bool, limit: int) -> list[Job]:
        """The first jobs of a task of a domain in a place, by (rank, id), or the last, backwards."""
        line = [self.keys.line(key, task, place)]
        return self.row(
            line if self.seen.crowds.get(key, 1) else [],
            (b"+inf", b"-inf", "BYSCORE", "REV") if last else (b"-inf", b"+inf", "BYSCORE"),
            own=line,
            match=lambda job: (job.tenant, job.domain, job.task, job.place) == (*key, task, place),
            by=_spot,
            limit=limit,
            backwards=last,
        )

    def domain_counts(self, keys: Collection[DomainKey]) -> dict[DomainKey, DomainCounts]:
        """How many jobs of these domains stand READY, HELD and RUNNING, by task."""
        self.domains(keys)
        return {key: self._counts_of(key) for key in keys}

    def _counts_of(self, key: DomainKey) -> DomainCounts:
        places = (Place.READY, Place.HELD, Place.RUNNING)
        jobs = self.row(
            [self.keys.domain(key)] if self.seen.crowds.get(key, 1) else [],
            (b"-", b"+", "BYLEX"),
            own=[self.keys.domain(key)],
            match=lambda job: (job.tenant, job.domain) == key and job.place in places,
            by=_id,
            limit=k.ALL,
        )
        counts: DomainCounts = {}
        for job in jobs:
            counts[job.task, job.place] = counts.get((job.task, job.place), 0) + 1
        return counts

    # Listings

    def jobs(self, query: JobFilter, *, after: int, limit: int) -> list[Job]:
        """Jobs that match, by id, from the first above `after`."""
        own = (self.draft.archive if query.archived else self.draft.jobs).values()
        found = [job for job in own if job is not None and job.id > after and query.takes(job)]
        placed = self._of_place(query, after, limit)
        found += self._listed(query, after, limit) if placed is None else placed
        return sorted(found, key=_id)[: max(limit, 0)]

    def _listed(self, query: JobFilter, after: int, limit: int) -> list[Job]:
        keys = self.keys
        order, records = (keys.archive_ids, keys.archive) if query.archived else (keys.ids, keys.jobs)
        if query.domain is not None and query.tenant is not None and not query.archived:
            order = keys.domain((query.tenant, query.domain))
        moved = self.draft.archive if query.archived else self.draft.jobs
        found: list[Job] = []
        # As many as are asked for; more and more where few of them match.
        size = min(limit + len(moved), LISTED)
        while len(found) < limit:
            words = (b"(" + member(after), b"+", "BYLEX", "LIMIT", 0, size)
            members, raws = self.page(order, records, *words)
            for name, raw in zip(members, raws, strict=True):
                # Not kept in mind: a listing may be of millions, and nobody decides by one.
                if int(name) not in moved and raw is not None and query.takes(job := k.read_job(raw)):
                    found.append(job)
            if len(members) < size:
                break
            after, size = int(members[-1]), min(size * 2, LISTED)
        return found

    def _of_place(self, query: JobFilter, after: int, limit: int) -> list[Job] | None:
        """What matches in a place that is small; None: it is not, or no place was asked for."""
        place = query.place or (_PLACES.get(query.state) if query.state else None)
        if query.archived or place in (None, Place.READY, Place.HELD, Place.SCHEDULED):
            return None
        assert place is not None
        (members,) = self.ask([(b"ZRANGE", self.keys.rows[place], 0, LISTED)])
        if len(members) > LISTED:
            return None
        names = [id for id in sorted(map(int, members)) if id > after and id not in self.draft.jobs]
        found: list[Job] = []
        size = max(limit, 1)
        while names and len(found) < limit:
            page, names, size = names[:size], names[size:], size * 2
            (raws,) = self.ask([(b"HMGET", self.keys.jobs, *map(member, page))])
            jobs = (k.read_job(raw) for raw in raws if raw is not None)
            found += [job for job in jobs if query.takes(job)]
        return found

    def named(self, tenant: str, task: str, *, mock: bool) -> int | None:
        """The id of the first live job of that task, by (place, rank, id), as far as the counts know."""
        fields = [CountKey(tenant, task, place, state) for place in Place for state in State]
        (values,) = self.ask([(b"HMGET", self.keys.counts, *map(k.count_field, fields))])
        places = {field.place for field, value in zip(fields, values, strict=True) if value is not None}
        for place in sorted(places):
            order = (
                self.keys.queue(tenant, task, mock=mock) if place is Place.READY else self.keys.rows[place]
            )
            if (found := self._named_in(order, (tenant, task, mock, place))) is not None:
                return found
        return None

    def _named_in(self, order: bytes, named: tuple[str, str, bool, Place]) -> int | None:
        """The first of an order that is so named."""
        own = [job for job in self.draft.standing([order]).values() if _name(job) == named]
        skip = 0
        while True:
            words = (b"-inf", b"+inf", "BYSCORE", "LIMIT", skip, LISTED)
            members, raws = self.page(order, self.keys.jobs, *words)
            there = [k.read_job(raw) for raw in raws if raw is not None]
            same = (job for job in there if _name(job) == named and job.id not in self.draft.jobs)
            if (found := next(same, None)) is not None or len(members) < LISTED:
                jobs = own if found is None else [*own, found]
                return min(jobs, key=_spot).id if jobs else None
            skip += LISTED

    # Moments and turns

    def moments(self) -> Moments:
        """When something becomes true by itself."""
        keys = self.keys
        orders = (keys.rows[Place.SCHEDULED], keys.in_process_queue, keys.expiring, keys.domains_due)
        if self._heads is None:
            self._look(orders, HEADS)
        firsts = [self._first_of(order) for order in orders]
        if any(first == -1 for first in firsts):
            # All that was looked at has been moved by us: look further.
            self._look(orders, HEADS + len(self.draft.jobs) + len(self.draft.domains))
            firsts = [self._first_of(order) for order in orders]
        return Moments(*(None if first >= rank.LAST else first for first in firsts))

    def go_by(self, sight: Sight) -> None:
        """What was seen at once is what is known."""
        self._heads, self._looked_at, self.roster = dict(sight.heads), HEADS, sight.roster
        for kind, (version, found) in sight.kinds.items():
            if kind not in self.seen.kinds:
                self.see_kind(kind, version, found)

    def _look(self, orders: Sequence[bytes], count: int) -> None:
        words: list[Words] = [(b"ZRANGE", order, 0, count - 1, "WITHSCORES") for order in orders]
        eager = self._heads is None and CLAIMERS_READ not in self.seen.kinds
        more = [*self.kind_words(CLAIMERS_READ), (b"ZRANGE", self.keys.lanes, 0, ROSTER)] if eager else []
        replies = self.ask(words + more)
        if eager:
            self.see_kind(CLAIMERS_READ, *replies[-3:-1])
            self.roster = replies[-1] if len(replies[-1]) <= ROSTER else None
        self._heads, self._looked_at = {}, count
        for order, flat in zip(orders, replies, strict=False):
            self._heads[order] = scored(flat)

    _looked_at = 0

    def _first_of(self, order: bytes) -> int:
        """The first score of an order now; -1 if too little of it was looked at."""
        assert self._heads is not None
        heads = self._heads[order]
        if order == self.keys.domains_due:
            moved = {k.joined(*key) for key in self.draft.domains}
            scores = [domain.due_ms for domain in self.draft.domains.values() if domain is not None]
        else:
            moved = {name for _, name in heads if int(name) in self.draft.jobs}
            scores = self.draft.scores(order)
        own = min((score for score in scores if score), default=rank.LAST)
        theirs = next((score for score, name in heads if name not in moved), None)
        if theirs is None:
            return -1 if len(heads) == self._looked_at else own
        return min(own, theirs)

    def waiting(self, query: WaitingQuery) -> list[Waiting]:
        """Whose turn it is, before anything that this batch has decided."""
        return fairness.waiting(RedisTurns(self.ask, self.keys), query)


def _spot(job: Job) -> tuple[int, ...]:
    return job.rank, job.id


def _name(job: Job) -> tuple[str, str, bool, Place]:
    return job.tenant, job.task, job.mock, job.place


def _id(job: Job) -> tuple[int, ...]:
    return (job.id,)
