"""The counts of the PostgreSQL store: differences that batches append, which somebody folds now and then."""

from .postgres_link import Link
from .postgres_sql import lock_number, numbers, texts


def fold(link: Link, sql: dict[str, str], schema: str, marks_before_ms: int) -> None:
    """Fold the counts and forget old marks, unless somebody is at it. The link is in a transaction."""
    if not link.value("SELECT pg_try_advisory_xact_lock(%s)", (lock_number(schema, "fold"),)):
        return
    link.change(sql["forget_marks"], (marks_before_ms,))
    if zero := link.rows(sql["fold"]):
        tenants, tasks, places, states = zip(*zero, strict=True)
        values = (texts(tenants), texts(tasks), numbers(places), texts(states))
        link.change(sql["drop_zero"], values)
