"""The registry of workers: which are running, and which tasks they know. See docs/decisions/0006.

A row describes a worker. Whether it is alive is known from the store (`present`), which costs no write, or,
in stores that cannot tell, from a time that the worker renews.
"""

from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.checks import check_name
from ...core.commands import StopWorker
from ...core.errors import BadInput, Forbidden, NotFound, TooLarge
from ...core.job import Record
from ...core.kinds import WORKER
from ...core.worker import Worker, narrow
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import check_page

# The largest record of a worker; most of it are the names of its tasks.
WORKER_BYTES = 1024 * 1024


class WorkerBrief(Record, frozen=True, kw_only=True):
    """What is counted of a worker."""

    name: str
    started_at: int = 0
    running: int = 0
    until_ms: int = 0


W = TypeVar("W", Worker, WorkerBrief)
_decode = msgspec.json.Decoder(Worker).decode
_decode_brief = msgspec.json.Decoder(WorkerBrief).decode


def enlist(batch: Batch, command: c.Enlist) -> None:
    """Register a worker, or update its record; see `Enlist`."""
    check_name("worker", command.worker.name)
    known = _find(batch, command.worker.name)
    stopping = known is not None and known.stopping
    worker = replace(command.worker, stopping=stopping, owner=batch.ids.owner())
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
    if known is None or not find_alive(batch.txn, [known]) or not _is_seen(known, command.tenant):
        raise NotFound("worker", command.name)
    if not _is_own(known, command.tenant):
        raise Forbidden(f"worker {command.name} serves other tenants, too")
    if not known.stopping:
        batch.rows[WORKER, command.name] = msgspec.json.encode(replace(known, stopping=True))


def _find(batch: Batch, name: str) -> Worker | None:
    raw = batch.rows_of(WORKER, [name]).get(name)
    return None if raw is None else _decode(raw)


def _is_own(worker: Worker, tenant: str | None) -> bool:
    """Whether a tenant may change a worker's record: the worker serves no other tenant."""
    return tenant is None or all(one.tenant == tenant for one in worker.serves)


def _is_seen(worker: Worker, tenant: str | None) -> bool:
    return tenant is None or narrow(worker, tenant) is not None


def remove_dead(batch: Batch) -> None:
    """Unregister workers that have died."""
    known = {name: _decode_brief(raw) for name, raw in batch.rows_of(WORKER).items()}
    for name in known.keys() - {one.name for one in find_alive(batch.txn, known.values())}:
        batch.rows[WORKER, name] = None


def list_workers(txn: ReadTxn, query: q.ListWorkers) -> list[Worker]:
    """The live workers after a name, or one by its name; see `ListWorkers`."""
    check_page(query)
    if query.name is not None:
        return _narrowed(map(_decode, txn.rows(WORKER, [query.name]).values()), query.tenant)
    found, after = list[Worker](), query.after_name
    while len(found) < query.limit and (rows := txn.scan(WORKER, after=after, limit=query.limit)):
        after = rows[-1][0]
        found += _narrowed(find_alive(txn, [_decode(raw) for _, raw in rows]), query.tenant)
    return found[: query.limit]


def summarize_workers(txn: ReadTxn, tenant: str | None, *, shown: int) -> tuple[int, int, list[Worker]]:
    """How many workers live, how many jobs they run, and the oldest of them, as a tenant may see them."""
    rows = txn.rows(WORKER)
    if tenant is not None:
        mine = _narrowed(find_alive(txn, [_decode(raw) for raw in rows.values()]), tenant)
        oldest = sorted(mine, key=_age)[:shown]
        return len(mine), sum(one.running for one in mine), oldest
    # Without the names of their tasks, which are most of the record.
    brief = find_alive(txn, [_decode_brief(raw) for raw in rows.values()])
    oldest = [_decode(rows[one.name]) for one in nsmallest(shown, brief, key=_age)]
    return len(brief), sum(one.running for one in brief), oldest


def alive(txn: ReadTxn) -> list[Worker]:
    """All live workers, oldest first."""
    return sorted(find_alive(txn, [_decode(raw) for raw in txn.rows(WORKER).values()]), key=_age)


def dead_of(txn: ReadTxn, owner: int) -> list[Worker]:
    """The registered workers that claim by a sysid, if all of them have died."""
    known = [one for one in map(_decode, txn.rows(WORKER).values()) if one.owner == owner]
    return [] if find_alive(txn, known) else known


def find_alive(txn: ReadTxn, workers: Collection[W]) -> list[W]:
    """Those workers that are considered alive."""
    present = txn.present([one.name for one in workers if not one.until_ms])
    return [one for one in workers if (txn.now_ms < one.until_ms if one.until_ms else one.name in present)]


def _narrowed(workers: Iterable[Worker], tenant: str | None) -> list[Worker]:
    """Workers with only what a tenant may see of them."""
    if tenant is None:
        return [*workers]
    return [one for worker in workers if (one := narrow(worker, tenant)) is not None]


def _age(worker: Worker | WorkerBrief) -> tuple[int, str]:
    return worker.started_at, worker.name
