"""Whole listings of several shards, for whoever copies a queue: what each has, in one order.

What is only about the shards themselves is left out: which one it is, pointers to keys that are held in
another, which whoever writes a key makes anew, and numbers that schedules of another have.
"""

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from ...core import kinds
from ...core.limits import Domain, DomainKey
from ...core.unique import Unique, UniqueKey
from ..contract import Turn

OWN = {kinds.SHARD, kinds.POINTER, kinds.NUMBER}
Record = tuple[str, str, bytes]


def records(views: Sequence[Any], *, after: tuple[str, str], limit: int) -> list[Record]:
    """Small records; one that every shard has comes once."""
    lists = [_foreign(view, after, limit) for view in views]
    found: dict[tuple[str, str], Record] = {}
    for row in merge(*lists, key=lambda row: row[:2]):
        found.setdefault(row[:2], row)
        if len(found) >= limit:
            break
    return list(found.values())


def _foreign(view: Any, after: tuple[str, str], limit: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < limit and (page := view.list_records(after=after, limit=limit)):
        found += [row for row in page if row[0] not in OWN]
        after = page[-1][:2]
    return found


def uniques(views: Sequence[Any], *, after: UniqueKey, limit: int) -> list[Unique]:
    """Who holds which key; one that has run out in a shard, and is another's by now, comes once."""
    found: dict[UniqueKey, Unique] = {}
    for one in merge(*(view.list_unique(after=after, limit=limit) for view in views), key=lambda one: one.id):
        if one.id not in found and len(found) >= limit:
            break
        found[one.id] = holding([one, found.get(one.id, one)])
    return list(found.values())


def holding(holders: Sequence[Unique]) -> Unique:
    """Of those that hold one key, each in its shard, the one that does so now, or else the longest."""
    return max(holders, key=lambda one: (not one.until_ms, one.until_ms, one.job_id))


def domains(views: Sequence[Any], *, after: DomainKey, limit: int) -> list[Domain]:
    """What is kept of domains."""
    lists = (view.list_all_domains(after=after, limit=limit) for view in views)
    return _first(lists, lambda domain: domain.key, limit)


def turns(views: Sequence[Any]) -> list[Turn]:
    """When each was last served, in whichever shard."""
    latest: dict[tuple[str, str], Turn] = {}
    for turn in (turn for view in views for turn in view.list_turns()):
        if turn.served >= latest.get(turn[:2], turn).served:
            latest[turn[:2]] = turn
    return [latest[pair] for pair in sorted(latest)]


def _first(lists: Iterable[list[Any]], key: Callable[[Any], Any], limit: int) -> list[Any]:
    return list(islice(merge(*lists, key=key), max(limit, 0)))
