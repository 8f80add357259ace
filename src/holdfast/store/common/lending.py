"""Finds the driver's connection inside a connection or session of SQLAlchemy or Django.

    SQLAlchemy   session ▶ connection ▶ the driver's        Session, Connection; AsyncSession, AsyncConnection
    Django       wrapper ▶ the driver's                     django.db.connection
    a driver     used as it is

None of these libraries is imported: they are recognised by the names of their modules.
"""

from typing import Any

from ...core.errors import BadInput

# SQLAlchemy begins a transaction with the first statement; without one its `commit` would do nothing.
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
    """`driver_of` for asyncio connections."""
    if not is_of(connection, "sqlalchemy.ext.asyncio"):
        return connection
    if not hasattr(connection, "get_raw_connection"):
        connection = await connection.connection()
    await connection.exec_driver_sql(_BEGIN)
    return (await connection.get_raw_connection()).driver_connection


def is_of(thing: Any, library: str) -> bool:
    """Whether an object's class, or one of its base classes, comes from a library."""
    return any(f"{kind.__module__}.".startswith(f"{library}.") for kind in type(thing).__mro__)


def kind_of(connection: Any) -> str:
    """The class of a connection, for an error text."""
    return f"a {type(connection).__module__}.{type(connection).__qualname__}"


async def lend_nothing(connection: Any) -> Any:
    """`Store.lend` of stores without asyncio connections."""
    needed = "absent: only PostgreSQL has connections to await; others go to a queue of holdfast.connect"
    raise BadInput("connection", f"a {type(connection).__name__}", needed=needed)
