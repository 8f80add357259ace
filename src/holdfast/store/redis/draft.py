"""What a batch has read and what it has decided, before anything of it is written.

seen    as the server had it when it was read, absence too: the commit checks that it is still so
draft   as it is to be: read before what was seen, and written by the commit
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...core.job import Body, Job
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import CountKey, LogRow
from .keys import Keys, Spots


class Stamped(NamedTuple):
    """A job as it was read, and the mark of the commit that wrote it."""

    stamp: bytes
    job: Job


class StampedDomain(NamedTuple):
    """A domain as it was read, the mark of the commit that wrote it, and the moment of its writer."""

    stamp: bytes
    at_ms: int
    domain: Domain


class Seen:
    """What was read. None: it was not there."""

    def __init__(self) -> None:
        self.jobs: dict[int, Stamped | None] = {}
        self.archive: dict[int, Stamped | None] = {}
        self.domains: dict[DomainKey, StampedDomain | None] = {}
        # How many jobs a domain has of which nothing is kept.
        self.crowds: dict[DomainKey, int] = {}
        self.uniques: dict[UniqueKey, bytes | None] = {}
        self.records: dict[tuple[str, str], bytes | None] = {}
        # Kinds that were read whole: all their records, and the number of their last change.
        self.kinds: dict[str, tuple[bytes | None, dict[str, bytes]]] = {}
        # Bodies that came along with a claim, as they are kept.
        self.data: dict[int, bytes] = {}


class Draft:
    """What was decided. None: it goes."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.jobs: dict[int, Job | None] = {}
        # Where these jobs stand, and who stands in an order; brought up to date when somebody asks.
        self._spots: dict[int, Spots] = {}
        self._orders: dict[bytes, set[int]] = {}
        self._changed: set[int] = set()
        self.archive: dict[int, Job | None] = {}
        self.bodies: dict[tuple[int, bool], Body | None] = {}
        self.domains: dict[DomainKey, Domain | None] = {}
        self.uniques: dict[UniqueKey, Unique | None] = {}
        self.records: dict[tuple[str, str], bytes | None] = {}
        self.counts: Counter[CountKey] = Counter()
        # Ids that were added without looking whether they exist: the commit looks.
        self.hoped: set[int] = set()
        # By log: items and keys that come, (after, up to) of those that go, and keys that go.
        self.items: dict[str, dict[int, LogRow]] = {}
        self.log_keys: dict[str, dict[bytes, int | None]] = {}
        self.trims: dict[str, list[tuple[int, int]]] = {}
        self.keys_up_to: dict[str, int] = {}

    def put(self, job_id: int, job: Job | None) -> None:
        """Let a live job be so."""
        self.jobs[job_id] = job
        self._changed.add(job_id)

    def standing(self, orders: Iterable[bytes]) -> dict[int, Job]:
        """The jobs of the draft that stand in one of these orders."""
        self._settle()
        ids = {job_id for order in orders for job_id in self._orders.get(order, ())}
        return {id: job for id in ids if (job := self.jobs[id]) is not None}

    def scores(self, order: bytes) -> list[int]:
        """The scores of the jobs of the draft in an order."""
        self._settle()
        return [self._spots[job_id][order] for job_id in self._orders.get(order, ())]

    def _settle(self) -> None:
        for job_id in self._changed:
            for order in self._spots.pop(job_id, ()):
                self._orders[order].discard(job_id)
            job = self.jobs[job_id]
            spots = self._spots[job_id] = self._keys.spots(job) if job is not None else {}
            for order in spots:
                self._orders.setdefault(order, set()).add(job_id)
        self._changed.clear()
