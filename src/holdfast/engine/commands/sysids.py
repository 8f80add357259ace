"""Leases sysids to journals, which make ids on their own for days; see `TakeSysid`."""

import msgspec

from ...core import ids
from ...core.kinds import SYSID
from ...core.sysid import TakenSysid, TakeSysid
from ..batch.batch import Batch
from ..sysid import Sysid, free_number


def take_sysid(batch: Batch, command: TakeSysid) -> TakenSysid:
    """Lease a sysid, renew it, or take it back; see `TakeSysid`."""
    kept = {int(name): msgspec.json.decode(raw, type=Sysid) for name, raw in batch.rows_of(SYSID).items()}
    own = next((number for number, one in kept.items() if one.token == command.token), None)
    if not command.for_ms:
        if own is not None:
            _keep(batch, own, Sysid(token="", until_ms=0, ids_until_ms=kept[own].ids_until_ms))
        return TakenSysid(number=0, token=command.token)
    number = free_number(kept, batch.now_ms, _numbers(batch)) if own is None else own
    before = kept.get(number)
    # The previous holder of the number has made ids up to there. A renewing holder knows its own ids.
    from_ms = before.ids_until_ms if before is not None and own is None else 0
    until_ms = max(batch.now_ms, from_ms) + command.for_ms
    if own is not None:
        until_ms = max(until_ms, kept[own].ids_until_ms)
    _keep(batch, number, Sysid(token=command.token, until_ms=until_ms, ids_until_ms=until_ms))
    return TakenSysid(number=number, token=command.token, ids_from_ms=from_ms, ids_until_ms=until_ms)


def _numbers(batch: Batch) -> range:
    """The sysids that this shard leases to journals."""
    first, count = ids.FIRST_JOURNAL_SYSID, batch.shard_info.count
    return range(first + (batch.shard_info.number - first) % count, ids.SYSIDS, count)


def _keep(batch: Batch, number: int, lease: Sysid) -> None:
    batch.rows[SYSID, str(number)] = msgspec.json.encode(lease)
