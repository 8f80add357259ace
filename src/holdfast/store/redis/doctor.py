"""What `holdfast doctor` shows of a Redis store, and how unreadable records are repaired.

The report has problems and their fixes, version, settings and sizes. Records of jobs that cannot be decoded
become jobs marked as damaged.

A job has no columns besides its record; its place, and the tenant and task of a READY job, are found from the
sorted sets that contain its id.
"""

from collections.abc import Iterator
from typing import Any

from ...core.damage import UNREADABLE, salvage
from ...core.errors import StoreError
from ...core.job import Place, State
from ..common.clock import MEGABYTE, clock_complaints
from ..contract import CountKey, StoreReport
from .claim import give_back
from .connection import REPAIR, RedisServer
from .keys import STAMP_BYTES, Keys, Pair, data_of, head_of, member, pair_of, read_job, record_of
from .open import ServerInfo, check_server, look
from .url import RedisAddress

# A smaller part of free memory is reported.
LEFT = 0.1


def report(connections: RedisServer, keys: Keys, address: RedisAddress, *, own: bool) -> StoreReport:
    """Facts and problems of a store. `own`: the time is the server's."""
    server = look(connections, keys)
    live, archived = connections.call_many([(b"HLEN", keys.jobs), (b"HLEN", keys.archive)])
    facts = {
        "store": "redis cluster" if address.cluster else "redis",
        "address": address.shown,
        "server": server.named,
        "memory": f"{server.used_memory / MEGABYTE:,.1f} MB",
        "live jobs": f"{live:,}",
        "archived": f"{archived:,}",
        "durability asked for": address.durability or "none",
        "log": kept(server),
        "replicas": str(server.replicas),
    }
    return StoreReport(facts, _complaints(server, address, own=own))


def _complaints(server: ServerInfo, address: RedisAddress, *, own: bool) -> list[str]:
    where, told = address.shown, []
    try:
        check_server(server, address)
    except StoreError as error:
        told.append(str(error))
    if not address.durability and not server.aof:
        told.append(
            f"{where} keeps no log (appendonly no): what it accepted since it was last saved is lost when it "
            "ends; CONFIG SET appendonly yes, or say durability=memory if that is meant"
        )
    if server.maxmemory and server.used_memory > (1 - LEFT) * server.maxmemory:
        told.append(
            f"{where} uses {server.used_memory / MEGABYTE:,.0f} of {server.maxmemory / MEGABYTE:,.0f} MB: "
            "when it is full nothing is accepted any more; raise maxmemory, or purge the archive"
        )
    if own:
        told += clock_complaints(server.now_ms)
    return told


def kept(server: ServerInfo) -> str:
    """How the server persists data."""
    if not server.aof:
        return "none" if not server.saves else f"none; saved as a whole: {server.saves}"
    return f"appendfsync {server.appendfsync or 'unknown: CONFIG GET is not allowed'}"


# How many records are read at once.
PAGE_ROWS = 1_000


def repair_records(server: RedisServer, keys: Keys, layout: bytes) -> int:
    """Rewrite unreadable records of jobs, unless the layout has changed; return their number."""
    count = 0
    for table, known in ((keys.jobs, _standing), (keys.archive, _ended)):
        for job_id, raw in list(_unreadable(server, table)):
            job = salvage(job_id, record_of(raw), **known(server, keys, job_id))
            stamp = raw[:STAMP_BYTES].ljust(STAMP_BYTES, b"0")
            values = (member(job_id), raw, head_of(stamp, job) + data_of(raw), layout)
            words = REPAIR.command([table, keys.version], *values)
            if server.call(*words):
                count += 1
                if job.place is Place.READY:
                    # A claim that could not read the record may have taken the job out of READY.
                    give_back(server, keys, layout, {job_id: job}, {job_id: stamp})
    return count


def _unreadable(server: RedisServer, table: bytes) -> Iterator[tuple[int, bytes]]:
    cursor: Any = 0
    while True:
        cursor, found = server.call(b"HSCAN", table, cursor, b"COUNT", PAGE_ROWS)
        for name, raw in zip(found[::2], found[1::2], strict=True):
            try:
                is_sound = read_job(raw).id == int(name)
            except UNREADABLE:
                is_sound = False
            if not is_sound:
                yield int(name), raw
        if int(cursor) == 0:
            return


def _standing(server: RedisServer, keys: Keys, job_id: int) -> dict[str, Any]:
    """The place, tenant and task of a live job, as far as the sorted sets show."""
    orders = [(place, order, False) for place, order in keys.places.items()]
    orders += [(Place.READY, keys.ready_mock, True)]
    scores = server.call_many([(b"ZSCORE", order, member(job_id)) for _, order, _ in orders])
    for (place, _, mock), score in zip(orders, scores, strict=True):
        if score is not None:
            rank = int(float(score))
            if place is Place.READY:
                return {"place": place, "rank": rank, "mock": mock} | _whose(server, keys, job_id, mock=mock)
            if place is Place.RUNNING:
                lost = _taken(server, keys)
                return lost or {"place": place, "rank": rank, "lease_until": rank}
            return {"place": place, "rank": rank}
    return _ended(server, keys, job_id)


def _whose(server: RedisServer, keys: Keys, job_id: int, *, mock: bool) -> dict[str, Any]:
    """The tenant and task whose queue contains a READY job."""
    pairs = _pairs(server, keys)
    queues = [(b"ZSCORE", keys.queue(*pair, mock=mock), member(job_id)) for pair in pairs]
    for (tenant, task), score in zip(pairs, server.call_many(queues) if pairs else [], strict=True):
        if score is not None:
            return {"tenant": tenant, "task": task}
    return {}


def _taken(server: RedisServer, keys: Keys) -> dict[str, Any]:
    """The tenant and task whose queue has fewer jobs than are counted as READY: a claim has taken the job."""
    pairs = _pairs(server, keys)
    counted = [CountKey(*pair, Place.READY, State.QUEUED) for pair in pairs]
    asked = [(b"HGET", keys.counts, keys.count_field(key)) for key in counted]
    sizes = [(b"ZCARD", keys.queue(*pair)) for pair in pairs]
    found = server.call_many([*asked, *sizes]) if pairs else []
    for (tenant, task), count, size in zip(pairs, found[: len(pairs)], found[len(pairs) :], strict=True):
        if int(count or 0) > int(size):
            return {"place": Place.READY, "tenant": tenant, "task": task}
    return {}


def _pairs(server: RedisServer, keys: Keys) -> list[Pair]:
    return [pair_of(name) for name in server.call(b"ZRANGE", keys.pairs, 0, -1)]


def _ended(_server: RedisServer, _keys: Keys, _job_id: int) -> dict[str, Any]:
    return {"place": Place.DONE, "ended": State.FAILED}
