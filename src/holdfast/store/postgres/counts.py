"""The counts of the PostgreSQL store: batches append differences, and now and then a process sums them up."""

import random

import psycopg

from ...core.bounds import MINUTE_MS
from ...core.errors import Conflict, HoldfastError
from ..common.clock import Clock
from .pool import Pool

# After how many appended differences a process sums them up.
FOLD_ROWS = 500
# How long the marks of committed transactions are kept: much longer than a process waits for an outcome.
MARKS_KEPT_MS = 10 * MINUTE_MS


class Folding:
    """Sums up the counts, and deletes old marks."""

    def __init__(self, sql: dict[str, str], pool: Pool, begin: str) -> None:
        self._sql, self._pool, self._begin = sql, pool, begin
        # Random, so that of many short-lived processes some do it too.
        self.appended = random.randrange(FOLD_ROWS)

    def fold(self, clock: Clock) -> None:
        """Sum up the counts, unless another process is doing it."""
        self.appended = 0
        try:
            before_ms = clock() - MARKS_KEPT_MS
            with self._pool.connection() as connection:
                if not connection.prepares:
                    connection.execute(self._begin + self._pool.settings)
                connection.rows(self._sql["fold_counts"], (before_ms,))
                if not connection.prepares:
                    connection.execute("COMMIT")
        except (psycopg.Error, HoldfastError, Conflict):
            # The next call does it.
            pass
