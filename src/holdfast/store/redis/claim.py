"""How a claim takes its jobs: out of READY at once, before their records are written (docs/decisions/0009).

Where one or a few worker queues are asked for, the script takes the first of them by rank; where all are,
those of the order of all. Only where there are very many is the order of all gone through, page by page.

What the batch itself has put into READY is claimed with the rest, and what it has moved away is not.
"""

from collections import Counter
from typing import Any, Protocol

from ...core import rank
from ...core.bounds import MAX_TIME_MS
from ...core.damage import UNREADABLE
from ...core.glob import matches
from ...core.job import Job, Place
from ..contract import ClaimQuery, Pick
from .connection import CLAIM, PAGE, TAKE, Words
from .draft import Draft, Seen
from .keys import ALL, Keys, member, read_job

# Beyond this many queues a claim goes through all READY jobs instead.
MOST_PAIRS = 256
# Where jobs are looked at one by one, so many at once.
PAGE_JOBS = 2_000
# Taken, and its record not written by then: put back by whoever looks.
TAKEN_MS = 30_000

Pair = tuple[str, str]
# A queue, whether it is of mocked jobs, and how many of it at most.
Source = tuple[bytes, bool, int]


class Batch(Protocol):
    """What is needed of the batch."""

    keys: Keys
    seen: Seen
    draft: Draft
    now_ms: int
    # Taken by this batch: each is put where its record says in the end.
    taken: set[int]
    # The last turn that anybody had, if that is known.
    last_turn: int | None
    # All queues that have READY jobs, if that is known.
    roster: list[bytes] | None

    def ask(self, commands: list[Words]) -> list[Any]:
        """Replies to commands."""

    def see(self, job_id: int, raw: bytes | None) -> Job | None:
        """A job as it came from the server."""


