"""The registry of workers: which are running, and which tasks they know. See docs/decisions/0006.

A row describes a worker. Whether it is alive is known from the store (`present`), which costs no write, or,
in stores that cannot tell, from a time that the worker renews.
"""

import msgspec

from ...core import commands as c
from ...core.checks import check_name
from ...core.errors import BadInput, TooLarge
from ...core.worker import Worker
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import WORKER

# The largest record of a worker; most of it are the names of its tasks.
WORKER_BYTES = 1024 * 1024


def enlist(batch: Batch, command: c.Enlist) -> None:
    """Register a worker, or update its record; see `Enlist`."""
    check_name("worker", command.worker.name)
    raw = msgspec.json.encode(command.worker)
    if len(raw) > WORKER_BYTES:
        raise TooLarge("worker", f"{len(raw):,} bytes", needed=f"at most {WORKER_BYTES:,} bytes")
    if not _is_own(batch, command.worker.name, command.tenant):
        raise BadInput("worker", command.worker.name, needed="a name that no other worker has")
    batch.rows[WORKER, command.worker.name] = raw


def dismiss(batch: Batch, command: c.Dismiss) -> None:
    """Unregister a worker; see `Dismiss`."""
    known = command.name in batch.rows_of(WORKER, [command.name])
    if known and _is_own(batch, command.name, command.tenant):
        batch.rows[WORKER, command.name] = None


def _is_own(batch: Batch, name: str, tenant: str | None) -> bool:
    """Whether a tenant may change a worker's record: there is none, or the worker serves no other tenant."""
    raw = None if tenant is None else batch.rows_of(WORKER, [name]).get(name)
    return raw is None or all(one.tenant == tenant for one in msgspec.json.decode(raw, type=Worker).serves)


def remove_dead(batch: Batch) -> None:
    """Unregister workers that have died."""
    for name, raw in batch.rows_of(WORKER).items():
        if not is_alive(batch.txn, msgspec.json.decode(raw, type=Worker)):
            batch.rows[WORKER, name] = None


def alive(txn: ReadTxn) -> list[Worker]:
    """All live workers, oldest first."""
    known = (msgspec.json.decode(raw, type=Worker) for raw in txn.rows(WORKER).values())
    return sorted((w for w in known if is_alive(txn, w)), key=lambda w: (w.started_at, w.name))


def is_alive(txn: ReadTxn, worker: Worker) -> bool:
    """Whether a worker is considered alive."""
    return txn.now_ms < worker.until_ms if worker.until_ms else txn.present(worker.name)
