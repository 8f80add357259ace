"""How steps are committed: also in a transaction of the caller's own connection (`ctx.transaction`)."""

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ..core.errors import BadInput
from ..core.notes import StepResult
from ..store.common.lending import is_of, kind_of
from .encoding import decode

T = TypeVar("T")
NEEDED = (
    "without an open transaction: ctx.transaction begins one, and commits it. Commit or roll back first, "
    "also after you have only read"
)
ENDED = "left to ctx.transaction until the block ends: what was written before is kept without its step"


class StepTransaction:
    """A step in the caller's own transaction: whether an earlier run has done it, and its result."""

    def __init__(self, entry: StepResult | None) -> None:
        self.done = entry is not None
        self.result: Any = None if entry is None else decode(entry.result)


@contextmanager
def begun(connection: Any) -> Iterator[None]:
    """Begin a transaction; it is committed at the end of the block, or rolled back."""
    if is_of(connection, "django"):
        atomic = sys.modules["django.db.transaction"].atomic
        with atomic(using=connection.alias, durable=True):
            yield
    elif is_of(connection, "sqlalchemy"):
        _check_idle_session(connection)
        with connection.begin() as transaction, _noticed(lambda: transaction.is_active):
            yield
    elif is_of(connection, "psycopg"):
        _check_idle(connection, connection.info.transaction_status.name == "IDLE")
        with connection.transaction():
            yield
    elif is_of(connection, "sqlite3"):
        with _of_sqlite(connection):
            yield
    else:
        needed = "of psycopg, sqlite3, SQLAlchemy or Django; those of asyncio go to an AsyncContext"
        raise BadInput("connection", kind_of(connection), needed=needed)


@contextmanager
def _of_sqlite(connection: Any) -> Iterator[None]:
    # Since Python 3.12 there are connections that always have a transaction open.
    if getattr(connection, "autocommit", None) is not False:
        _check_idle(connection, not connection.in_transaction)
        connection.execute("BEGIN IMMEDIATE")
    try:
        with _noticed(lambda: connection.in_transaction):
            yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


@asynccontextmanager
async def begun_async(connection: Any) -> AsyncIterator[None]:
    """The same on a connection of asyncio."""
    if is_of(connection, "sqlalchemy"):
        _check_idle_session(connection)
        async with connection.begin() as transaction:
            with _noticed(lambda: transaction.is_active):
                yield
    elif is_of(connection, "psycopg"):
        _check_idle(connection, connection.info.transaction_status.name == "IDLE")
        async with connection.transaction():
            yield
    elif is_of(connection, "asyncpg"):
        _check_idle(connection, not connection.is_in_transaction())
        async with connection.transaction():
            yield
    elif is_of(connection, "aiosqlite"):
        _check_idle(connection, not connection.in_transaction)
        await connection.execute("BEGIN IMMEDIATE")
        try:
            with _noticed(lambda: connection.in_transaction):
                yield
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()
    else:
        raise BadInput(
            "connection", kind_of(connection), needed="of psycopg, asyncpg, aiosqlite or SQLAlchemy"
        )


@contextmanager
def _noticed(is_open: Callable[[], bool]) -> Iterator[None]:
    """Name the cause where a step cannot be recorded because the block has ended the transaction itself."""
    try:
        yield
    except BadInput as error:
        if error.name != "connection" or is_open():
            raise
        raise BadInput("connection", "committed or rolled back in the block", needed=ENDED) from error


def _check_idle_session(connection: Any) -> None:
    # An engine has none.
    if hasattr(connection, "in_transaction"):
        _check_idle(connection, not connection.in_transaction())


def _check_idle(connection: Any, is_idle: bool) -> None:
    if not is_idle:
        raise BadInput("connection", f"{kind_of(connection)} in a transaction", needed=NEEDED)


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end, though the caller is cancelled meanwhile: a commit that has begun counts."""
    from asyncio import CancelledError, ensure_future, shield, wait

    task = ensure_future(work)
    try:
        return await shield(task)
    except CancelledError:
        await wait([task])
        raise
