"""The counts of the PostgreSQL store: differences that batches append, which somebody folds now and then."""

from ..fairness import Pair
from .connection import Link
from .fairness import PostgresTurns
from .statements import lock_number, numbers, texts


def fold(link: Link, sql: dict[str, str], schema: str, marks_before_ms: int) -> list[Pair]:
    """Fold the counts and forget old marks, unless somebody is at it. The link is in a transaction.

    Whose READY jobs have become more or fewer since the last time: of these some may have none.
    """
    if not link.value("SELECT pg_try_advisory_xact_lock(%s)", (lock_number(schema, "fold"),)):
        return []
    link.change(sql["forget_marks"], (marks_before_ms,))
    rows = link.rows(sql["fold"])
    if zero := [row[1:] for row in rows if row[0]]:
        tenants, tasks, places, states = zip(*zero, strict=True)
        values = (texts(tenants), texts(tasks), numbers(places), texts(states))
        link.change(sql["drop_zero"], values)
    return [(tenant, task) for is_zero, tenant, task, _, _ in rows if not is_zero]


def rest(link: Link, sql: dict[str, str], schema: str, pairs: list[Pair]) -> None:
    """Let lanes rest that are marked as having READY jobs and have none. The link is in a transaction."""
    link.value(sql["rest"], PostgresTurns(link, sql, schema).counted(dict.fromkeys(pairs, 0)))
