"""The registry of workers: which are running, and which tasks they know. See docs/decisions/0006.

A row describes a worker. Whether it is alive is known from the store (`present`), which costs no write, or,
in stores that cannot tell, from a time that the worker renews.
"""

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core.checks import check_name
from ...core.errors import BadInput, Forbidden, NotFound, TooLarge
from ...core.kinds import WORKER
from ...core.managing import StopWorker
from ...core.worker import Worker, narrow
from ...store.contract import ReadTxn
from ..batch.batch import Batch

# The largest record of a worker; most of it are the names of its tasks.
WORKER_BYTES = 1024 * 1024


def enlist(batch: Batch, command: c.Enlist) -> None:
    """Register a worker, or update its record; see `Enlist`."""
    check_name("worker", command.worker.name)
    known = _find(batch, command.worker.name)
    worker = replace(command.worker, stopping=known is not None and known.stopping)
    raw = msgspec.json.encode(worker)
    if len(raw) > WORKER_BYTES:
        raise TooLarge("worker", f"{len(raw):,} bytes", needed=f"at most {WORKER_BYTES:,} bytes")
    if known is not None and not _is_own(known, command.tenant):
        raise BadInput("worker", command.worker.name, needed="a name that no other worker has")
    batch.rows[WORKER, command.worker.name] = raw


def dismiss(batch: Batch, command: c.Dismiss) -> None:
    """Unregister a worker; see `Dismiss`."""
    known = _find(batch, command.name)
    if known is not None and _is_own(known, command.tenant):
        batch.rows[WORKER, command.name] = None


def stop(batch: Batch, command: StopWorker) -> None:
    """Note that a worker is to stop; see `StopWorker`."""
    known = _find(batch, command.name)
    if known is None or not is_alive(batch.txn, known) or not _is_seen(known, command.tenant):
        raise NotFound("worker", command.name)
    if not _is_own(known, command.tenant):
        raise Forbidden(f"worker {command.name} serves other tenants, too")
    if not known.stopping:
        batch.rows[WORKER, command.name] = msgspec.json.encode(replace(known, stopping=True))


def _find(batch: Batch, name: str) -> Worker | None:
    raw = batch.rows_of(WORKER, [name]).get(name)
    return None if raw is None else msgspec.json.decode(raw, type=Worker)


def _is_own(worker: Worker, tenant: str | None) -> bool:
    """Whether a tenant may change a worker's record: the worker serves no other tenant."""
    return tenant is None or all(one.tenant == tenant for one in worker.serves)


def _is_seen(worker: Worker, tenant: str | None) -> bool:
    return tenant is None or narrow(worker, tenant) is not None


def remove_dead(batch: Batch) -> None:
    """Unregister workers that have died."""
    for name, raw in batch.rows_of(WORKER).items():
        if not is_alive(batch.txn, msgspec.json.decode(raw, type=Worker)):
            batch.rows[WORKER, name] = None


def registered(txn: ReadTxn, name: str) -> list[Worker]:
    """The worker of that name, alive or not, in a list; empty if it is not registered."""
    return [msgspec.json.decode(raw, type=Worker) for raw in txn.rows(WORKER, [name]).values()]


def alive(txn: ReadTxn) -> list[Worker]:
    """All live workers, oldest first."""
    known = (msgspec.json.decode(raw, type=Worker) for raw in txn.rows(WORKER).values())
    return sorted((w for w in known if is_alive(txn, w)), key=lambda w: (w.started_at, w.name))


def is_alive(txn: ReadTxn, worker: Worker) -> bool:
    """Whether a worker is considered alive."""
    return txn.now_ms < worker.until_ms if worker.until_ms else txn.present(worker.name)
