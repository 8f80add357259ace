"""What a commit is to check and to write, in the words of `lua/commit.lua`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.job import Place
from ..contract import CountKey
from .keys import Keys, Spots, count_field, joined

# The sorts of checks.
BEGINS, EQUALS, ABSENT, CROWD = 1, 2, 3, 4


class Plan:
    """Checks and writes, gathered by key. A key is named by its place among all that the plan names."""

    def __init__(self, keys: Keys, lane: bytes) -> None:
        self._names = keys
        self.keys = [lane, *keys.of_every_plan]
        self._places = {key: at for at, key in enumerate(self.keys, start=1)}
        self._checks: dict[tuple[int, bytes], tuple[list[Any], list[Any]]] = {}
        self._births: list[tuple[Any, ...]] = []
        self._writes: dict[tuple[str, bytes], list[Any]] = {}
        self._tallies: dict[tuple[bytes, bytes], dict[bytes, int]] = {}
        self._gone: dict[bytes, None] = {}
        self._staged: list[tuple[bytes, bytes]] = []
        self._lanes: list[tuple[Any, ...]] = []
        self._tenants: list[tuple[Any, ...]] = []
        self._turns: list[tuple[Any, ...]] = []

    def at(self, key: bytes) -> int:
        """The place of a key."""
        place = self._places.get(key)
        if place is None:
            self.keys.append(key)
            place = self._places[key] = len(self.keys)
        return place

    def check(self, sort: int, key: bytes, field: bytes, expected: bytes | None = None) -> None:
        """A field must be as it was: begin with this, be equal to it, or (None) not be there."""
        fields, values = self._checks.setdefault((ABSENT if expected is None else sort, key), ([], []))
        fields.append(field)
        if expected is not None:
            values.append(expected)

    def check_all(self, sort: int, key: bytes, expected: Sequence[tuple[bytes, bytes]]) -> None:
        """The same for many fields of a key that are all there."""
        if expected:
            fields, values = self._checks.setdefault((sort, key), ([], []))
            fields += [field for field, _ in expected]
            values += [value for _, value in expected]

    def bear(self, orders: Spots, births: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        """Jobs come that nobody has, and that stand in the same orders: of each the id, record and body."""
        places = [word for key, score in orders.items() for word in (self.at(key), score)]
        columns = (word for column in zip(*births, strict=True) for word in column)
        self._births.append((len(orders), len(births), *places, *columns))

    def write(self, command: str, key: bytes, *words: Any) -> None:
        """A command on a key; those of one command and key become one."""
        self._writes.setdefault((command, key), []).extend(words)

    def words(self, command: str, key: bytes) -> list[Any]:
        """The words of a command on a key, to be added to."""
        return self._writes.setdefault((command, key), [])

    def tally(self, table: bytes, roster: bytes, field: bytes, change: int) -> None:
        """Add to a count; where it comes from or to zero the roster, if there is one, follows."""
        counts = self._tallies.setdefault((table, roster), {})
        counts[field] = counts.get(field, 0) + change

    def stand(self, tenant: str, task: str, change: int) -> None:
        """The queues that have READY jobs, and the tenants, are known by counting them."""
        names = self._names
        self.tally(names.lane_counts, names.lanes, joined(tenant, task), change)
        self.tally(names.tenant_counts, names.tenants, tenant.encode(), change)

    def count(self, counts: Mapping[CountKey, int]) -> None:
        """What is counted, and the turns of lanes that come to have READY jobs, or to have none."""
        ready: dict[tuple[str, str], int] = {}
        for key, change in counts.items():
            self.tally(self._names.counts, b"", count_field(key), change)
            if key.place is Place.READY:
                ready[key.tenant, key.task] = ready.get((key.tenant, key.task), 0) + change
        for (tenant, task), change in ready.items():
            if change:
                lane, tasks = joined(tenant, task), self.at(self._names.tasks(tenant))
                self._turns.append((lane, tenant.encode(), task.encode(), tasks, change))

    def drop(self, key: bytes) -> None:
        """A key goes."""
        self._gone[key] = None

    def stage(self, before: bytes, after: bytes) -> None:
        """What was written under one key gets its name."""
        self._staged.append((before, after))

    def serve_lane(self, lane: bytes, task: bytes, tasks: bytes, turn: int) -> None:
        """A lane had its turn."""
        self._lanes.append((lane, task, self.at(tasks), turn))

    def serve_tenant(self, tenant: bytes, turn: int) -> None:
        """A tenant had its turn."""
        self._tenants.append((tenant, turn))

    @property
    def writes_anything(self) -> bool:
        """Whether there is more to it than checks."""
        turns = self._lanes or self._turns or self._tenants
        others = self._births or self._tallies or self._gone or turns
        return bool(others) or any(self._writes.values())

    def words_of_it(self) -> list[Any]:
        """The plan as the script takes it; all keys are known after this."""
        checks = [
            (sort, self.at(key), len(both[0]), *both[0], *both[1])
            for (sort, key), both in self._checks.items()
        ]
        writes = [
            (command, self.at(key), len(words), *words)
            for (command, key), words in self._writes.items()
            if words
        ]
        tallies = []
        for (table, roster), counts in self._tallies.items():
            flat = [word for field, change in counts.items() if change for word in (field, change)]
            tallies.append((self.at(table), self.at(roster) if roster else 0, len(flat) // 2, *flat))
        gone = [(self.at(key),) for key in self._gone]
        staged = [(self.at(before), self.at(after)) for before, after in self._staged]
        parts: list[list[tuple[Any, ...]]] = [checks, staged, self._births, gone, writes, tallies]
        parts += [self._lanes, self._tenants, self._turns]
        return [word for part in parts for words in ((len(part),), *part) for word in words]
