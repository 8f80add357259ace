"""A caller's own connection: found inside what people hold, and looked at before it is used."""

from typing import Any

import psycopg

from ...core.errors import BadInput
from ..common.lending import async_driver_of, driver_of, is_of, kind_of
from .async_connection import AsyncpgLink, AsyncPsycopgLink
from .connection import Link, PsycopgLink
from .url import Address

NEEDED = (
    "a psycopg.Connection (psycopg 3), or a Session or Connection of SQLAlchemy (postgresql+psycopg://) or "
    "django.db.connection that has one; those of asyncio go to a queue of holdfast.connect_async"
)
ASYNC_NEEDED = (
    "a psycopg.AsyncConnection, one of asyncpg, or an AsyncSession or AsyncConnection of SQLAlchemy that has "
    "one; others go to a queue of holdfast.connect"
)
# By the library: how its transactions are begun.
_WAYS = {
    "django": "with transaction.atomic()",
    "sqlalchemy": "without isolation_level AUTOCOMMIT",
    "asyncpg": "async with connection.transaction()",
    "psycopg": "with connection.transaction()",
}

_WHERE = "SELECT current_database(), pg_postmaster_start_time()::text, to_regclass(%s) IS NOT NULL"


def lent(connection: Any) -> Link:
    """What leads to PostgreSQL by a caller's connection; one of asyncio's kind has gone through `lend`."""
    if isinstance(connection, Link):
        return connection
    found = driver_of(connection)
    if found is None:
        # Django's, which has not been used yet, and so is in no transaction.
        raise _outside(connection)
    if not isinstance(found, psycopg.Connection):
        raise BadInput("connection", kind_of(connection), needed=NEEDED)
    link = PsycopgLink(found)
    return _checked(link, connection, begun=link.in_transaction or not found.autocommit)


async def lend(connection: Any) -> Link:
    """The same for connections of asyncio's kind; the link is for another thread than the loop's."""
    found = await async_driver_of(connection)
    if isinstance(found, psycopg.AsyncConnection):
        link: Link = AsyncPsycopgLink(found)
    elif is_of(found, "asyncpg") and hasattr(found, "is_in_transaction"):
        link = AsyncpgLink(found)
    else:
        raise BadInput("connection", kind_of(connection), needed=ASYNC_NEEDED)
    return _checked(link, connection, begun=link.is_open and link.in_transaction)


def _checked(link: Link, connection: Any, *, begun: bool) -> Link:
    if not link.is_open:
        raise BadInput("connection", "closed", needed="open")
    if not begun:
        raise _outside(connection)
    return link


def _outside(connection: Any) -> BadInput:
    way = next((way for library, way in _WAYS.items() if is_of(connection, library)), "BEGIN first")
    return BadInput("connection", "not in a transaction", needed=f"in one: {way}")


def place_of(link: Link, schema: str) -> tuple[str, str, bool]:
    """Which database of which server a connection leads to, and whether the schema is there."""
    (row,) = link.rows(_WHERE, (f'"{schema}".version',))
    return row[0], row[1], row[2]


def check_place(link: Link, address: Address, ours: tuple[str, str, bool]) -> None:
    """Refuse a connection that leads somewhere else."""
    theirs = place_of(link, address.schema)
    if theirs != ours:
        raise BadInput("connection", f"one to the database {theirs[0]!r}", needed=f"one to {address.shown}")
