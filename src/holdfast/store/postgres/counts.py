"""The counts of the PostgreSQL store: differences that batches append, which a process folds now and then."""

import random
from typing import Any

import psycopg

from ...core.bounds import MINUTE_MS
from ...core.errors import Conflict, HoldfastError
from ..fairness import Pair
from .connection import OwnConnection
from .fairness import taken_of
from .pool import Pool

# When so many differences were appended, a process folds them.
FOLD_ROWS = 500
# How long it can be seen whether a transaction was committed: much longer than anybody waits to know.
MARKS_KEPT_MS = 10 * MINUTE_MS


class Folding:
    """When one store folds the counts, forgets old marks, and marks pairs as empty that are."""

    def __init__(self, schema: str, sql: dict[str, str], pool: Pool, begin: str) -> None:
        self._schema, self._sql, self._pool, self._begin = schema, sql, pool, begin
        # Not from 0: where processes do little, and go, some of them fold all the same.
        self.appended = random.randrange(FOLD_ROWS)
        # Pairs that may be marked as having READY jobs and have none.
        self._perhaps_empty: set[Pair] = set()

    def fold(self, now_ms: int) -> None:
        """Fold, unless another process is at it."""
        self.appended = 0
        try:
            with self._pool.connection() as connection:
                rows = self._run(connection, "fold_counts", (now_ms - MARKS_KEPT_MS,))
                self._perhaps_empty.update((tenant, task) for tenant, task in rows)
                if pairs := [*self._perhaps_empty]:
                    # By itself, because it locks pairs that others may be adding to.
                    self._run(connection, "empty_pairs", (taken_of(self._schema, pairs, {}),))
                    self._perhaps_empty.difference_update(pairs)
        except (psycopg.Error, HoldfastError, Conflict):
            # The next one folds more.
            pass

    def _run(self, connection: OwnConnection, name: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Run a statement as a transaction by itself."""
        if connection.prepares:
            return connection.rows(self._sql[name], values)
        connection.execute(self._begin + self._pool.settings)
        rows = connection.rows(self._sql[name], values)
        connection.execute("COMMIT")
        return rows
