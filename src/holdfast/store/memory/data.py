"""What the memory store holds: dicts, and the orders of the live jobs."""

from collections.abc import Hashable

from ...core.job import Body, Job, Place
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import CountKey
from .fairness import MemoryTurns
from .logs import LogData
from .shelf import Shelf

_EXPIRABLE = (Place.SCHEDULED, Place.READY, Place.HELD, Place.PAUSED)


class Data:
    """What the store holds. `shelf` has the orders of the live jobs, by what they are ordered for."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.archive: dict[int, Job] = {}
        self.bodies: dict[tuple[int, bool], Body] = {}
        self.uniques: dict[UniqueKey, Unique] = {}
        self.domains: dict[DomainKey, Domain] = {}
        self.counts: dict[CountKey, int] = {}
        self.turns = MemoryTurns(self.counts)
        self.records: dict[tuple[str, str], bytes] = {}
        self.logs = LogData()
        # What stands on the door, under an empty name.
        self.notice: dict[str, bytes] = {}
        self.shelf = Shelf()
        # Who is there: no part of what is kept.
        self.here: set[str] = set()


def spots_of(job: Job) -> list[tuple[Hashable, tuple[int, int]]]:
    """Where a live job stands: one entry for each order that it is part of."""
    spot = (job.rank, job.id)
    spots: list[tuple[Hashable, tuple[int, int]]] = [(job.place, spot)]
    if job.place == Place.READY:
        spots.append(((job.tenant, job.task), spot))
    if job.domain is not None:
        spots.append((((job.tenant, job.domain), job.task, job.place), spot))
        spots.append((("domain", job.tenant, job.domain), (job.id, job.id)))
    if job.parent_id:
        spots.append((("parent", job.parent_id), (job.id, job.id)))
    if job.expires_at and job.place in _EXPIRABLE:
        spots.append(("expiring", (job.expires_at, job.id)))
    return spots
