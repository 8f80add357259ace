"""How a claim finds its jobs without reading all jobs that do not match.

    all         no filter, and nothing paused: the READY jobs by rank
    by picks    the first jobs of each picked pair
    by pairs    the indexes of the (tenant, task) pairs that match and have READY jobs, merged by rank
    by rank     if there are too many pairs: the first READY jobs by rank, filtered
    by name     for a pattern that few of the first jobs by rank match: all jobs with the pattern's prefix

By pairs is fast however many other jobs come before; by rank if many jobs match; by name if few names have
the prefix.
"""

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from ...core import rank
from ...core.glob import span
from ...core.job import Job
from ..contract import ClaimQuery
from .connection import SqliteConnection
from .statements import JOBS, PAIRS, PAIRS_OF_TENANT, cut, listed, ready_of_pairs, ready_of_picks

# How many pairs are merged at most, and how many in one statement.
MOST_PAIRS = 256
PAIRS_AT_ONCE = 64
# How many pairs are examined, including those that do not match.
PAIRS_LOOKED_AT = 4_096
# How many jobs are examined by rank before jobs are searched by name.
FIRST_ROWS = 1_000
_ALL_ROWS = -1
# Greater than all text, as every BLOB is.
_ABOVE = b""

Pair = tuple[str, str]

_decode_jobs = msgspec.json.Decoder(list[Job]).decode
_decode_pairs = msgspec.json.Decoder(tuple[int, list[Pair]]).decode
_order = attrgetter("rank", "id")


def find_ready(connection: SqliteConnection, query: ClaimQuery, written: Iterable[Pair] = ()) -> list[Job]:
    """The first READY jobs that match, by (rank, id).

    `written`: pairs to which the batch has added READY jobs that are not counted yet.
    """
    if query.limit < 1:
        return []
    if query.picks:
        return _find_picks(connection, query)
    if (query.tenant, query.tenants, query.tasks, query.glob, query.skipped) == (None, None, None, None, ()):
        return _jobs(connection, JOBS["ready"], *rank.range_of(query.priority), int(query.mock), query.limit)
    by_name = query.glob is not None and query.tasks is None
    if by_name and len(found := _find_by_rank(connection, query, FIRST_ROWS)) == query.limit:
        return found
    pairs = _wanted_pairs(connection, query, written)
    if pairs is not None:
        return _find_pairs(connection, query, pairs)
    first, above = span(query.glob or "")
    if first and query.tenant is not None:
        names = (query.tenant, first, _ABOVE if above is None else above)
        return _jobs(connection, JOBS["ready_by_name"], *_wanted(query), *_limits(query), *names)
    return _find_by_rank(connection, query, _ALL_ROWS)


def _jobs(connection: SqliteConnection, sql: str, *values: object) -> list[Job]:
    answer = connection.value(sql, values)
    return _decode_jobs(answer) if answer is not None else []


def _find_picks(connection: SqliteConnection, query: ClaimQuery) -> list[Job]:
    low, high = rank.range_of(query.priority)
    arms = [
        (0, tenant, task, low, high, min(most, query.limit))
        for tenant, task, most in query.picks
        if most > 0 and query.wants(tenant, task)
    ]
    found: list[Job] = []
    for size, values in cut(arms, PAIRS_AT_ONCE):
        found += _jobs(connection, ready_of_picks(size), *values)
    found.sort(key=_order)
    return found[: query.limit]


def _find_pairs(connection: SqliteConnection, query: ClaimQuery, pairs: list[Pair]) -> list[Job]:
    low, high = rank.range_of(query.priority)
    arms = [
        (mock, tenant, task, low, high) for tenant, task in pairs for mock in ((0, 1) if query.mock else (0,))
    ]
    found: list[Job] = []
    for at in range(0, len(arms), PAIRS_AT_ONCE):
        some = arms[at : at + PAIRS_AT_ONCE]
        values = [value for arm in some for value in arm]
        found += _jobs(connection, ready_of_pairs(len(some)), *values, query.limit)
    if len(arms) > PAIRS_AT_ONCE:
        found.sort(key=_order)
    return found[: query.limit]


def _find_by_rank(connection: SqliteConnection, query: ClaimQuery, rows: int) -> list[Job]:
    return _jobs(connection, JOBS["ready_by_rank"], *_wanted(query), *_limits(query), rows)


def _wanted(query: ClaimQuery) -> tuple[str | None, ...]:
    """The parameters of the SQL condition `is_wanted`."""
    tenants, tasks = _tenants(query), query.tasks
    return (
        None if tenants is None else listed(tenants),
        None if tasks is None else listed(tasks),
        query.glob,
        listed(query.skipped),
    )


def _limits(query: ClaimQuery) -> tuple[int, ...]:
    return (*rank.range_of(query.priority), int(query.mock), query.limit)


def _tenants(query: ClaimQuery) -> list[str] | None:
    """The tenants to claim for; None: any."""
    if query.tenant is None:
        return None if query.tenants is None else [*dict.fromkeys(query.tenants)]
    return [query.tenant] if query.tenants is None or query.tenant in query.tenants else []


def _wanted_pairs(
    connection: SqliteConnection, query: ClaimQuery, written: Iterable[Pair]
) -> list[Pair] | None:
    """The pairs that may have matching jobs; None: too many to merge."""
    tenants = _tenants(query)
    if tenants is not None and query.tasks is not None and len(tenants) * len(query.tasks) <= MOST_PAIRS:
        named = [(tenant, task) for tenant in tenants for task in dict.fromkeys(query.tasks)]
        return [pair for pair in named if query.wants(*pair)]
    values = [*_wanted(query), PAIRS_LOOKED_AT + 1]
    if query.tenant is None:
        looked_at, pairs = _decode_pairs(connection.value(PAIRS, values))
    else:
        looked_at, pairs = _decode_pairs(connection.value(PAIRS_OF_TENANT, [*values, query.tenant]))
    pairs = [*dict.fromkeys([*pairs, *(pair for pair in written if query.wants(*pair))])]
    return pairs if looked_at <= PAIRS_LOOKED_AT and len(pairs) <= MOST_PAIRS else None
