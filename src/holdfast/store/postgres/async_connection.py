"""Connections of asyncio's kind: a batch runs in a thread, and each of its statements on the loop.

    the loop    await queue.add(…, connection=…) ··· the caller waits ···▶ the reply
                     │           ▲ │     ▲ │
                     │ statement │ │ rows│ │
    a thread         └▶ fn(txn) ─┘ └▶ ───┘ └▶ …

So there is one way to write jobs, whatever the library and its kind.
"""

import asyncio
import re
import sys
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from .connection import Answer, Link, Values

T = TypeVar("T")

# A place for a value, and the array that it is cast to: arrays travel as text, which asyncpg must be told.
_PLACE = re.compile(r"%(?:s|\((\w+)\)s)(?:::(\w+\[\]))?")


class AwaitedLink(Link):
    """A connection that lives on a loop, used from another thread while the loop waits."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def ask(self, sql: str, values: Values = ()) -> Answer:
        """Have the loop run a statement."""
        return asyncio.run_coroutine_threadsafe(self._ask(sql, values), self._loop).result()

    def _ask(self, sql: str, values: Values) -> Coroutine[Any, Any, Answer]:
        raise NotImplementedError


class AsyncPsycopgLink(AwaitedLink):
    """One of psycopg's."""

    async def _ask(self, sql: str, values: Values) -> Answer:
        cursor = psycopg.AsyncCursor(self._connection, row_factory=tuple_row)
        await cursor.execute(sql, values or None)
        return Answer(await cursor.fetchall() if cursor.description else [], cursor.rowcount)

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self._connection.closed

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or will be with the first statement."""
        idle = self._connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return not (idle and self._connection.autocommit)


class AsyncpgLink(AwaitedLink):
    """One of asyncpg's."""

    async def _ask(self, sql: str, values: Values) -> Answer:
        library = sys.modules["asyncpg"]
        try:
            if not values and not sql.startswith("SELECT"):
                return Answer([], _count(await self._connection.execute(sql)))
            numbered, names = in_numbers(sql)
            named: dict[Any, Any] = values if isinstance(values, dict) else dict(enumerate(values))
            statement = await self._connection.prepare(numbered)
            rows = await statement.fetch(*(named[name] for name in names))
            return Answer([tuple(row) for row in rows], _count(statement.get_statusmsg()))
        except library.PostgresError as error:
            raise _as_psycopg(error) from None
        except (library.InterfaceError, OSError) as error:
            raise psycopg.OperationalError(str(error)) from None

    @property
    def is_open(self) -> bool:
        """Whether it leads anywhere, as far as is known."""
        return not self._connection.is_closed()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._connection.is_in_transaction())


@lru_cache(maxsize=256)
def in_numbers(sql: str) -> tuple[str, list[Any]]:
    """A statement with its places numbered, as PostgreSQL itself has it, and what goes into each."""
    names: list[Any] = []

    def number(found: re.Match[str]) -> str:
        name: Any = found[1] or len(names)
        if name not in names:
            names.append(name)
        cast = f"::text::{found[2]}" if found[2] else ""
        return f"${names.index(name) + 1}{cast}"

    return _PLACE.sub(number, sql), names


def _count(status: str) -> int:
    """How many rows: the last word of what PostgreSQL says when it has done something."""
    word = status.rpartition(" ")[2]
    return int(word) if word.isdigit() else -1


def _as_psycopg(error: Any) -> psycopg.Error:
    """The same error as psycopg would raise it: one table of them is enough."""
    try:
        return psycopg.errors.lookup(error.sqlstate)(str(error))
    except KeyError:
        return psycopg.DatabaseError(str(error))
