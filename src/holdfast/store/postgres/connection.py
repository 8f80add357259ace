"""One connection to PostgreSQL, ours or a caller's own: the same verbs, whatever the library."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from ...core.errors import Conflict

Values = tuple[Any, ...] | dict[str, Any]
Connection = psycopg.Connection[Any]


class Answer(NamedTuple):
    """What came of a statement: its rows, and how many it found or changed."""

    rows: list[tuple[Any, ...]]
    changed: int


class Link(ABC):
    """A connection. Not for two threads at once."""

    @abstractmethod
    def ask(self, sql: str, values: Values = ()) -> Answer:
        """Run one statement; without values, several at once, of which the last one answers."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def later(self, sql: str, values: Values) -> None:
        """Run a statement whose answer nobody needs; before the next one, or with the commit."""
        self.ask(sql, values)

    def alone(self, sql: str, values: Values) -> None:
        """Run a statement that may be all of a transaction."""
        self.later(sql, values)

    def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        return self.ask(sql, values).rows

    def value(self, sql: str, values: Values = ()) -> Any:
        """The first column of the first row, or None."""
        rows = self.ask(sql, values).rows
        return rows[0][0] if rows else None

    def change(self, sql: str, values: Values = ()) -> int:
        """Run a statement; how many rows it changed."""
        return self.ask(sql, values).changed

    def script(self, sql: str) -> tuple[Any, ...] | None:
        """Run several statements at once; the first row of the last of them."""
        rows = self.ask(sql).rows
        return rows[0] if rows else None


class PsycopgLink(Link):
    """One of psycopg's, for threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # A cursor of our own making: a caller's connection may make others.
        self._cursor = psycopg.Cursor(connection, row_factory=tuple_row)

    def ask(self, sql: str, values: Values = ()) -> Answer:
        """Run a statement, or several."""
        cursor = self._cursor.execute(sql, values or None)
        while not values and cursor.nextset():
            pass
        # Whether it has rows, by the answer itself: a cursor describes each column first.
        has_rows = cursor.pgresult is not None and cursor.pgresult.nfields > 0
        return Answer(cursor.fetchall() if has_rows else [], cursor.rowcount)

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


class Seeing(Conflict):
    """A batch was begun as one that reads nothing, and is to be begun anew."""


class OwnLink(PsycopgLink):
    """One of ours: it begins and ends its transactions, and sends the last statement together with COMMIT."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._writer = psycopg.ClientCursor(connection)
        self._later: list[tuple[str, Values]] = []
        self._blind = self._alone = self._silent = False

    def written(self, sql: str, values: Values) -> str:
        """A statement as it is sent among others: with its values in it."""
        return self._writer.mogrify(sql, values)

    def begin_blindly(self, sql: str) -> None:
        """Begin with the commit: until then nothing is asked, and who asks for anything gets `Seeing`."""
        self._later, self._blind = [(sql, ())], True

    def be_silent(self, on: bool) -> None:
        """Whether who asks for anything gets `Seeing`."""
        self._silent = on

    def later(self, sql: str, values: Values) -> None:
        """Keep a statement for the next."""
        self._later.append((sql, values))

    def alone(self, sql: str, values: Values) -> None:
        """Keep a statement that, where nothing was asked before nor is kept, is a transaction by itself."""
        # Behind a pooler a transaction begins with its settings, and nothing is prepared.
        self._alone = self._blind and len(self._later) == 1 and self.connection.prepare_threshold is not None
        self.later(sql, values)

    def ask(self, sql: str, values: Values = ()) -> Answer:
        """Run a statement, after those that were kept."""
        if self._blind or self._silent:
            raise Seeing("a batch that was to read nothing has read")
        kept, self._later = self._later, []
        for one in kept:
            super().ask(*one)
        return super().ask(sql, values)

    def commit(self) -> None:
        """Commit, with what was kept, all at once."""
        kept, self._later, self._blind = self._later, [], False
        alone, self._alone = self._alone, False
        if alone and len(kept) == 2:
            self._cursor.execute(*kept[1], prepare=True)
            return
        told = [self.written(sql, values) if values else sql for sql, values in kept]
        # Not to be prepared, nor counted as something that might be: no two are the same, and some are large.
        self._cursor.execute(";".join([*told, "COMMIT"]), prepare=False)

    def roll_back(self) -> None:
        """Undo what was done; a connection that cannot is closed."""
        self._later, self._blind, self._alone, self._silent = [], False, False, False
        try:
            if self.is_open and self.in_transaction:
                super().ask("ROLLBACK")
        except psycopg.Error:
            self.close()
