"""How jobs go from where they stand to where they are to stand, in the words of a plan.

Most are plain: they stand in the order of their place and in no domain's, no parent's, and do not expire.
All of these that go from one place to another go the same way, which is looked up once.
"""

from collections import Counter
from typing import Any, NamedTuple

from ...core.job import Job, Place
from .keys import Keys, Spots
from .plan import Plan

# Where a plain job stands: its place, tenant, task, and whether it is mocked.
Kind = tuple[Place, str, str, bool]


class Way(NamedTuple):
    """The words that the name of a job is added to: alone, after a nought, after its rank."""

    leave: list[list[Any]]
    enter: list[list[Any]]
    rank: list[list[Any]]


class Moves:
    """The moves of one commit."""

    def __init__(self, plan: Plan, keys: Keys) -> None:
        self._plan, self._keys = plan, keys
        self._ways: dict[tuple[Kind | None, Kind | None], Way] = {}
        # How many READY jobs came and went, by tenant and task.
        self._stand: Counter[tuple[str, str]] = Counter()

    def move(self, name: bytes, before: Job | None, after: Job | None, *, taken: bool) -> None:
        """Let a job go from where it stood to where it is to stand; None: nowhere."""
        old, new = _kind(before), _kind(after)
        is_odd = (before is not None and old is None) or (after is not None and new is None)
        found_astray = taken and (old is None or old[0] is not Place.READY)
        if is_odd or found_astray or (old and new and old[0] is new[0]):
            self._move_oddly(name, before, after, taken=taken)
            return
        way = self._ways.get((old, new))
        if way is None:
            way = self._ways[old, new] = self._way(before, after)
        for words in way.leave:
            words.append(name)
        for words in way.enter:
            words.extend((0, name))
        if after is not None:
            for words in way.rank:
                words.extend((after.rank, name))
        self._stands(before, after)

    def _spots(self, before: Job | None, after: Job | None, *, taken: bool) -> tuple[list[bytes], Spots]:
        """The orders that a job leaves, and those that it enters or stands elsewhere in."""
        queue = self._keys.in_process_queue
        old = self._keys.spots(before) if before is not None else {}
        new = self._keys.spots(after) if after is not None else {}
        # What was READY somebody may have taken just now: his commit will find that it is no longer so.
        moved = taken or (before is not None and before.place is Place.READY)
        leaves = [key for key in old if key not in new]
        if moved and queue not in new:
            leaves.append(queue)
        return leaves, {key: score for key, score in new.items() if moved or old.get(key) != score}

    def _way(self, before: Job | None, after: Job | None) -> Way:
        """The way of all plain jobs that go from the place of one to that of the other."""
        words, ids = self._plan.words, self._keys.ids
        leaves, enters = self._spots(before, after, taken=False)
        return Way(
            [words("ZREM", key) for key in leaves],
            [words("ZADD", key) for key in enters if key == ids],
            [words("ZADD", key) for key in enters if key != ids],
        )

    def _move_oddly(self, name: bytes, before: Job | None, after: Job | None, *, taken: bool) -> None:
        leaves, enters = self._spots(before, after, taken=taken)
        for key in leaves:
            self._plan.write("ZREM", key, name)
        for key, score in enters.items():
            self._plan.write("ZADD", key, score, name)
        self._stands(before, after)

    def _stands(self, before: Job | None, after: Job | None) -> None:
        if before is not None and before.place is Place.READY:
            self._stand[before.tenant, before.task] -= 1
        if after is not None and after.place is Place.READY:
            self._stand[after.tenant, after.task] += 1

    def count(self) -> None:
        """Tell how many READY jobs each tenant and task has more, or fewer."""
        for pair, change in self._stand.items():
            self._plan.stand(*pair, change)


def _kind(job: Job | None) -> Kind | None:
    if job is None or job.domain is not None or job.parent_id or job.expires_at:
        return None
    return job.place, job.tenant, job.task, job.mock
