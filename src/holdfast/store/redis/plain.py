"""Plain commands in one message: an add of a READY job (`lua/add.lua`), and a claim (`lua/lease.lua`).

The words of an add are packed from parts that are made once per task.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import rank
from ...core.bounds import CLAIM_BYTES
from ...core.damage import UNREADABLE, salvage
from ...core.job import MISSING, Job, Place
from ..contract import ClaimQuery, CountKey, Leased, NewJobs, Pick
from .connection import ADD, LEASE, Command, Packed, RedisServer, packed
from .keys import (
    INLINE_BYTES,
    LARGE,
    REMEMBERED,
    STAMP_BYTES,
    Keys,
    Pair,
    data_of,
    encode_job,
    pair_name,
    plain_lease,
    read_body,
    read_job,
    read_jobs,
    record_of,
)

_FIRST = (b"EVALSHA", ADD.sha)


def is_single(group: NewJobs) -> bool:
    """Whether the script can add this new job."""
    job = group.template
    return job.place is Place.READY and not job.mock and not job.expires_at and job.size < INLINE_BYTES


class Adding:
    """Makes the commands of one store."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        # Everything before the id, by tenant, task, version and message.
        self._heads: dict[tuple[str, str, bytes, bytes], bytes] = {}

    def command(
        self, group: NewJobs, counts: Mapping[CountKey, int], version: bytes, message: bytes, stamp: bytes
    ) -> Packed:
        """The command that adds a job."""
        job, data = group.template, group.rows[0][1]
        about = (job.tenant, job.task, version, message)
        head = self._heads.get(about)
        if head is None:
            head = self._head(*about, counts)
        body = b"b" + data if isinstance(data, bytes) else b"s" + data.encode()
        record, plain = encode_job(job), plain_lease(job)
        size = STAMP_BYTES + len(record) + 1 + len(plain) + len(body)
        command = Packed(_FIRST)
        command.data = b"%s$19\r\n%019d\r\n$16\r\n%016d\r\n$%d\r\n%s%s\0%s%s\r\n" % (
            *(head, job.id, job.rank, size, stamp, record, plain, body),
        )
        return command

    def _head(
        self, tenant: str, task: str, version: bytes, message: bytes, counts: Mapping[CountKey, int]
    ) -> bytes:
        if len(self._heads) >= REMEMBERED:
            self._heads = {}
        keys = self._keys
        (count,) = counts
        named = (*keys.of_every_add, keys.queue(tenant, task))
        # Of which three words are still to come: the id, the rank and the value.
        words = ADD.command(named, version, keys.count_field(count), message, b"", b"", b"")
        head = packed(words).removesuffix(b"$0\r\n\r\n" * 3)
        self._heads[tenant, task, version, message] = head
        return head


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
