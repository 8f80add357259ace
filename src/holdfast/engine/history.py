"""Keeping history: the buckets that upkeep fills from tallies, and the answer to `GetHistory`."""

from collections.abc import Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from ..core.bounds import MAX_INDEX
from ..core.history import (
    TIERS,
    Bucket,
    GetHistory,
    TaskEnds,
    Tier,
    ends_of,
    start_of,
    summed,
    tier_for,
)
from ..core.kinds import HISTORY
from ..store.contract import ReadTxn
from .batch.batch import Batch

# How many old buckets one round of upkeep deletes.
FORGOTTEN = 100
# Beyond what one reply has at most: a day of minutes.
MOST_BUCKETS = 1_500
_decode = msgspec.json.Decoder(tuple[TaskEnds, ...]).decode
_encode = msgspec.json.Encoder().encode


def key_of(tier: Tier, start_ms: int, shard: int) -> str:
    """The key of a bucket: in order of time, and another one on each shard."""
    return f"{tier.name}{start_ms:015d}.{shard:02d}"


def record(batch: Batch) -> None:
    """Move tallies into the buckets of now, and delete old buckets."""
    if not batch.txn.tallies():
        return
    now_ms, shard = batch.now_ms, batch.shard_info.number
    starts = {tier: start_of(tier, now_ms) for tier in TIERS}
    keys = {tier: key_of(tier, start_ms, shard) for tier, start_ms in starts.items()}
    # The rows first: two processes that move the same tallies both read them, and one repeats its batch.
    kept = batch.rows_of(HISTORY, list(keys.values()))
    tallies = batch.txn.tallies()
    ends = ends_of(tallies)
    for tier, key in keys.items():
        before = _decode(kept[key]) if key in kept else ()
        batch.rows[HISTORY, key] = _encode(tier.grown(before, ends))
    batch.counts.move_tallies(tallies)
    for tier in [tier for tier, key in keys.items() if key not in kept]:
        _forget(batch, tier)


def _forget(batch: Batch, tier: Tier) -> None:
    """Delete buckets that have been kept long enough; with each new one, so there are never many."""
    first = start_of(tier, batch.now_ms) - tier.kept_ms
    for key, _ in batch.txn.scan(HISTORY, prefix=tier.name, limit=FORGOTTEN):
        if _start_in(key) < first:
            batch.rows[HISTORY, key] = None


def _start_in(key: str) -> int:
    return int(key[1:].partition(".")[0])


def get_history(txn: ReadTxn, query: GetHistory) -> list[Bucket]:
    """The buckets of a time; see `GetHistory`."""
    tier = tier_for(query.span_ms, query.tenant)
    last = start_of(tier, txn.now_ms)
    count = min(max(query.span_ms // tier.step_ms, 1), MOST_BUCKETS)
    first = last - (count - 1) * tier.step_ms
    found: dict[int, list[Sequence[TaskEnds]]] = {last: []}
    after = f"{tier.name}{first:015d}"
    while page := txn.scan(HISTORY, after=after, prefix=tier.name, limit=500):
        for key, raw in page:
            found.setdefault(_start_in(key), []).append(_decode(raw))
        after = page[-1][0]
    found[last].append(_unmoved(txn, tier, found[last]))
    return [
        Bucket(
            start_ms=start,
            step_ms=tier.step_ms,
            tasks=_joined([_wanted(query, ends) for ends in found.get(start, [])]),
            unlisted=sum(one.ended for ends in found.get(start, []) for one in ends if not one.task),
        )
        for start in range(first, last + 1, tier.step_ms)
    ]


def _unmoved(txn: ReadTxn, tier: Tier, kept: list[Sequence[TaskEnds]]) -> Sequence[TaskEnds]:
    """The tallies that are in no bucket yet.

    In a bucket whose list is fixed, a new task counts by its name if there is room for all new ones. Else it
    is left out until its runs are in the bucket, by name or as unlisted, so that no sum decreases.
    """
    ends = tier.grown((), ends_of(txn.tallies())) if tier.merged else ends_of(txn.tallies())
    if not tier.fixed:
        return ends
    listed = {(one.tenant, one.task) for ends in kept for one in ends if one.task}
    has_room = len(listed | {(one.tenant, one.task) for one in ends}) <= tier.most
    return [one for one in ends if has_room or (one.tenant, one.task) in listed]


def _wanted(query: GetHistory, ends: Sequence[TaskEnds]) -> Sequence[TaskEnds]:
    if not query.timings:
        ends = [replace(one, waits=(), runs=()) if one.runs else one for one in ends]
    if query.tenant is None and query.task is None:
        return ends
    return [
        one
        for one in ends
        if query.tenant in (None, one.tenant) and query.task in (None, one.task) and one.task
    ]


def _joined(parts: list[Sequence[TaskEnds]]) -> tuple[TaskEnds, ...]:
    """The sums of the rows of a bucket. One row has them already, and a month has a hundred such rows."""
    return tuple(parts[0]) if len(parts) == 1 else summed(chain.from_iterable(parts), most=MAX_INDEX)
