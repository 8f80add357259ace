"""A store at a glance: one consistent view whose cost does not grow with the number of jobs."""

from collections import Counter
from typing import NamedTuple

from ..core import rank
from ..core.job import Job, Place, State
from ..core.worker import Worker
from ..store.contract import ReadTxn
from .commands.workers import alive
from .look import pauses
from .records import Pause

# So many running jobs are looked at, those first whose leases end first.
RUNNING_SEEN = 200
_NAMES = {Place.SCHEDULED: "SCHEDULED", Place.READY: "WAITING", Place.HELD: "WAITING"}
_NAMES |= {Place.RUNNING: "RUNNING", Place.PAUSED: "PAUSED"}


class Glance(NamedTuple):
    """What is seen."""

    now_ms: int
    # Of each task, how many jobs stand where or ended how, archived ones with them.
    tasks: dict[str, Counter[str]]
    first: Job | None
    running: list[Job]
    workers: list[Worker]
    pauses: list[Pause]

    def ended(self, state: str) -> int:
        """How many jobs ended so, as far as they are kept."""
        return sum(counts[state] for counts in self.tasks.values())

    def born(self) -> int:
        """How many jobs there are of any kind."""
        return sum(sum(counts.values()) for counts in self.tasks.values())


def glance(txn: ReadTxn, tenant: str | None) -> Glance:
    """Look at the jobs of a tenant, or of all."""
    tasks: dict[str, Counter[str]] = {}
    for key, count in txn.counts(tenant=tenant).items():
        name = _NAMES.get(key.place) or str(State(key.state))
        tasks.setdefault(key.task, Counter())[name] += count
    running = txn.first(Place.RUNNING, rank.LAST, RUNNING_SEEN)
    heads = txn.first(Place.READY, rank.LAST, 1 if tenant is None else RUNNING_SEEN)
    return Glance(
        now_ms=txn.now_ms,
        tasks=tasks,
        first=next((job for job in heads if tenant in (None, job.tenant)), None),
        running=[job for job in running if tenant in (None, job.tenant)],
        workers=alive(txn),
        pauses=pauses(txn),
    )
