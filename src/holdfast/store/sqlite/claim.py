"""How a claim finds its jobs without walking over those that it may not have.

Usually by pairs: which (tenant, task) pairs have READY jobs is one look into an index for each, what
is paused or not asked for is taken away, and the indexes of those that remain are merged by rank. Only
where there are very many pairs, or mocked jobs are wanted, are all READY jobs gone through. A claim that
picks its pairs looks at these and at nothing else.
"""

from collections import defaultdict
from heapq import merge
from itertools import islice

import msgspec

from ...core import rank
from ...core.bounds import MAX_TIME_MS
from ..contract import ClaimQuery, is_passed
from .connection import Link
from .statements import SQL, in_rows, listed

# Beyond this many pairs a claim goes through the READY jobs instead of through the pairs.
MOST_PAIRS = 256
# So many pairs are merged by one statement.
PAIRS_AT_ONCE = 64

Pair = tuple[str, str]

_SPOTS = msgspec.json.Decoder(list[tuple[int, int]])
_PICKED = msgspec.json.Decoder(list[tuple[int, list[tuple[int, int]]]])
_PAIRS = msgspec.json.Decoder(list[Pair])
_NAMES = msgspec.json.Decoder(list[str])


def pick(link: Link, query: ClaimQuery) -> list[int]:
    """The ids of the first READY jobs that match, by (rank, id)."""
    if query.limit < 1:
        return []
    low, high = _ranks(query.priority)
    if query.picks:
        return _picked(link, query, low, high)
    if query.tenant is None and query.tenants is None and query.tasks is None and not query.passing:
        return _ids(_spots(link, SQL["ready"], low, high, int(query.mock), query.limit))
    pairs = None if query.mock else _pairs(link, query)
    if pairs is None:
        return _ids(_scanned(link, query, low, high))
    parts = []
    for at in range(0, len(pairs), PAIRS_AT_ONCE):
        some = pairs[at : at + PAIRS_AT_ONCE]
        values = [value for pair in some for value in (*pair, low, high)]
        parts.append(_spots(link, _merged(len(some)), *values, query.limit))
    return _ids(list(islice(merge(*parts), query.limit)))


def _picked(link: Link, query: ClaimQuery, low: int, high: int) -> list[int]:
    """Those of the picked pairs: one statement for all that want about as many."""
    groups: defaultdict[int, list[tuple[int, str, str]]] = defaultdict(list)
    for n, (tenant, task, most) in enumerate(query.picks):
        if most > 0 and query.is_asked(tenant, task):
            groups[most.bit_length()].append((n, tenant, task))
    spots: list[tuple[int, int]] = []
    for rows in groups.values():
        most = max(query.picks[n][2] for n, _, _ in rows)
        for sql, values in in_rows("ready_of_picks", rows):
            for n, found in _PICKED.decode(link.value(sql, (low, high, most, *values))):
                spots += found[: query.picks[n][2]]
    return _ids(sorted(spots)[: query.limit])


def _ids(spots: list[tuple[int, int]]) -> list[int]:
    return [job_id for _, job_id in spots]


def _spots(link: Link, select: str, *values: int | str | None) -> list[tuple[int, int]]:
    answer = link.value(SQL["pick"].replace("{picked}", select), values)
    return _SPOTS.decode(answer) if answer is not None else []


def _ranks(priority: int | None) -> tuple[int, int]:
    # A READY rank begins with the priority, so one priority is a range of ranks.
    if priority is None:
        return 0, rank.LAST
    return rank.ready(priority, 0), rank.ready(priority, MAX_TIME_MS)


def _merged(count: int) -> str:
    return " UNION ALL ".join([SQL["ready_of_pair"]] * count) + " ORDER BY rank, id LIMIT ?"


def _pairs(link: Link, query: ClaimQuery) -> list[Pair] | None:
    """The pairs that may have matching jobs; None: too many to go by."""
    if query.tasks is None:
        answer = link.value(SQL["pairs"], (query.tenant or "", query.tenant, MOST_PAIRS + 1))
        pairs = _PAIRS.decode(answer) if answer is not None else []
    else:
        tenants = _tenants(link, query)
        if len(tenants) * len(query.tasks) > MOST_PAIRS and len(tenants) > 1:
            return None
        pairs = [(tenant, task) for tenant in tenants for task in dict.fromkeys(query.tasks)]
    if query.tasks is None and len(pairs) > MOST_PAIRS:
        return None
    if query.tenants is not None:
        pairs = [pair for pair in pairs if pair[0] in query.tenants]
    return [pair for pair in pairs if not is_passed(pair, query.passing)]


def _asked(query: ClaimQuery) -> list[str] | None:
    """The tenants that are asked for; None: any."""
    if query.tenant is None:
        return None if query.tenants is None else list(dict.fromkeys(query.tenants))
    return [query.tenant] if query.tenants is None or query.tenant in query.tenants else []


def _tenants(link: Link, query: ClaimQuery) -> list[str]:
    if (asked := _asked(query)) is not None:
        return asked
    answer = link.value(SQL["tenants"], (MOST_PAIRS + 1,))
    return _NAMES.decode(answer) if answer is not None else []


def _scanned(link: Link, query: ClaimQuery, low: int, high: int) -> list[tuple[int, int]]:
    asked = [None if names is None else listed(names) for names in (_asked(query), query.tasks)]
    values = (low, high, int(query.mock), *asked, listed(query.passing), query.limit)
    return _spots(link, SQL["ready_filtered"], *values)
