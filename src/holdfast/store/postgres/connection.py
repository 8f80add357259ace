"""One connection to PostgreSQL, ours or a caller's own, with the same methods for every library."""

import os
import re
import select
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.rows import tuple_row

from .statements import literal, numbered

Values = tuple[Any, ...] | dict[str, Any]

_NUMBER = re.compile(r"\$(\d+)")
# How many prepared statements a session has at most.
MOST_PREPARED = 300
# How long Ctrl-C waits until the server has been asked to cancel the statement.
CANCEL_S = 5.0
_OK = (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.EMPTY_QUERY)
_IDLE = psycopg.pq.TransactionStatus.IDLE
_BAD = psycopg.pq.ConnStatus.BAD


class QueryResult(NamedTuple):
    """The result of a statement: its rows, and how many it returned or changed."""

    rows: list[tuple[Any, ...]]
    changed: int


class PostgresConnection(ABC):
    """A connection, used by one thread at a time."""

    @abstractmethod
    def execute(self, sql: str, values: Values = ()) -> QueryResult:
        """Run one statement, or several without values; return the result of the last."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.execute(sql, values).rows

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""
        rows = self.execute(sql, values).rows
        return rows[0][0] if rows else None

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement and return how many rows it changed."""
        return self.execute(sql, values).changed


class OwnConnection(PostgresConnection):
    """A connection of the store, used through libpq, which takes fewer calls than psycopg's cursors.

    All statements with values are prepared, unless there is a pooler (`prepares`).
    """

    def __init__(self, connection: "psycopg.Connection[Any]", *, prepares: bool) -> None:
        self._pid = os.getpid()
        self.connection, self.prepares = connection, prepares
        self.pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        # Not psycopg's generators: they take as long as all else that is done for a statement here.
        self._readable = select.poll()
        self._readable.register(self.pgconn.socket, select.POLLIN)
        self._prepared: dict[str, bytes] = {}
        # See `Pool`.
        self.permit: object = None
        # The number of the session and when it began, which tells it from all others; not behind a pooler.
        self.session = (0, "")

    def __del__(self) -> None:
        # Lost by a KeyboardInterrupt before it was returned to the pool. In a forked child it is left open.
        if self._pid == os.getpid():
            self.close()

    def execute(self, sql: str, values: Values = ()) -> QueryResult:
        """Run a statement, or several."""
        if not values:
            self.pgconn.send_query(sql.encode())
            return self._answer()
        text, names = numbered(sql)
        return self.execute_numbered(text, [_written(values[name]) for name in names])

    def execute_numbered(self, sql: str, values: Sequence[bytes | None]) -> QueryResult:
        """Run a statement with values at `$1`, `$2`, …"""
        if self.prepares:
            self.pgconn.send_query_prepared(self._prepared.get(sql) or self.prepare(sql), values)
        else:
            self.pgconn.send_query_params(sql.encode(), values)
        return self._answer()

    def call(self, sql: str, values: Sequence[bytes | None]) -> None:
        """Run a prepared statement whose result is not needed."""
        self.pgconn.send_query_prepared(self._prepared.get(sql) or self.prepare(sql), values)
        self.receive()

    def prepare(self, sql: str) -> bytes:
        """Prepare a statement, if necessary; return its name."""
        if (name := self._prepared.get(sql)) is not None:
            return name
        if len(self._prepared) >= MOST_PREPARED:
            self.execute("DEALLOCATE ALL")
            self._prepared.clear()
        name = b"holdfast_%d" % len(self._prepared)
        self.pgconn.send_prepare(name, sql.encode())
        self._answer()
        self._prepared[sql] = name
        return name

    def written(self, sql: str, values: Sequence[object]) -> str:
        """A statement with its values in place of `$1`, `$2`, …, to be sent together with others."""
        literals = [literal(value) for value in values]
        if self.prepares:
            return f"EXECUTE {self.prepare(sql).decode()}({', '.join(literals)})"
        return _NUMBER.sub(lambda found: literals[int(found[1]) - 1], sql)

    def _answer(self) -> QueryResult:
        result = self.receive()
        if not result.nfields:
            return QueryResult([], result.command_tuples or 0)
        self._transformer.set_pgresult(result)
        return QueryResult(self._transformer.load_rows(0, result.ntuples, tuple), result.ntuples)

    def receive(self) -> Any:
        """Wait for the results of what was sent; return the last, or raise the first error."""
        pgconn, results = self.pgconn, []
        try:
            if pgconn.flush():
                # It does not fit into the buffer of the socket.
                results = self.connection.wait(generators.execute(pgconn))
            while True:
                while pgconn.is_busy():
                    self._readable.poll()
                    pgconn.consume_input()
                if (result := pgconn.get_result()) is None:
                    break
                results.append(result)
        except (psycopg.Error, OSError):
            raise
        except BaseException:
            # An interrupt: Ctrl-C, `sys.exit` in a signal handler, the soft limit of a handler.
            with suppress(psycopg.Error):  # of a server that does not answer: the interrupt is what counts
                self.connection.cancel_safe(timeout=CANCEL_S)
            raise
        for result in results:
            if result.status not in _OK:
                raise psycopg.errors.error_from_result(result)
        return results[-1]

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return self.pgconn.status != _BAD

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.pgconn.transaction_status != _IDLE

    @property
    def has_news(self) -> bool:
        """Whether something has arrived that was not read."""
        return bool(self._readable.poll(0))

    def roll_back(self) -> None:
        """Roll back; the connection is closed if that fails."""
        try:
            if self.is_open and self.in_transaction:
                self.execute("ROLLBACK")
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class CallersConnection(PostgresConnection):
    """A caller's own connection of psycopg."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self.driver = connection
        # An explicit cursor: the caller's connection may have another cursor factory.
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)

    def execute(self, sql: str, values: Values = ()) -> QueryResult:
        """Run a statement, or several."""
        # Several statements cannot be prepared; a connection with `prepare_threshold=0` would prepare all.
        cursor = self._cursor.execute(sql, values or None, prepare=None if values else False)
        while not values and cursor.nextset():
            pass
        return QueryResult(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self.driver.closed

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.driver.info.transaction_status != _IDLE


def _written(value: Any) -> bytes | None:
    """A value in PostgreSQL's text format."""
    if isinstance(value, str):
        if "\0" in value:
            # libpq would truncate it there.
            raise psycopg.DataError("PostgreSQL has no text with NUL in it")
        return value.encode()
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    return None if value is None else str(value).encode()
