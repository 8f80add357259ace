"""A caller's own connection: finds the driver's inside that of SQLAlchemy or Django, and its transaction.

    SQLAlchemy   session ▶ connection ▶ the driver's        Session, Connection; AsyncSession, AsyncConnection
    Django       wrapper ▶ the driver's                     django.db.connection
    a driver     used as it is

    a transaction is open        the command is part of it
    none, in autocommit          `InAutocommit`: the command is run by itself, and committed
    none, and not in autocommit  `BadInput`: the library would begin one that perhaps nothing commits

None of these libraries is imported: they are recognised by the names of their modules.
"""

from typing import Any

from ...core.errors import BadInput

# Libraries begin a transaction at the driver with the first statement; SQLAlchemy commits none before that.
_BEGIN = "SELECT 1"
# How to begin a transaction, by library; for error texts.
_WAYS = {
    "django": "transaction.atomic()",
    "sqlalchemy": "its begin()",
    "psycopg": "connection.transaction()",
    "sqlite3": "BEGIN IMMEDIATE",
    "aiosqlite": "BEGIN IMMEDIATE",
}


class InAutocommit(Exception):
    """The caller's connection has no open transaction, and commits each statement."""


def driver_of(connection: Any) -> Any:
    """The driver's own connection, in a transaction if the library is in one.

    `BadInput` if SQLAlchemy is in none and not in autocommit: it would begin one; or if its transaction has
    failed.
    """
    try:
        return _opened(connection)
    except Exception as error:
        # What SQLAlchemy says of a session, and PostgreSQL of a transaction.
        is_failed = type(error).__name__ == "PendingRollbackError"
        if not (is_failed or getattr(getattr(error, "orig", error), "sqlstate", None) == "25P02"):
            raise
    raise has_failed()


def _opened(connection: Any) -> Any:
    if is_of(connection, "django"):
        connection.ensure_connection()
        if connection.in_atomic_block:
            connection.connection.cursor().execute(_BEGIN)
        return connection.connection
    if not is_of(connection, "sqlalchemy") or is_of(connection, "sqlalchemy.ext.asyncio"):
        return connection
    if not hasattr(connection, "in_transaction"):
        # Such as an Engine or a sessionmaker.
        raise BadInput(
            "connection", kind_of(connection), needed="a Session or Connection of it in a transaction"
        )
    if not (connection.in_transaction() or _will_autocommit(connection)):
        raise outside(connection)
    if callable(getattr(connection, "connection", None)):
        connection = connection.connection()
    if not hasattr(connection, "exec_driver_sql"):
        return connection
    connection.exec_driver_sql(_BEGIN)
    driver, adapted = connection.connection.driver_connection, connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite" and not (driver.in_transaction or in_autocommit(adapted)):
        # The driver begins before the first INSERT, which is ours.
        connection.exec_driver_sql(f"BEGIN {driver.isolation_level}")
    return driver


async def async_driver_of(connection: Any) -> Any:
    """`driver_of` for asyncio connections."""
    if not is_of(connection, "sqlalchemy.ext.asyncio"):
        return connection
    if not hasattr(connection, "run_sync"):
        needed = "an AsyncSession or AsyncConnection of it in a transaction"
        raise BadInput("connection", kind_of(connection), needed=needed)
    return await connection.run_sync(driver_of)


def _will_autocommit(connection: Any) -> bool:
    """Whether a session or connection of SQLAlchemy, which is in no transaction, has the level AUTOCOMMIT."""
    if getattr(connection, "closed", False):
        raise BadInput("connection", "closed", needed="open")
    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    if hasattr(bind, "connect"):
        # A new connection has the level of its engine.
        with bind.connect() as other:
            return in_autocommit(other.connection.dbapi_connection)
    return in_autocommit(bind.connection.dbapi_connection)


def in_autocommit(driver: Any) -> bool:
    """Whether a driver's connection commits each statement that is outside of a transaction."""
    autocommit = getattr(driver, "autocommit", None)
    if isinstance(autocommit, bool):
        return autocommit
    # Connections of asyncpg have no other mode. `sqlite3` has the older way where `autocommit` is no bool.
    return is_of(driver, "asyncpg") or getattr(driver, "isolation_level", "") is None


def outside(connection: Any) -> BadInput:
    """The error for a connection that is neither in a transaction nor in autocommit."""
    way = next((way for library, way in _WAYS.items() if is_of(connection, library)), "BEGIN")
    needed = f"in one (begin it by {way}) or in autocommit"
    return BadInput("connection", "not in a transaction", needed=needed)


def has_failed() -> BadInput:
    """The error for a connection whose transaction can only be rolled back."""
    return BadInput("connection", "in a transaction that has failed", needed="rolled back, and begun again")


def is_of(thing: Any, library: str) -> bool:
    """Whether an object's class, or one of its base classes, comes from a library."""
    return any(f"{kind.__module__}.".startswith(f"{library}.") for kind in type(thing).__mro__)


def kind_of(connection: Any, driver: Any = None) -> str:
    """The class of a connection, and that of the driver's inside it, for an error text."""
    kind = f"a {type(connection).__module__}.{type(connection).__qualname__}"
    return kind if driver is None or driver is connection else f"{kind} on {kind_of(driver)}"


async def lend_nothing(connection: Any) -> Any:
    """`Store.lend` of stores without connections."""
    needed = "absent: only stores in SQLite and PostgreSQL take part in your transaction"
    raise BadInput("connection", kind_of(connection), needed=needed)
