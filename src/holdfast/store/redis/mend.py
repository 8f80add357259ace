"""Mending a Redis store: jobs whose records cannot be read any more become jobs that say so.

All that is known of a job there is in its record; where it stands, and whose it is while it is READY, is told
by the orders that have it.
"""

from collections.abc import Iterator
from typing import Any

from ...core.damage import UNREADABLE, salvage
from ...core.job import Job, Place, State
from ..contract import CountKey
from . import keys as k
from .claim import pair_of
from .connection import GIVE_BACK, MEND, Link
from .keys import Keys, member

# So many records are asked for at once.
PAGE_ROWS = 1_000


def mend(link: Link, keys: Keys) -> int:
    """Rewrite the records of jobs that cannot be read; how many."""
    count = 0
    for table, known in ((keys.jobs, _standing), (keys.archive, _ended)):
        for job_id, raw in list(_unreadable(link, table)):
            job = salvage(job_id, raw[k.STAMP_BYTES :], **known(link, keys, job_id))
            stamp = raw[: k.STAMP_BYTES].ljust(k.STAMP_BYTES, b"0")
            words = MEND.words([table], member(job_id), raw, k.write_job(stamp, job))
            if link.call(*words):
                count += 1
                if job.place is Place.READY:
                    _give_back(link, keys, job, stamp)
    return count


def _give_back(link: Link, keys: Keys, job: Job, stamp: bytes) -> None:
    """Put a READY job back into its orders, if a claim that could not read its record had taken it."""
    spots = keys.spots(job)
    plan = [word for at, rank in enumerate(spots.values(), start=3) for word in (at, rank)]
    orders = [keys.in_process_queue, keys.jobs, *spots]
    link.call(*GIVE_BACK.words(orders, member(job.id), stamp, len(spots), *plan))


def _unreadable(link: Link, table: bytes) -> Iterator[tuple[int, bytes]]:
    cursor: Any = 0
    while True:
        cursor, found = link.call(b"HSCAN", table, cursor, b"COUNT", PAGE_ROWS)
        pairs = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        for name, raw in pairs:
            try:
                is_sound = k.read_job(raw).id == int(name)
            except UNREADABLE:
                is_sound = False
            if not is_sound:
                yield int(name), raw
        if int(cursor) == 0:
            return


def _standing(link: Link, keys: Keys, job_id: int) -> dict[str, Any]:
    """Where a live job stands, and whose it is, as far as the orders tell."""
    orders = [(place, order, False) for place, order in keys.rows.items()]
    orders += [(Place.READY, keys.ready_mock, True)]
    scores = link.many([(b"ZSCORE", order, member(job_id)) for _, order, _ in orders])
    for (place, _, mock), score in zip(orders, scores, strict=True):
        if score is not None:
            rank = int(float(score))
            if place is Place.READY:
                return {"place": place, "rank": rank, "mock": mock} | _whose(link, keys, job_id, mock=mock)
            if place is Place.RUNNING:
                lost = _taken(link, keys)
                return lost or {"place": place, "rank": rank, "lease_until": rank}
            return {"place": place, "rank": rank}
    return _ended(link, keys, job_id)


def _whose(link: Link, keys: Keys, job_id: int, *, mock: bool) -> dict[str, Any]:
    """The task in whose queue a READY job is."""
    pairs = _pairs(link, keys)
    queues = [(b"ZSCORE", keys.queue(*pair, mock=mock), member(job_id)) for pair in pairs]
    for (tenant, task), score in zip(pairs, link.many(queues) if pairs else [], strict=True):
        if score is not None:
            return {"tenant": tenant, "task": task}
    return {}


def _taken(link: Link, keys: Keys) -> dict[str, Any]:
    """The task whose queue lacks a job that is counted as READY: a claim took it, and could not read it."""
    pairs = _pairs(link, keys)
    counted = [CountKey(*pair, Place.READY, State.QUEUED) for pair in pairs]
    asked = [(b"HGET", keys.counts, k.count_field(key)) for key in counted]
    sizes = [(b"ZCARD", keys.queue(*pair)) for pair in pairs]
    found = link.many([*asked, *sizes]) if pairs else []
    for (tenant, task), count, size in zip(pairs, found[: len(pairs)], found[len(pairs) :], strict=True):
        if int(count or 0) > int(size):
            return {"place": Place.READY, "tenant": tenant, "task": task}
    return {}


def _pairs(link: Link, keys: Keys) -> list[tuple[str, str]]:
    return [pair_of(name) for name in link.call(b"ZRANGE", keys.lanes, 0, -1)]


def _ended(_link: Link, _keys: Keys, _job_id: int) -> dict[str, Any]:
    return {"place": Place.DONE, "ended": State.FAILED}
