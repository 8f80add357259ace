"""One connection to PostgreSQL, ours or a caller's own: the same three verbs for either."""

from typing import Any

import psycopg
from psycopg.rows import tuple_row

Values = tuple[Any, ...] | dict[str, Any]
Connection = psycopg.Connection[Any]


class Link:
    """A connection. Not for two threads at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # A cursor of our own making: a caller's connection may make others.
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self._cursor.execute(sql, values).fetchall()

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""
        row = self._cursor.execute(sql, values).fetchone()
        return row[0] if row else None

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement; how many rows it changed."""
        return self._cursor.execute(sql, values).rowcount

    def script(self, sql: str) -> tuple[Any, ...] | None:
        """Run several statements at once; the first row of the last of them."""
        cursor = self._cursor.execute(sql)
        while cursor.nextset():
            pass
        return cursor.fetchone() if cursor.description else None

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self.connection.closed

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE

    def close(self) -> None:
        """Let go."""
        self.connection.close()
