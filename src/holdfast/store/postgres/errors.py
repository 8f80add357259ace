"""PostgreSQL's errors as ours: no exception of the library ever leaves the store.

conflict with a batch        deadlock, lock timeout, serialization, duplicate key, HF00…           Conflict
connection lost              restart, disconnect, starting, too many connections                   Lost
no such host                 the host name of the address does not exist                           UnknownHost
anything else                wrong password, read-only, disk full, no permission …                 StoreError…
"""

from collections.abc import Callable, Iterator
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
from ..common.outage import UNKNOWN_HOST, Lost, UnknownHost
from .url import Address

# SQLSTATEs raised by our functions, see `commit_changes`: stored data differs from what the batch expects;
# and a lock that another batch has.
OURS, LOCKED = "HF", "HF003"
# Errors after which the batch is run again.
FASTER = (e.DeadlockDetected, e.SerializationFailure, e.LockNotAvailable, e.UniqueViolation)
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
LOST_CLASSES = ("08", "57P")


class Pooled(Conflict):
    """Statements cannot be prepared here."""


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Raise Holdfast's errors for PostgreSQL's, which are not chained: they may show values of rows."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, address) from None


def code_of(error: psycopg.Error) -> str:
    """The SQLSTATE of an error; empty if it has none."""
    return error.sqlstate or error.diag.sqlstate or ""


def translate(error: psycopg.Error, address: Address) -> Exception:
    """The Holdfast error for one of PostgreSQL's, with the store, the problem and the remedy."""
    where, text = address.shown, message_of(error)
    # No room for more locks until other transactions have committed.
    if isinstance(error, FASTER) or (isinstance(error, e.OutOfMemory) and "shared memory" in text):
        return Conflict(text)
    if code_of(error).startswith(OURS):
        return Conflict(text)
    if isinstance(error, POOLED):
        return Pooled(text)
    for kinds, words, make in (*_AWAY, *_TOLD):
        if isinstance(error, kinds) or (error.sqlstate is None and any(word in text for word in words)):
            return make(where, text)
    if is_lost(error):
        return Lost(f"{where} cannot be reached ({text}); is the server running, and the address right?")
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


def _starting(where: str, text: str) -> HoldfastError:
    return Lost(f"{where} is not ready ({text}); wait until the server has started")


def _crowded(where: str, text: str) -> HoldfastError:
    return Lost(
        f"{where} has no connection left ({text}); close some, raise the limit, or put a pooler between"
    )


def _unknown_host(where: str, text: str) -> HoldfastError:
    return UnknownHost(f"{where} cannot be reached ({text}); look at the address")


def _refused(where: str, text: str) -> HoldfastError:
    return StoreError(f"{where} lets nobody in by that user and password ({text}); look at the address")


def _no_right(where: str, text: str) -> HoldfastError:
    return StoreError(
        f"{where} does not allow that ({text}); the user needs the right to use and write the schema"
    )


def _read_only(where: str, text: str) -> HoldfastError:
    return StoreError(
        f"{where} cannot be written ({text}); it is a replica, or set to be read only: use the primary"
    )


def _full(where: str, text: str) -> HoldfastError:
    return StoreFull(f"{where}: no space or memory left on its server ({text}); make room and try again")


def _missing(where: str, text: str) -> HoldfastError:
    return StoreError(f"{where} does not exist ({text}); create the database first")


def _old(where: str, text: str) -> HoldfastError:
    return SchemaMismatch(
        f"{where}: the schema is not as it must be ({text}); run holdfast migrate, or holdfast doctor"
    )


def _corrupt(where: str, text: str) -> HoldfastError:
    return StoreCorrupt(f"{where} is damaged ({text}); restore a backup")


def _slow(where: str, text: str) -> HoldfastError:
    return Unavailable(f"{where} took too long ({text}); try again")


def _failed(_where: str, _text: str) -> HoldfastError:
    # The store's own transactions are rolled back when they fail, so this is a caller's.
    return BadInput("connection", "in a transaction that has failed", needed="rolled back, and begun anew")


# By exception class, or, for failed connections, which have only a text, by words in it.
_Table = tuple[
    tuple[tuple[type[psycopg.Error], ...], tuple[str, ...], Callable[[str, str], HoldfastError]], ...
]
# Checked first: "too many connections for role" also contains a word of the table below.
_AWAY: _Table = (
    ((e.CannotConnectNow,), ("the database system is",), _starting),
    ((e.TooManyConnections,), ("too many c", "connection slots are reserved"), _crowded),
    ((), UNKNOWN_HOST, _unknown_host),
)
_TOLD: _Table = (
    (
        (e.InvalidPassword, e.InvalidAuthorizationSpecification),
        ("password", "authentication", "pg_hba.conf", 'role "'),
        _refused,
    ),
    ((e.InsufficientPrivilege,), ("permission denied for",), _no_right),
    ((e.ReadOnlySqlTransaction,), ("session is read-only", "not in hot standby"), _read_only),
    ((e.DiskFull, e.OutOfMemory, e.ProgramLimitExceeded), (), _full),
    ((e.InvalidCatalogName,), ('database "',), _missing),
    ((e.UndefinedTable, e.UndefinedColumn, e.UndefinedFunction, e.InvalidSchemaName), (), _old),
    ((e.DataCorrupted, e.IndexCorrupted), (), _corrupt),
    ((e.QueryCanceled,), (), _slow),
    ((e.InFailedSqlTransaction,), (), _failed),
)
