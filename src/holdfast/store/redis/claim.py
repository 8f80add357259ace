"""How a claim takes its jobs out of READY, before their records are written (docs/decisions/0009).

The (tenant, task) pairs with READY jobs are known, and the query is a filter over them. Only if very many
match, the first READY jobs are read to find their pairs. A claim without a filter takes from the sorted set
of all READY jobs.

Jobs that the batch itself has made READY are claimed too; those that it has moved away are not.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol

from ...core import rank
from ...core.job import Job, Place
from ..contract import ClaimQuery
from .connection import CLAIM, GIVE_BACK, Command, RedisServer
from .keys import Keys, Pair, member, pair_of, read_jobs
from .reads import ALL, FEW_PAIRS
from .rows import KnownVersion, ReadSet, VersionChanged, Written

# Up to how many pairs with READY jobs are read and filtered.
MANY_PAIRS = 4_096
# How many READY jobs are read at once to find their pairs.
PAGE_JOBS = 2_000
# If the record of a taken job is not written after this time, upkeep puts the job back.
TAKEN_MS = 30_000

# A queue, the sorted set of all READY jobs that it is part of, and the maximum number of jobs.
Source = tuple[bytes, bytes, int]


class Claiming(Protocol):
    """The interface of the batch that claims use."""

    keys: Keys
    known: KnownVersion
    seen: ReadSet
    written: Written
    now_ms: int
    # Ids taken by this batch; at its end each is put where its record belongs.
    taken: set[int]
    # The deadline of ids that a claim may have taken: its reply has not come.
    unanswered_ms: int
    ready_pairs: list[Pair] | None

    def ask(self, commands: list[Command]) -> list[Any]:
        """Replies to commands."""

    def page(self, order: bytes, records: bytes, *words: Any) -> tuple[list[bytes], list[bytes | None]]:
        """A part of a sorted set, with the records of its members."""

    def note_jobs(self, ids: list[int], raws: list[bytes | None]) -> None:
        """Note jobs as they came from the server."""


def take(batch: Claiming, query: ClaimQuery) -> list[Job]:
    """Take the first jobs that match, in order, out of READY, so that no other batch finds them."""
    if query.limit < 1:
        return []
    if query.picks:
        query = query._replace(mock=False)
    own = _own(batch, query) if batch.written.jobs or batch.taken else []
    sources = _sources(batch, query)
    taken = _taken(batch, query, sources) if sources else []
    return _chosen([*own, *taken], query) if own else taken


def _own(batch: Claiming, query: ClaimQuery) -> list[Job]:
    """Matching jobs that the batch has made READY, or has taken before and not used."""
    written, seen = batch.written.jobs, batch.seen.jobs
    jobs = [*written.values(), *[seen[id] for id in batch.taken if id not in written]]
    ready = [job for job in jobs if job is not None and job.place is Place.READY]
    picked = {(tenant, task) for tenant, task, _ in query.picks}
    return [job for job in ready if query.matches(job) and (not picked or (job.tenant, job.task) in picked)]


def _chosen(jobs: list[Job], query: ClaimQuery) -> list[Job]:
    """The first of these jobs by (rank, id), within the numbers of the picks."""
    most = {(tenant, task): count for tenant, task, count in query.picks}
    chosen: list[Job] = []
    of: Counter[Pair] = Counter()
    for job in sorted(jobs, key=lambda job: (job.rank, job.id)):
        pair = (job.tenant, job.task)
        if len(chosen) < query.limit and (not most or of[pair] < most[pair]):
            of[pair] += 1
            chosen.append(job)
    return chosen


def _taken(batch: Claiming, query: ClaimQuery, sources: list[Source]) -> list[Job]:
    """Take jobs from the server."""
    keys, written = batch.keys, batch.written.jobs
    names = [keys.in_process_queue, keys.jobs, keys.version]
    positions = {key: at for at, key in enumerate(names, start=1)}
    plan: list[Any] = []
    for order, everything, most in sources:
        for key in (order, everything):
            if key not in positions:
                positions[key] = len(positions) + 1
        plan += (positions[order], positions[everything], most)
    passed = [b"%019d" % id for id in written] if written else []
    batch.unanswered_ms = deadline_ms = batch.now_ms + TAKEN_MS
    low, high = rank.range_of(query.priority)
    head = (deadline_ms, query.limit, low, high, batch.known.version, len(passed), *passed)
    (reply,) = batch.ask([CLAIM.command([*positions], *head, *plan)])
    batch.unanswered_ms = 0
    if not reply:
        raise VersionChanged
    found, raws = reply
    if not found:
        return []
    ids = [*map(int, found)]
    batch.taken |= {*ids}
    batch.note_jobs(ids, raws)
    seen = batch.seen.jobs
    return [job for id in ids if (job := seen[id]) is not None]


def _sources(batch: Claiming, query: ClaimQuery) -> list[Source]:
    """The queues to take jobs from."""
    keys, kinds = batch.keys, (False, True) if query.mock else (False,)
    if query.picks:
        picks = [(t, task, most) for t, task, most in query.picks if most > 0 and query.wants(t, task)]
        return [(keys.queue(tenant, task), keys.ready, most) for tenant, task, most in picks]
    if batch.ready_pairs == []:
        return []
    asked = (query.tenant, query.tenants, query.tasks, query.glob)
    if asked == (None, None, None, None) and not query.skipped:
        everything = [keys.all_ready(mock=mock) for mock in kinds]
        return [(order, order, ALL) for order in everything]
    pairs = _pairs(batch, query)
    return [
        (keys.queue(*pair, mock=mock), keys.all_ready(mock=mock), ALL) for mock in kinds for pair in pairs
    ]


def _pairs(batch: Claiming, query: ClaimQuery) -> list[Pair]:
    """The pairs of the first jobs that match."""
    tenants = query.tenants if query.tenant is None else (query.tenant,)
    if tenants is not None and query.tasks is not None and len(tenants) * len(query.tasks) <= FEW_PAIRS:
        known = [(tenant, task) for tenant in dict.fromkeys(tenants) for task in dict.fromkeys(query.tasks)]
    elif batch.ready_pairs is not None:
        known = batch.ready_pairs
    else:
        known = _known_pairs(batch, tenants)
    wanted = [pair for pair in known if query.wants(*pair)]
    # If very many pairs match, matching jobs are soon found by rank.
    if len(known) > MANY_PAIRS or len(wanted) > FEW_PAIRS:
        return _first_pairs(batch, query)
    return wanted


def _known_pairs(batch: Claiming, tenants: tuple[str, ...] | None) -> list[Pair]:
    """The pairs with READY jobs, of some tenants or of all; if more than `MANY_PAIRS`, not all of them."""
    keys = batch.keys
    if tenants is None or len(tenants) > FEW_PAIRS:
        (names,) = batch.ask([(b"ZRANGE", keys.pairs, 0, MANY_PAIRS)])
        return [*map(pair_of, names)]
    whose = [*dict.fromkeys(tenants)]
    spans = [(b"[%s\0" % tenant.encode(), b"(%s\1" % tenant.encode()) for tenant in whose]
    found = batch.ask([(b"ZRANGEBYLEX", keys.pairs, *span, b"LIMIT", 0, MANY_PAIRS) for span in spans])
    return [pair_of(name) for names in found for name in names]


def _first_pairs(batch: Claiming, query: ClaimQuery) -> list[Pair]:
    """The pairs of the first READY jobs that match, read by rank until there are enough."""
    keys, (low, high) = batch.keys, rank.range_of(query.priority)
    # Jobs that the batch has moved may come before the others.
    wanted = query.limit + len(batch.written.jobs)
    pairs: dict[Pair, None] = {}
    for mock in (False, True) if query.mock else (False,):
        count = skip = 0
        while count < wanted:
            words = (low, high, "BYSCORE", "LIMIT", skip, PAGE_JOBS)
            members, raws = batch.page(keys.all_ready(mock=mock), keys.jobs, *words)
            # Not noted in `seen`: jobs that do not match may change.
            jobs = read_jobs([raw for raw in raws if raw is not None])
            matching = [(job.tenant, job.task) for job in jobs if query.wants(job.tenant, job.task)]
            pairs |= dict.fromkeys(matching[: wanted - count])
            count, skip = count + len(matching), skip + PAGE_JOBS
            if len(members) < PAGE_JOBS:
                break
    return [*pairs]


def give_back(
    server: RedisServer,
    keys: Keys,
    layout: bytes,
    jobs: Mapping[int, Job | None],
    stamps: Mapping[int, bytes],
) -> None:
    """Put taken jobs back where their records belong, unless they or the layout were written since."""
    named = (keys.in_process_queue, keys.jobs, keys.version)
    positions = {key: at for at, key in enumerate(named, start=1)}
    words: list[Any] = [layout]
    for job_id, job in jobs.items():
        scores = keys.scores(job) if job is not None else {}
        words += (member(job_id), stamps.get(job_id, b""), len(scores))
        for key, score in scores.items():
            words += (positions.setdefault(key, len(positions) + 1), score)
    server.call(*GIVE_BACK.command([*positions], *words))
