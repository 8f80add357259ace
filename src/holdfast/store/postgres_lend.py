"""A caller's own connection: found inside what people hold, and looked at before it is used."""

from typing import Any

import psycopg

from ..core.errors import BadInput
from .postgres_link import Link
from .postgres_url import Address

NEEDED = (
    "a psycopg.Connection (psycopg 3, not async), or a SQLAlchemy or Django connection that has one; "
    "asyncpg and psycopg.AsyncConnection are not taken"
)
# Where SQLAlchemy and Django keep it, and how deep.
_INSIDE = ("driver_connection", "dbapi_connection", "connection")
_DEEP = 4

_WHERE = "SELECT current_database(), pg_postmaster_start_time()::text, to_regclass(%s) IS NOT NULL"


def lent(connection: Any) -> Link:
    """The psycopg connection of a caller."""
    found = connection
    for _ in range(_DEEP):
        if isinstance(found, psycopg.Connection):
            break
        found = next((inside for name in _INSIDE if (inside := getattr(found, name, None)) is not None), None)
    if not isinstance(found, psycopg.Connection):
        kind = type(connection)
        raise BadInput("connection", f"a {kind.__module__}.{kind.__qualname__}", needed=NEEDED)
    if found.closed:
        raise BadInput("connection", "closed", needed="open")
    link = Link(found)
    if found.autocommit and not link.in_transaction:
        raise BadInput("connection", "not in a transaction", needed="in one: with connection.transaction()")
    return link


def place_of(link: Link, schema: str) -> tuple[str, str, bool]:
    """Which database of which server a connection leads to, and whether the schema is there."""
    (row,) = link.rows(_WHERE, (f'"{schema}".version',))
    return row[0], row[1], row[2]


def check_place(link: Link, address: Address, ours: tuple[str, str, bool]) -> None:
    """Refuse a connection that leads somewhere else."""
    theirs = place_of(link, address.schema)
    if theirs != ours:
        raise BadInput("connection", f"one to the database {theirs[0]!r}", needed=f"one to {address.shown}")
