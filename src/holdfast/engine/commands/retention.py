"""How long the archive keeps jobs: one setting of the store, in every shard."""

from ...core.bounds import DEFAULT_RETENTION_MS
from ...core.kinds import SETTING
from ...core.managing import GetRetention, SetRetention
from ...store.contract import ReadTxn
from ..batch.batch import Batch

RETENTION = "retention_ms"


def set_retention(batch: Batch, command: SetRetention) -> None:
    """Keep another retention; see `SetRetention`. Other processes read it within seconds."""
    batch.rows[SETTING, RETENTION] = str(command.retention_ms).encode()
    batch.set_retention(command.retention_ms)
    batch.woke = batch.wants_upkeep = True


def get_retention(txn: ReadTxn, _query: GetRetention | None = None) -> int:
    """The retention that is stored; see `GetRetention`."""
    raw = txn.rows(SETTING, [RETENTION]).get(RETENTION)
    return int(raw) if raw else DEFAULT_RETENTION_MS
