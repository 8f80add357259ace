"""A plain claim in one message: what it asks for, and what the reply says."""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec

from ...core import rank
from ...core.bounds import CLAIM_BYTES
from ...core.job import MISSING, Body, Job
from ..contract import ClaimQuery, Leased
from .statements import numbers, texts

# With more pairs than this a claim is a batch.
MOST_PAIRS = 256
_JOBS = msgspec.json.Decoder(list[Job])


def values_of(query: ClaimQuery, *, pause_lock: int, token: int) -> dict[str, Any] | None:
    """The values of `lease_jobs`; None: a claim with these filters is a batch."""
    tenants = query.tenants if query.tenant is None else (query.tenant,)
    if query.limit < 1 or query.mock or query.skipped or query.glob is not None:
        return None
    picks = [(t, k, min(n, query.limit)) for t, k, n in query.picks if n > 0 and query.wants(t, k)]
    if query.picks and not 0 < len(picks) <= MOST_PAIRS:
        return None
    if query.tenant is not None and query.tenants is not None and query.tenant not in query.tenants:
        return None
    low, high = rank.range_of(query.priority)
    tasks = query.tasks
    if picks:
        tenants, tasks = tuple([tenant for tenant, _, _ in picks]), tuple([task for _, task, _ in picks])
    return {
        "pause_lock": pause_lock,
        "now": query.now_ms,
        "limit": query.limit,
        "low": low,
        "high": high,
        "lease_ms": query.lease_ms,
        "bytes": CLAIM_BYTES,
        "lease_rank": rank.lease(query.lease_until),
        "owner": query.owner,
        "until": query.lease_until,
        "started_at": query.started_at,
        "token": token,
        "tenants": None if tenants is None else texts(tenants),
        "tasks": None if tasks is None else texts(tasks),
        "mosts": None if not picks else numbers([most for _, _, most in picks]),
    }


def leased_of(
    records: str | None, bodies: Sequence[str | None] | None, raws: Sequence[bytes | None] | None
) -> list[Leased]:
    """The jobs of a reply with their data, in order."""
    if records is None or bodies is None:
        return []
    found: list[Leased] = []
    for job, body, raw in zip(_JOBS.decode(records), bodies, raws or repeat(None), strict=False):
        data: Body | None = body if raw is None else raw
        found.append((job, MISSING if data is None else data))
    found.sort(key=lambda one: (one[0].rank, one[0].id))
    return found
