"""Whole listings of the memory store, by key, for whoever copies it."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import Turn
from .data import Data

T = TypeVar("T")


class MemoryLists:
    """See `ReadTxn` for what each verb promises."""

    data: Data

    def notice(self) -> bytes | None:
        """What stands on the door."""
        return self.data.notice.get("")

    def list_records(self, *, after: tuple[str, str], limit: int) -> list[tuple[str, str, bytes]]:
        """All small records."""
        rows = ((kind, name, raw) for (kind, name), raw in self.data.records.items())
        return _page(rows, lambda row: row[:2], after, limit)

    def list_unique(self, *, after: UniqueKey, limit: int) -> list[Unique]:
        """Who holds which key."""
        return _page(self.data.uniques.values(), lambda holder: holder.id, after, limit)

    def list_all_domains(self, *, after: DomainKey, limit: int) -> list[Domain]:
        """What is kept of all domains."""
        return _page(self.data.domains.values(), lambda domain: domain.key, after, limit)

    def list_turns(self) -> list[Turn]:
        """The turns of tenants and of their tasks."""
        return sorted(self.data.turns.all())

    def list_log_keys(self, log: str, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The keys of a log by where they lead."""
        rows = ((at, key) for (name, key), at in self.data.logs.keys.items() if name == log)
        return _page(rows, lambda row: row[0], after, limit)


def _page(rows: Iterable[T], key: Callable[[T], Any], after: Any, limit: int) -> list[T]:
    return sorted((row for row in rows if key(row) > after), key=key)[:limit]
