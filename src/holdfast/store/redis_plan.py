"""What a commit is to check and to write, in the words of `lua/commit.lua`."""

from typing import Any

from .redis_keys import Keys

# The sorts of checks.
BEGINS, EQUALS, ABSENT, CROWD = 1, 2, 3, 4


class Plan:
    """Checks and writes, gathered by key. A key is named by its place among all that the plan names."""

    def __init__(self, keys: Keys, lane: bytes) -> None:
        self.keys = [
            lane,
            keys.tick,
            keys.ready_counts,
            keys.turn_tenants,
            keys.rest_tenants,
            keys.rest_lanes,
        ]
        self._places = {key: at for at, key in enumerate(self.keys, start=1)}
        self._checks: dict[tuple[int, bytes], tuple[list[Any], list[Any]]] = {}
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

    def turn(self, lane: bytes, tenant: bytes, task: bytes, tasks: bytes, change: int) -> None:
        """A lane has more or fewer READY jobs."""
        self._turns.append((lane, tenant, task, self.at(tasks), change))

    @property
    def writes_anything(self) -> bool:
        """Whether there is more to it than checks."""
        others = self._tallies or self._gone or self._lanes or self._turns
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
        parts: list[list[tuple[Any, ...]]] = [checks, staged, gone, writes, tallies]
        parts += [self._lanes, self._tenants, self._turns]
        return [word for part in parts for words in ((len(part),), *part) for word in words]
