"""Opening a file: is it ours, is it of a version that we know, and how it is to be used.

    no file, or an empty one          created: settings that must come first, then all migrations;
                                      with `create=False` StoreMissing, and nothing is written
    an application's database         joined: our tables beside its own, if that was asked for
    with an older version of ours     the migrations that it lacks, in one transaction
    with this version                 used
    with a newer version              SchemaMismatch
    no database                       StoreCorrupt, and not a byte of it is changed

The version stands in a table of ours: the numbers in the file's header are the application's.
"""

from pathlib import Path

from ...core.errors import SchemaMismatch, StoreCorrupt, StoreError, StoreMissing
from .connection import Driver, SqliteConnection
from .errors import cannot_open, system_faults
from .lock import WriteQueue, begin
from .statements import migrations

WRITER_CACHE_KB = 32 * 1024
READER_CACHE_KB = 4 * 1024
# Somebody else may be in the way for a moment: at opening, after a crash, while reading.
PATIENT_MS = 5_000
# A write-ahead log that was once large gives back what is above this.
LOG_KEPT_BYTES = 32 * 1024 * 1024


def open_writer(
    driver: Driver, path: Path, queue: WriteQueue, *, join: bool, create: bool
) -> SqliteConnection:
    """A connection that writes; the store is created or brought up to date first.

    `join`: also in a database that holds tables of somebody else. Without `create` a store must be there.
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
        if version < len(migrations()):
            try:
                queue.take()
                _migrate(driver, connection, path, queue.patience_s, join=join)
            finally:
                queue.give()
        _settle(connection, path, WRITER_CACHE_KB)
        # From here on `begin` does the waiting.
        connection.rows("PRAGMA busy_timeout = 20")
    except BaseException:
        connection.close()
        raise
    return connection


def _has_bytes(path: Path) -> bool:
    """Whether there is anything to open."""
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
    mode = connection.value("PRAGMA journal_mode")
    if mode != "wal":
        raise StoreError(f"{path} is in journal mode {mode}, and must be in wal: its disk may not allow that")
    # A commit is on the disk when it returns.
    connection.rows("PRAGMA synchronous = FULL")
    # Checkpoints are made beside the commits, not by them: see `wal.py`.
    connection.rows("PRAGMA wal_autocheckpoint = 0")
    connection.rows(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
    connection.rows(f"PRAGMA cache_size = -{cache_kb}")
    # Whoever shares the file may want them; our tables have none, and no surprise is wanted.
    connection.rows("PRAGMA foreign_keys = 0")


def schema_version(connection: SqliteConnection, path: Path) -> int:
    """Which version of ours is in the file; 0: none."""
    if not connection.value("SELECT count(*) FROM sqlite_schema WHERE name = 'holdfast_schema'"):
        return 0
    rows = connection.rows("SELECT * FROM holdfast_schema")
    if len(rows) != 1 or not isinstance(rows[0][0], int) or rows[0][0] < 1:
        raise StoreCorrupt(
            f"{path} is damaged: its table holdfast_schema holds {len(rows)} rows, and must hold one, "
            "the number of its version; restore a backup"
        )
    return int(rows[0][0])


def _version(connection: SqliteConnection, path: Path, *, join: bool) -> int:
    # In one transaction: somebody else may just be creating the store.
    connection.change("BEGIN")
    version, tables = schema_version(connection, path), connection.value("SELECT count(*) FROM sqlite_schema")
    connection.change("COMMIT")
    if tables and not version and not join:
        raise StoreCorrupt(f"{path} is the database of another program, and no store is in it")
    known = len(migrations())
    if version > known:
        raise SchemaMismatch(
            f"{path} was written by a newer Holdfast: it is of schema version {version}, and this one knows "
            f"up to {known}; install that version, or give this one another file"
        )
    return version


def _migrate(
    driver: Driver, connection: SqliteConnection, path: Path, patience_s: float, *, join: bool
) -> None:
    version = _version(connection, path, join=join)
    if not version:
        # The first only before there are tables; neither is possible inside a transaction.
        connection.rows("PRAGMA auto_vacuum = INCREMENTAL")
        connection.rows("PRAGMA journal_mode = WAL")
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
