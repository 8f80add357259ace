"""Opening a file: checks, creation, migrations, settings.

    no file, or an empty one          created: settings that must come first, then all migrations;
                                      with `create=False` StoreMissing, and nothing is written
    an application's database         with `join`, our tables are created beside the application's
    an older version of our tables    migrated in one transaction
    journal mode other than wal       put into it: a copy by VACUUM INTO, a dump that was loaded, or a file
                                      whose creation was cut short by a power failure
    the current version               used
    a newer version                   SchemaMismatch
    not a database                    StoreCorrupt, and the file is not changed

The version is in a table of ours: the numbers in the file's header belong to the application.
"""

from pathlib import Path

from ...core.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreMissing
from .connection import Driver, SqliteConnection
from .errors import cannot_open, system_faults
from .lock import WriteQueue, begin
from .statements import migrations

WRITER_CACHE_KB = 32 * 1024
READER_CACHE_KB = 4 * 1024
# How long to wait for another connection's lock: when opening, after a crash, when reading.
PATIENT_MS = 5_000
# The size to which a write-ahead log is truncated.
LOG_KEPT_BYTES = 32 * 1024 * 1024


def open_writer(
    driver: Driver, path: Path, queue: WriteQueue, *, join: bool, create: bool
) -> SqliteConnection:
    """A connection that writes; the store is created or migrated first.

    `join`: also create it in a database with tables of an application. Without `create` the store must exist.
    """
    with system_faults(path):
        if not create and not _has_bytes(path):
            raise StoreMissing(path)
        if not path.parent.is_dir() or path.is_dir():
            raise cannot_open(path, "no such file")
    connection = driver.open(str(path))
    try:
        connection.rows(f"PRAGMA busy_timeout = {PATIENT_MS}")
        version = _version(connection, path, join=join)
        if not version and not create:
            raise StoreMissing(path)
        if version < len(migrations()) or not is_in_wal(connection):
            try:
                queue.take()
                _prepare(driver, connection, path, queue.patience_s, join=join)
            finally:
                queue.give()
        _settle(connection, path, WRITER_CACHE_KB)
        # From here on `begin` waits for the lock.
        connection.rows("PRAGMA busy_timeout = 20")
    except BaseException:
        connection.close()
        raise
    return connection


def _has_bytes(path: Path) -> bool:
    """Whether the file exists and is not empty."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_reader(driver: Driver, path: Path) -> SqliteConnection:
    """A connection that cannot write."""
    connection = driver.open(str(path))
    try:
        connection.rows(f"PRAGMA busy_timeout = {PATIENT_MS}")
        _settle(connection, path, READER_CACHE_KB)
        connection.rows("PRAGMA query_only = 1")
    except BaseException:
        connection.close()
        raise
    return connection


def _settle(connection: SqliteConnection, path: Path, cache_kb: int) -> None:
    if not is_in_wal(connection):
        raise StoreError(
            f"{path} cannot be put into SQLite's journal mode wal, which needs shared memory; "
            "move it to a local disk"
        )
    # A commit is on the disk when it returns.
    connection.rows("PRAGMA synchronous = FULL")
    # Checkpoints are made by a thread, not by commits: see `wal.py`.
    connection.rows("PRAGMA wal_autocheckpoint = 0")
    connection.rows(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
    connection.rows(f"PRAGMA cache_size = -{cache_kb}")
    # Our tables have none, whatever the application's setting is.
    connection.rows("PRAGMA foreign_keys = 0")


def schema_version(connection: SqliteConnection, path: Path) -> int:
    """The version of our tables in the file; 0: there are none."""
    if not connection.value("SELECT count(*) FROM sqlite_schema WHERE name = 'holdfast_schema'"):
        return 0
    rows = connection.rows("SELECT * FROM holdfast_schema")
    if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
        raise StoreCorrupt(
            f"{path} is damaged: its table holdfast_schema holds {len(rows)} rows, and must hold one, "
            "the number of its version; restore a backup"
        )
    return int(rows[0][0])


def needs_migration(connection: SqliteConnection, path: Path) -> bool:
    """Whether the file lacks our tables, or has those of an older version."""
    return schema_version(connection, path) < len(migrations())


def is_in_wal(connection: SqliteConnection) -> bool:
    """Whether the file has a write-ahead log, as every open store has."""
    return bool(connection.value("PRAGMA journal_mode") == "wal")


def _version(connection: SqliteConnection, path: Path, *, join: bool) -> int:
    # In one transaction: another process may be creating the store at this moment.
    connection.change("BEGIN")
    version, tables = schema_version(connection, path), connection.value("SELECT count(*) FROM sqlite_schema")
    connection.change("COMMIT")
    if tables and not version and not join:
        raise StoreCorrupt(
            f"{path} is the database of another program, and no store is in it; the first add by "
            f"holdfast.connect({str(path)!r}) in that program creates one"
        )
    known = len(migrations())
    if version > known:
        raise SchemaMismatch(
            f"{path} was written by a newer Holdfast: it is of schema version {version}, and this one knows "
            f"up to {known}; install that version, or give this one another file"
        )
    return version


def _prepare(
    driver: Driver, connection: SqliteConnection, path: Path, patience_s: float, *, join: bool
) -> None:
    """Put the file into WAL mode, then create or migrate our tables. The caller holds the queue's lock."""
    version = _version(connection, path, join=join)
    if not version:
        # Only before there are tables. Neither pragma is possible inside a transaction.
        connection.rows("PRAGMA auto_vacuum = INCREMENTAL")
    begin(driver, connection, path, patience_s, statement="PRAGMA journal_mode = WAL")
    # Also if nothing is to be migrated: the log is created by the first transaction.
    begin(driver, connection, path, patience_s)
    try:
        for number, statements in enumerate(migrations()[version:], start=version + 1):
            for statement in statements:
                connection.change(statement)
            connection.change("DELETE FROM holdfast_schema")
            connection.change("INSERT INTO holdfast_schema VALUES (?)", (number,))
        connection.change("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.change("ROLLBACK")
        raise
