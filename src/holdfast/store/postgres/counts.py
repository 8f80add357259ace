"""The counts of the PostgreSQL store: batches append differences, and now and then a process sums them up."""

import random
from typing import Any

import psycopg

from ...core.bounds import MINUTE_MS
from ...core.errors import Conflict, HoldfastError
from ..fairness import Pair
from .connection import OwnConnection
from .fairness import taken_of
from .pool import Pool

# After how many appended differences a process sums them up.
FOLD_ROWS = 500
# How long the marks of committed transactions are kept: much longer than a process waits for an outcome.
MARKS_KEPT_MS = 10 * MINUTE_MS


class Folding:
    """Sums up the counts, deletes old marks, and marks pairs without READY jobs as empty."""

    def __init__(self, schema: str, sql: dict[str, str], pool: Pool, begin: str) -> None:
        self._schema, self._sql, self._pool, self._begin = schema, sql, pool, begin
        # Random, so that of many short-lived processes some do it too.
        self.appended = random.randrange(FOLD_ROWS)
        # Pairs that are marked as having READY jobs, and may have none.
        self.perhaps_empty: set[Pair] = set()

    def fold(self, now_ms: int) -> None:
        """Sum up the counts, unless another process is doing it."""
        self.appended = 0
        try:
            with self._pool.connection() as connection:
                rows = self._run(connection, "fold_counts", (now_ms - MARKS_KEPT_MS,))
                self.perhaps_empty.update((tenant, task) for tenant, task in rows)
                if pairs := [*self.perhaps_empty]:
                    # In its own transaction, because it locks pairs that others may be adding to.
                    self._run(connection, "empty_pairs", (taken_of(self._schema, pairs, {}),))
                    self.perhaps_empty.difference_update(pairs)
        except (psycopg.Error, HoldfastError, Conflict):
            # The next call does it.
            pass

    def _run(self, connection: OwnConnection, name: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run a statement as its own transaction."""
        if connection.prepares:
            return connection.rows(self._sql[name], values)
        connection.execute(self._begin + self._pool.settings)
        rows = connection.rows(self._sql[name], values)
        connection.execute("COMMIT")
        return rows
