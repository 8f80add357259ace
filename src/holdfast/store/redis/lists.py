"""Whole listings of a Redis store, for whoever copies it, and the notice on its door.

Hashes have no order: of records and unique keys all names are fetched and sorted for each page.
"""

from typing import Any

from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import Turn
from .claim import pair_of
from .keys import joined, member
from .names import OF_JOBS, domain_key
from .reads import RedisReads

# The notice is the record without a kind and a name.
NOTICE = ("", "")


class RedisLists(RedisReads):
    """A view of a store; see `ReadTxn` for what each verb promises."""

    def notice(self) -> bytes | None:
        """What stands on the store's door."""
        kind, name = NOTICE
        return self.records(kind, [name]).get(name) or None

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        """All small records, by (kind, name)."""
        (kinds,) = self.ask([(b"HKEYS", self.keys.kinds)])
        names = {kind.decode() for kind in kinds} | {kind for kind, _ in self.draft.records}
        names |= {*OF_JOBS}
        found: list[tuple[str, str, bytes]] = []
        for kind in sorted(name for name in names if name and name >= after[0]):
            rows = sorted((kind, name, value) for name, value in self.records(kind).items())
            found += [row for row in rows if row[:2] > after]
            if len(found) >= limit:
                break
        return found[:limit]

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        """Who holds which key, by key."""
        (names,) = self.ask([(b"HKEYS", self.keys.unique)])
        keys = {unique_key(name) for name in names} | {*self.draft.uniques}
        found: list[Unique] = []
        above = sorted(key for key in keys if key > after)
        for at in range(0, len(above), limit):
            held = self.find_unique(above[at : at + limit])
            found += [held[key] for key in above[at : at + limit] if key in held]
            if len(found) >= limit:
                break
        return found[:limit]

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        """What is kept of all domains, by (tenant, name)."""
        words = (self.keys.domain_names, b"(" + joined(*after), b"+")
        (names,) = self.ask([(b"ZRANGEBYLEX", *words, "LIMIT", 0, limit + len(self.draft.domains))])
        found = self.domains([*map(domain_key, names), *self.draft.domains])
        return sorted((d for d in found.values() if d.key > after), key=lambda domain: domain.key)[:limit]

    def list_turns(self) -> list[Turn]:
        """The turns of tenants and of their tasks, all that are remembered, by name."""
        orders = (self.keys.turn_tenants, self.keys.rest_tenants, self.keys.rest_lanes)
        ready, rest, lanes = map(
            _scores, self.ask([(b"ZRANGE", order, 0, -1, "WITHSCORES") for order in orders])
        )
        tenants = [name for name, _ in ready]
        rows = self.ask(
            [(b"ZRANGE", self.keys.tasks(name.decode()), 0, -1, "WITHSCORES") for name in tenants]
        )
        found = [Turn(name.decode(), "", turn) for name, turn in (*ready, *rest)]
        for tenant, row in zip(tenants, rows, strict=True):
            found += [Turn(tenant.decode(), task.decode(), turn) for task, turn in _scores(row)]
        for lane, turn in lanes:
            tenant, _, task = lane.partition(b"\0")
            found.append(Turn(tenant.decode(), task.decode(), turn))
        return sorted(turn for turn in found if turn.served > 0)

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The keys of a log by where they lead."""
        words = (self.keys.log("order", log), b"[" + member(after + 1), b"+", "LIMIT", 0, limit)
        (names,) = self.ask([(b"ZRANGEBYLEX", *words)])
        return [(int(name[:19]), name[19:]) for name in names]

    def ready_pairs(self, *, mock: bool) -> list[tuple[str, str]] | None:
        """The tenants' tasks that have READY jobs, mocked or not, where that is known and they are few."""
        return None if self.roster is None else [pair_of(name) for name in self.roster]


def unique_key(name: bytes) -> UniqueKey:
    """A key from the name of its field."""
    tenant, task, key = name.split(b"\0", 2)
    return tenant.decode(), task.decode(), key


def _scores(flat: Any) -> list[tuple[bytes, int]]:
    return [(name, int(float(score))) for name, score in zip(flat[::2], flat[1::2], strict=True)]