class Taker:
    """Takes jobs for one query."""

    def __init__(self, batch: Batch, query: ClaimQuery) -> None:
        self._batch, self._query = batch, query._replace(mock=False) if query.picks else query
        self._low, self._high = _ranks(query.priority)
        # How many of each pair; nothing: as many as there are.
        self._most: dict[Pair, int] = {(tenant, task): most for tenant, task, most in query.picks}

    def take(self) -> list[Job]:
        """The first jobs that match, in order, as they stand; they are no longer READY for others."""
        limit = self._query.limit
        if limit < 1:
            return []
        found = self._spare()
        self._gather(found, limit)
        chosen: list[Job] = []
        of: Counter[Pair] = Counter()
        for job in sorted(found.values(), key=lambda job: (job.rank, job.id)):
            pair = (job.tenant, job.task)
            if len(chosen) < limit and (not self._most or of[pair] < self._most.get(pair, 0)):
                of[pair] += 1
                chosen.append(job)
        return chosen

    def _spare(self) -> dict[int, Job]:
        """What this batch has put into READY, or has taken before and not used."""
        draft, seen, keys = self._batch.draft, self._batch.seen.jobs, self._batch.keys
        ready = draft.standing((keys.ready, keys.ready_mock))
        found = {id: job for id, job in ready.items() if self._takes(job)}
        for job_id in self._batch.taken - draft.jobs.keys():
            if (stamped := seen[job_id]) is not None and self._takes(stamped.job):
                found[job_id] = stamped.job
        return found

    def _takes(self, job: Job) -> bool:
        asked = not self._most or (job.tenant, job.task) in self._most
        return job.place is Place.READY and asked and self._query.takes(job)

    def _gather(self, found: dict[int, Job], limit: int) -> None:
        """Take from the server as many as are wanted, those that we have moved ourselves not counted."""
        sources = self._sources()
        if sources is None:
            self._scan(found, limit)
            return
        wanted = limit
        while sources and wanted > 0:
            new, more = self._claimed(sources, wanted)
            mine = {job.id: job for job in new if job.id not in self._batch.draft.jobs and self._takes(job)}
            found |= mine
            wanted -= len(mine)
            if self._most:
                got = Counter(self._batch.keys.queue(job.tenant, job.task) for job in mine.values())
                left = [(order, mock, most - got[order]) for order, mock, most in sources]
                sources = [source for source in left if source[2] > 0]
            if not new or (len(mine) == len(new) and (self._most or not more)):
                break

    def _claimed(self, sources: list[Source], limit: int) -> tuple[list[Job], bool]:
        keys = self._batch.keys
        orders, places = self._orders()
        for order, _, _ in sources:
            places.setdefault(order, len(places) + 1)
        plan = [
            word
            for order, mock, most in sources
            for word in (places[order], places[keys.everyone(mock=mock)], min(most, limit))
        ]
        until_ms = self._batch.now_ms + TAKEN_MS
        # Those that we have moved ourselves may stand before the others.
        ranks = (self._low, self._high, len(self._batch.draft.jobs))
        words = CLAIM.words([*orders, *list(places)[len(orders) :]], until_ms, limit, *ranks, *plan)
        return self._taken(*self._batch.ask([words]))

    def _orders(self) -> tuple[list[bytes], dict[bytes, int]]:
        """The keys that the scripts always have, and their places."""
        keys = self._batch.keys
        always = [keys.in_process_queue, keys.jobs, keys.data, keys.turn_tenants, keys.rest_tenants]
        always += [keys.ready, keys.ready_mock]
        return always, {key: at for at, key in enumerate(always, start=1)}

    def _taken(self, reply: Any) -> tuple[list[Job], bool]:
        names, raws, bodies, last, more = reply
        batch, jobs = self._batch, []
        batch.last_turn = max(batch.last_turn or 0, int(last))
        damage: Exception | None = None
        for name, raw, data in zip(names, raws, bodies, strict=True):
            job_id = int(name)
            batch.taken.add(job_id)
            try:
                job = batch.see(job_id, raw)
            except UNREADABLE as error:
                # Told when all are seen: what was seen can be given back.
                damage = error
                continue
            if data is not None:
                batch.seen.data.setdefault(job_id, data)
            if job is not None:
                jobs.append(job)
        if damage is not None:
            raise damage
        return jobs, bool(more)

    def _scan(self, found: dict[int, Job], limit: int) -> None:
        """Go through all READY jobs, and take those that match."""
        batch, keys, skip = self._batch, self._batch.keys, 0
        lists = [keys.ready, keys.ready_mock] if self._query.mock else [keys.ready]
        while limit > 0:
            words = (self._low, self._high, "BYSCORE", "LIMIT", skip, PAGE_JOBS)
            rows = batch.ask([PAGE.words((order, keys.jobs), *words) for order in lists])
            # Not `see`: what is only passed by need not stand still.
            jobs = [
                read_job(raw)
                for members, raws in rows
                for name, raw in zip(members, raws, strict=True)
                if raw is not None and int(name) not in batch.draft.jobs
            ]
            fit = sorted((job for job in jobs if self._takes(job)), key=lambda job: (job.rank, job.id))
            new = self._chosen(fit[:limit], limit)
            found |= {job.id: job for job in new}
            limit -= len(new)
            if all(len(members) < PAGE_JOBS for members, _ in rows):
                break
            skip += PAGE_JOBS - len(new)

    def _chosen(self, jobs: list[Job], limit: int) -> list[Job]:
        if not jobs:
            return []
        keys = self._batch.keys
        _, places = self._orders()
        plan: list[Any] = []
        for job in jobs:
            queue = keys.queue(job.tenant, job.task, mock=job.mock)
            place = places.setdefault(queue, len(places) + 1)
            plan += (member(job.id), place, places[keys.everyone(mock=job.mock)])
        words = TAKE.words(list(places), self._batch.now_ms + TAKEN_MS, limit, *plan)
        jobs, _ = self._taken(*self._batch.ask([words]))
        return [job for job in jobs if self._takes(job)]

    def _sources(self) -> list[Source] | None:
        """Where to take from; None: there are too many queues to go by."""
        query, keys = self._query, self._batch.keys
        if self._batch.roster == []:
            return []
        plain = query.tenant is None and query.tenants is None and query.tasks is None and query.glob is None
        if plain and not query.passing and not query.picks:
            kinds = (False, True) if query.mock else (False,)
            return [(keys.everyone(mock=mock), mock, ALL) for mock in kinds]
        pairs = self._picked(query.picks) if query.picks else self._pairs()
        if pairs is None:
            return None
        sources = [(keys.queue(*pair), False, self._most.get(pair, ALL)) for pair in pairs]
        if query.mock:
            sources += [(keys.queue(*pair, mock=True), True, ALL) for pair in pairs]
        return sources

    def _picked(self, picks: tuple[Pick, ...]) -> list[Pair]:
        return [(t, task) for t, task, most in picks if most > 0 and self._is_asked(t, task)]

    def _is_asked(self, tenant: str, task: str) -> bool:
        glob = self._query.glob
        return self._query.is_asked(tenant, task) and (glob is None or matches(glob, task))

    def _pairs(self) -> list[Pair] | None:
        """The pairs that may have matching jobs; None: too many to go by."""
        query = self._query
        tenants = self._tenants()
        if tenants is not None and query.tasks is not None:
            if len(tenants) > 1 and len(tenants) * len(query.tasks) > MOST_PAIRS:
                return None
            pairs = [(tenant, task) for tenant in tenants for task in dict.fromkeys(query.tasks)]
        elif (known := self._roster(tenants)) is None:
            return None
        else:
            pairs = known
        return [pair for pair in pairs if self._is_asked(*pair)]

    def _tenants(self) -> list[str] | None:
        """The tenants that are asked for; None: any."""
        query = self._query
        if query.tenant is not None:
            return [query.tenant] if query.tenants is None or query.tenant in query.tenants else []
        if query.tenants is not None:
            return list(dict.fromkeys(query.tenants))
        if query.tasks is None or self._batch.roster is not None:
            return None
        (names,) = self._batch.ask([(b"ZRANGE", self._batch.keys.tenants, 0, MOST_PAIRS)])
        return [name.decode() for name in names]

    def _roster(self, tenants: list[str] | None) -> list[Pair] | None:
        """The pairs that have READY jobs; None: too many."""
        if (known := self._batch.roster) is not None:
            pairs = [pair_of(name) for name in known]
            return [pair for pair in pairs if tenants is None or pair[0] in tenants]
        spans = [(b"-", b"+")] if tenants is None else [_span(tenant) for tenant in tenants[:MOST_PAIRS]]
        limit = ("LIMIT", 0, MOST_PAIRS + 1)
        rows = self._batch.ask([(b"ZRANGEBYLEX", self._batch.keys.lanes, *span, *limit) for span in spans])
        names = [name for row in rows for name in row]
        if len(names) > MOST_PAIRS or len(tenants or ()) > MOST_PAIRS:
            return None
        return [pair_of(name) for name in names]


def pair_of(name: bytes) -> Pair:
    """A tenant's task from the name of its lane."""
    tenant, _, task = name.decode().partition("\0")
    return tenant, task


def _span(tenant: str) -> tuple[bytes, bytes]:
    return b"[" + tenant.encode() + b"\0", b"(" + tenant.encode() + b"\1"


def _ranks(priority: int | None) -> tuple[int, int]:
    # A READY rank begins with the priority, so one priority is a range of ranks.
    if priority is None:
        return 0, rank.LAST
    return rank.ready(priority, 0), rank.ready(priority, MAX_TIME_MS)
