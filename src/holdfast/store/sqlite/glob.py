"""How a claim finds jobs whose names match a pattern, whatever else waits.

No one order serves all queues, so each is tried for so many steps, and then for more:

    by rank       the READY jobs one after the other: quick where many match
    by name       the names that begin as the pattern does, one look each: quick where they are few, however
                  many jobs they have and however far behind others these are
    by range      all jobs of such names, the first of them picked: quick where those are few

Whichever is done first has the answer. Where none is quick, the last two tries together cost a few times
what the better of the orders would have cost alone; where they ended is marked, and the next claim by the
same pattern goes on from there (sqlite_marks.py).
"""

import msgspec

from ...core.bounds import MAX_TIME_MS
from ...core.glob import matches, span
from ...core.rank import LAST, ready
from ..contract import ClaimQuery
from .claim import pick
from .connection import Link
from .marks import BEHIND_ALL, FIRST, Marks, Spot
from .statements import SQL, listed

# Steps of the first try, and how much more each next one may take.
FIRST_ROWS = 1_000
FIRST_NAMES = 256
FIRST_RANGE = 8_000
GROWTH = 8
# Above every name, which has 255 bytes at most.
_ABOVE = "\U0010ffff" * 64
_NO_END = -1

_SPOTS = msgspec.json.Decoder(list[tuple[int, int]])
_NAMES = msgspec.json.Decoder(list[tuple[int, int, str, int]])


def pick_matching(link: Link, query: ClaimQuery, marks: Marks) -> list[int]:
    """The ids of the first READY jobs whose task matches the pattern, by (rank, id)."""
    if query.limit < 1:
        return []
    if query.tasks is not None:
        tasks = tuple(task for task in query.tasks if matches(query.glob or "", task))
        return pick(link, query._replace(glob=None, tasks=tasks))
    start = marks.find(link, query)
    if start == BEHIND_ALL:
        return []
    # The index of names has no mocked jobs, and is by tenant first.
    only_by_rank = query.tenant is None or query.mock
    found = _by_rank(link, query, start or FIRST, _NO_END if only_by_rank else FIRST_ROWS)
    if only_by_rank or len(found) == query.limit:
        if only_by_rank or start is not None:
            marks.put(link, query, found)
        return _ids(found)
    if (names := _names(link, query)) is not None:
        return pick(link, query._replace(glob=None, tasks=names))
    return _ids(_long_search(link, query, marks, start or FIRST))


def _long_search(link: Link, query: ClaimQuery, marks: Marks, start: Spot) -> list[Spot]:
    rows, reach = FIRST_ROWS, FIRST_RANGE
    while (found := _by_range(link, query, reach)) is None:
        rows, reach = rows * GROWTH, reach * GROWTH
        found = _by_rank(link, query, start, rows)
        if len(found) == query.limit:
            break
    # What was found at once will be found at once again.
    if reach > FIRST_RANGE:
        marks.put(link, query, found)
    return found


def _by_rank(link: Link, query: ClaimQuery, start: Spot, rows: int) -> list[Spot]:
    """Those among the first so many READY jobs from `start` on that match."""
    low, high = _ranks(query.priority)
    start = max(start, (low, 0))
    passing = listed(query.passing)
    values = (*start, high, rows, int(query.mock), query.tenant, query.glob, passing, query.limit)
    return _picked(link, "ready_matching", values)


def _names(link: Link, query: ClaimQuery) -> tuple[str, ...] | None:
    """The names that match and may have what is wanted; None: there are too many in the range to go by."""
    answer = link.value(SQL["names_within"], (*_span(query), FIRST_NAMES + 1, query.glob))
    found = _NAMES.decode(answer) if answer is not None else []
    if len(found) > FIRST_NAMES:
        return None
    names = [name for _, _, name, fits in sorted(found) if fits and not _passed(name, query)]
    # Of so many jobs none is of a name whose first stands behind the firsts of as many other names.
    return tuple(names[: query.limit] if query.priority is None else names)


def _passed(name: str, query: ClaimQuery) -> bool:
    return any(tenant in (None, query.tenant) and task in (None, name) for tenant, task in query.passing)


def _by_range(link: Link, query: ClaimQuery, reach: int) -> list[Spot] | None:
    """The first by rank of all jobs in the range of names; None: there are too many of them."""
    within = _span(query)
    if link.value(SQL["more_within"], (*within, reach)) is not None:
        return None
    values = (*within, *_ranks(query.priority), query.glob, listed(query.passing), query.limit)
    return _picked(link, "ready_within", values)


def _span(query: ClaimQuery) -> tuple[str, str, str]:
    assert query.tenant is not None and query.glob is not None
    first, above = span(query.glob)
    return query.tenant, first, _ABOVE if above is None else above


def _ranks(priority: int | None) -> tuple[int, int]:
    return (0, LAST) if priority is None else (ready(priority, 0), ready(priority, MAX_TIME_MS))


def _picked(link: Link, name: str, values: tuple[int | str | None, ...]) -> list[Spot]:
    answer = link.value(SQL["pick"].replace("{picked}", SQL[name]), values)
    return _SPOTS.decode(answer) if answer is not None else []


def _ids(spots: list[Spot]) -> list[int]:
    return [job_id for _, job_id in spots]
