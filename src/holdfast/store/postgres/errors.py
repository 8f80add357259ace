"""PostgreSQL's errors as ours: no exception of the library ever leaves the store.

conflict with a batch        deadlock, lock timeout, serialization, duplicate key, HF00…           Conflict
connection lost              restart, disconnect, starting, too many connections                   Unreachable
no such host                 the host name of the address does not exist                           UnknownHost
a value it cannot store      out of range, NUL in a text                                           BadInput
cannot be written            a replica, or set to be read only                                     ReadOnly
anything else                wrong password, disk full, no permission …                            StoreError…
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as e

from ...core.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    Unavailable,
)
from ..common.lending import has_failed
from ..common.outage import TLS_FAULTS, UNKNOWN_HOST, ReadOnly, UnknownHost, Unreachable
from .url import PostgresAddress

# SQLSTATEs raised by our functions, such as `refuse`: stored data differs from what the batch expects;
# and a lock that another batch has.
OURS, LOCKED = "HF", "HF003"
# Errors after which the batch is run again.
CONFLICTS = (e.DeadlockDetected, e.SerializationFailure, e.LockNotAvailable, e.UniqueViolation)
# A prepared statement is missing, or exists already: a pooler has given us another session.
POOLED = (e.InvalidSqlStatementName, e.DuplicatePreparedStatement)
# The server is shutting down, starting, or has ended our session.
LEAVING = (
    e.AdminShutdown,
    e.CrashShutdown,
    e.CannotConnectNow,
    e.IdleSessionTimeout,
    e.IdleInTransactionSessionTimeout,
    e.TooManyConnections,
    e.DatabaseDropped,
)
# By SQLSTATE; 25P04, transaction_timeout, is newer than some versions of psycopg.
LOST_CLASSES = ("08", "57P", "25P04")


class Pooled(Conflict):
    """Statements cannot be prepared here."""


@contextmanager
def translated(address: PostgresAddress) -> Iterator[None]:
    """Raise Holdfast's errors for PostgreSQL's, which are not chained: they may show values of rows."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, address) from None


def code_of(error: psycopg.Error) -> str:
    """The SQLSTATE of an error; empty if it has none."""
    return error.sqlstate or error.diag.sqlstate or ""


def translate(error: psycopg.Error, address: PostgresAddress) -> Exception:
    """The Holdfast error for one of PostgreSQL's, with the store, the problem and the remedy."""
    where, text = address.shown, message_of(error)
    # No room for more locks until other transactions have committed.
    if isinstance(error, CONFLICTS) or (isinstance(error, e.OutOfMemory) and "shared memory" in text):
        return Conflict(text)
    if code_of(error).startswith(OURS):
        return Conflict(text)
    if isinstance(error, POOLED):
        return Pooled(text)
    if isinstance(error, e.InFailedSqlTransaction):
        # The store's own transactions are rolled back when they fail, so this is a caller's.
        return has_failed()
    if isinstance(error, psycopg.DataError):
        # Not an outage: of the commands of a batch only one is at fault, and the others are committed.
        return BadInput("value", "refused by PostgreSQL", needed=f"one that it can store ({text})")
    for kinds, words, make, message in _TABLE:
        if isinstance(error, kinds) or (error.sqlstate is None and any(word in text for word in words)):
            return make(message.format(where=where, text=text))
    if is_lost(error):
        return Unreachable(
            f"{where} cannot be reached ({text}); is the server running, and the address right?"
        )
    return StoreError(f"{where}: PostgreSQL says {text}")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection was lost."""
    if isinstance(error, LEAVING) or (error.sqlstate or "").startswith(LOST_CLASSES):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None


def message_of(error: psycopg.Error) -> str:
    """The first line of the message; others may show values."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # For a host with several addresses there is a line for each, after a general one.
    failed = [line for line in lines if "failed: " in line and not line.startswith("multiple")]
    return (failed or lines or [type(error).__name__])[0].removeprefix("connection failed: ")


_REFUSED = "{where} does not accept the user and password ({text}); check the address"
_OLD = (
    "{where}: the schema has another version, or its tables were removed ({text}); holdfast migrate brings "
    "an older one up to date, and makes an empty store where there is none"
)
# Exception classes; for failed connections, which have only a text, words in it; and our error with its text.
_TABLE: tuple[
    tuple[tuple[type[psycopg.Error], ...], tuple[str, ...], type[HoldfastError], str],
    ...,
] = (
    # First: "too many connections for role" also contains a word of _REFUSED.
    (
        (e.CannotConnectNow,),
        ("the database system is",),
        Unreachable,
        "{where} is not ready ({text}); wait until the server has started",
    ),
    (
        (e.TooManyConnections,),
        ("too many c", "connection slots are reserved"),
        Unreachable,
        "{where} has no connection left ({text}); close some, raise the limit, or use a connection pooler",
    ),
    ((), TLS_FAULTS, StoreError, "{where} cannot be used ({text}); check sslmode and the certificates"),
    ((), UNKNOWN_HOST, UnknownHost, "{where} cannot be reached ({text}); check the address"),
    (
        (e.InvalidPassword, e.InvalidAuthorizationSpecification),
        ("password", "authentication", "pg_hba.conf", 'role "'),
        StoreError,
        _REFUSED,
    ),
    (
        (e.InsufficientPrivilege,),
        ("permission denied for",),
        StoreError,
        "{where} does not allow that ({text}); the user needs the right to use and write the schema",
    ),
    (
        (e.ReadOnlySqlTransaction,),
        ("session is read-only", "not in hot standby"),
        ReadOnly,
        "{where} cannot be written ({text}); it is a replica, or set to be read only: use the primary",
    ),
    (
        (e.DiskFull, e.OutOfMemory, e.ProgramLimitExceeded),
        (),
        StoreFull,
        "{where}: no space or memory left on its server ({text}); make room and try again",
    ),
    (
        (e.InvalidCatalogName,),
        ('database "',),
        StoreError,
        "{where} does not exist ({text}); create the database first",
    ),
    (
        (e.UndefinedTable, e.UndefinedColumn, e.UndefinedFunction, e.InvalidSchemaName),
        (),
        SchemaMismatch,
        _OLD,
    ),
    ((e.DataCorrupted, e.IndexCorrupted), (), StoreCorrupt, "{where} is damaged ({text}); restore a backup"),
    ((e.QueryCanceled,), (), Unavailable, "{where} took too long ({text}); try again"),
)
