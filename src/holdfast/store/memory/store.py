"""The memory store: dicts, one lock, and an undo log to roll back by. It is the executable specification.

Every other store must return exactly what this one returns (`tests/model/model.py` compares them). It is
meant to be read, and optimises nothing but the orders that the contract names.

    store.py      the lock, transactions, waiting
    reads.py      the reads
    txn.py        writing `Changes`, and claims
    data.py       the dicts, and the indexes of jobs and rows
    dicts.py      dicts that can be rolled back, with sorted indexes

`transactional.py` is for tests: it takes part in transactions of other libraries.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.bounds import CLAIM_BYTES
from ...core.errors import BadInput, Conflict, Contended
from ...core.job import MISSING, plain_lease_ms
from ...core.kinds import PAUSE
from ..common.clock import Clock, jump_of, system_clock
from ..common.lending import lend_nothing
from ..contract import (
    TRIES,
    Capabilities,
    Changes,
    ClaimQuery,
    Leased,
    OneStore,
    ReadTxn,
    StoreReport,
    Txn,
    counts_of_lease,
    first_jobs,
)
from .data import MemoryData, roll_back
from .reads import MemoryReads
from .txn import MemoryTxn

T = TypeVar("T")


class MemoryStore(OneStore):
    """A store that lives as long as its process."""

    capabilities = Capabilities(reads_locally=True)

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Released by `interrupt`.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._data = MemoryData()

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` under the lock, again after a `Conflict`. An exception rolls back its changes."""
        with self._lock:
            data, clock = self._data, self._clock
            for _ in range(TRIES):
                if data.undo_log:
                    # The undo log may also have changes of an earlier batch whose roll-back was interrupted.
                    roll_back(data.undo_log)
                try:
                    txn = MemoryTxn(data, clock(), jump_of(clock))
                    changes, result = fn(txn)
                    txn.write(changes)
                except Conflict:
                    continue
                except BaseException:
                    roll_back(data.undo_log)
                    raise
                data.undo_log.clear()
                return result
            roll_back(data.undo_log)
        raise Contended(f"a batch was done {TRIES} times, and each time something had changed")

    def commit(self, changes: Changes) -> bool:
        """Write the changes, if they fit and there is no notice."""
        with self._lock:
            txn = self._plain_txn()
            return txn is not None and self._keep(lambda: txn.write(changes))

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Claim jobs, if nothing else has to be decided."""
        with self._lock:
            txn = self._plain_txn()
            if txn is None or txn.rows(PAUSE) or txn.moments().is_due(query.now_ms):
                return False
            jobs = first_jobs(txn.find(query), CLAIM_BYTES)
            if any(plain_lease_ms(job) < query.lease_ms for job in jobs):
                return False
            bodies = txn.bodies([job.id for job in jobs])
            leased += [(job, bodies.get(job.id, MISSING)) for job in jobs]
            return self._keep(lambda: txn.lease(jobs, query, counts_of_lease(jobs)))

    def _plain_txn(self) -> MemoryTxn | None:
        """A transaction for changes that need no read; None if there is a notice."""
        roll_back(self._data.undo_log)
        txn = MemoryTxn(self._data, self._clock(), None)
        return None if txn.notice() is not None else txn

    def _keep(self, write: Callable[[], None]) -> bool:
        """Write, or roll back; whether it fitted."""
        try:
            write()
        except Conflict:
            roll_back(self._data.undo_log)
            return False
        except BaseException:
            roll_back(self._data.undo_log)
            raise
        self._data.undo_log.clear()
        return True

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` under the lock, as `run` does."""
        with self._lock:
            roll_back(self._data.undo_log)
            return fn(MemoryReads(self._data, self._clock()))

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Refused: there is no connection to a memory store."""
        raise BadInput("connection", type(connection).__name__, needed="absent: memory:// has no connections")

    lend = staticmethod(lend_nothing)

    def now_ms(self) -> int:
        """The clock given to the constructor."""
        return self._clock()

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until interrupted. No other process can change anything, so `Changes.wake` is not used."""
        self._signal.acquire(timeout=timeout_s)
        return False

    def interrupt(self) -> None:
        """Wake `wait`."""
        try:
            self._signal.release()
        except RuntimeError:
            # No `wait` since the last interrupt.
            pass

    def stop_retrying(self) -> None:
        """Nothing to do: there is no server."""

    def appear(self, name: str) -> bool:
        """Announce a name within this process."""
        self._data.here.add(name)
        return True

    def report(self) -> StoreReport:
        """Facts only: a memory store has no problems to report."""
        jobs, archived = len(self._data.jobs), len(self._data.archive)
        facts = {"store": "memory", "live jobs": f"{jobs:,}", "archived": f"{archived:,}"}
        return StoreReport(facts, complaints=[])

    def close(self) -> None:
        """Drop all data."""
        self._data = MemoryData()
