"""A caller's own connection, found inside what SQLAlchemy and Django give people.

    SQLAlchemy   session ▶ connection ▶ the driver's        Session, Connection; AsyncSession, AsyncConnection
    Django       wrapper ▶ the driver's                     django.db.connection
    a driver     it is what it is

None of these libraries is needed here: they are known by the names of their modules.
"""

from typing import Any

from ...core.errors import BadInput

# SQLAlchemy begins with the first statement what its `commit` will end: without one that would end nothing.
_BEGIN = "SELECT 1"


def driver_of(connection: Any) -> Any:
    """The driver's own connection, with its library's transaction begun."""
    if is_of(connection, "django"):
        return connection.connection
    if not is_of(connection, "sqlalchemy") or is_of(connection, "sqlalchemy.ext.asyncio"):
        return connection
    if callable(getattr(connection, "connection", None)):
        connection = connection.connection()
    if hasattr(connection, "exec_driver_sql"):
        connection.exec_driver_sql(_BEGIN)
        connection = connection.connection
    return getattr(connection, "driver_connection", connection)


async def async_driver_of(connection: Any) -> Any:
    """The same for connections of asyncio's kind."""
    if not is_of(connection, "sqlalchemy.ext.asyncio"):
        return connection
    if not hasattr(connection, "get_raw_connection"):
        connection = await connection.connection()
    await connection.exec_driver_sql(_BEGIN)
    return (await connection.get_raw_connection()).driver_connection


def is_of(thing: Any, library: str) -> bool:
    """Whether something, or what it is made from, comes from a library."""
    return any(f"{kind.__module__}.".startswith(f"{library}.") for kind in type(thing).__mro__)


def kind_of(connection: Any) -> str:
    """What somebody brought, for an error."""
    return f"a {type(connection).__module__}.{type(connection).__qualname__}"


def nothing_to_lend(connection: Any) -> BadInput:
    """What `Store.lend` raises where there are no connections of asyncio's kind."""
    needed = "absent: only PostgreSQL has connections to await; others go to a queue of holdfast.connect"
    return BadInput("connection", f"a {type(connection).__name__}", needed=needed)
