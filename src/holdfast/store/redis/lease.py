"""A claim of plain jobs in one message: what `lua/lease.lua` is asked, and what it has replied."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ...core import rank
from ...core.bounds import CLAIM_BYTES
from ...core.damage import UNREADABLE, salvage
from ...core.job import MISSING, Job, Place
from ..contract import ClaimQuery, Leased, Pick
from .connection import LEASE, Command, RedisServer
from .keys import LARGE, Keys, Pair, data_of, pair_name, read_body, read_job, read_jobs, record_of

# Up to how many pairs one message names; a claim of more is for a batch.
MOST_PAIRS = 64


def lease_command(
    keys: Keys, query: ClaimQuery, known: Sequence[Pair], version: bytes, stamp: bytes
) -> Command | None:
    """The command that leases jobs; None: it is for a batch. `known`: the pairs that had READY jobs last."""
    picks, is_closed = _picks(query, known)
    if query.mock or len(picks) > MOST_PAIRS:
        return None
    names: list[bytes] = [*keys.of_every_lease]
    words: list[Any] = []
    for tenant, task, most in picks:
        if most > 0:
            names.append(keys.queue(tenant, task))
        words += (pair_name((tenant, task)), len(names) if most > 0 else b"0", most)
    new = b',"owner":%d,"lease_until":%d,"started_at":%d'
    return LEASE.command(
        names,
        version,
        stamp,
        query.now_ms,
        query.limit,
        *rank.range_of(query.priority),
        query.lease_ms,
        rank.lease(query.lease_until),
        new % (query.owner, query.lease_until, query.started_at),
        CLAIM_BYTES,
        b"" if is_closed else b"1",
        *words,
    )


def _picks(query: ClaimQuery, known: Sequence[Pair]) -> tuple[Sequence[Pick], bool]:
    """The pairs to claim from, and whether no others match. Where others may match, all known ones."""
    if query.picks:
        return [pick for pick in query.picks if query.wants(*pick[:2])], True
    tenants = query.tenants if query.tenant is None else (query.tenant,)
    if tenants is None or query.tasks is None or len(tenants) * len(query.tasks) > MOST_PAIRS:
        return [(*pair, query.limit if query.wants(*pair) else 0) for pair in known], False
    pairs = [(tenant, task) for tenant in dict.fromkeys(tenants) for task in dict.fromkeys(query.tasks)]
    return [(*pair, query.limit) for pair in pairs if query.wants(*pair)], True


def leased_of(reply: Sequence[Any]) -> list[Leased]:
    """The jobs that the script has leased, as they were before, with their data."""
    ids, values, large = reply
    later = iter(large)
    bodies = [next(later) if (data := data_of(raw)) == LARGE else data for raw in values]
    try:
        jobs: Sequence[Job | None] = read_jobs(values)
    except UNREADABLE:
        jobs = [_readable(raw) for raw in values]
    # The engine releases a job without data, and has a batch decide about it.
    return [
        (job, read_body(body) if body else MISSING) if job is not None else (_damaged(int(id), raw), MISSING)
        for id, raw, job, body in zip(ids, values, jobs, bodies, strict=True)
    ]


def _readable(raw: bytes) -> Job | None:
    try:
        return read_job(raw)
    except UNREADABLE:
        return None


def _damaged(job_id: int, raw: bytes) -> Job:
    return salvage(job_id, record_of(raw), place=Place.READY)


def find_leased(server: RedisServer, keys: Keys, query: ClaimQuery, stamp: bytes) -> list[Leased]:
    """What was leased with this stamp, if the reply was lost. When each job had run before is lost too."""
    end = rank.lease(query.lease_until)
    ids = server.call(b"ZRANGE", keys.in_process_queue, end, end, b"BYSCORE")
    if not ids:
        return []
    values = server.call(b"HMGET", keys.jobs, *ids)
    mine = [(id, raw) for id, raw in zip(ids, values, strict=True) if raw and raw.startswith(stamp)]
    large = server.call(b"HMGET", keys.data, *[id for id, _ in mine]) if mine else []
    leased = leased_of(
        (
            [id for id, _ in mine],
            [raw for _, raw in mine],
            [body for body, (_, raw) in zip(large, mine, strict=True) if data_of(raw) == LARGE],
        )
    )
    return sorted([(_before(job), body) for job, body in leased], key=lambda one: (one[0].rank, one[0].id))


def _before(job: Job) -> Job:
    """A leased job as it was before."""
    return replace(
        job,
        place=Place.READY,
        rank=rank.ready(job.priority, job.run_at),
        version=job.version - 1,
        claim=job.claim - 1,
        owner=0,
        lease_until=0,
        started_at=0,
    )
