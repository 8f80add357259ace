"""Opening a file: checks, creation, migrations, settings.

    no file, or an empty one          created: settings that must come first, then all migrations;
                                      with `create=False` StoreMissing, and nothing is written
    an application's database         with `join`, our tables are created beside the application's
    an older layout of our tables     migrated in one transaction, in the queue of writers
    journal mode other than wal       put into it: a copy by VACUUM INTO, a dump that was loaded, or a file
                                      whose creation was cut short by a power failure
    the current layout                used
    a newer layout                    used if it lets this version write, otherwise SchemaMismatch
    not a database                    StoreCorrupt, and the file is not changed

The layout is in a table of ours: the numbers in the file's header belong to the application. Processes that
have the file open notice a migration: it renames the tables that they write.
"""

import os
from pathlib import Path

from ...core.errors import StoreCorrupt, StoreError, StoreMissing
from ...core.layout import Layout, check_layout, layout_in, missing_version
from .connection import SqliteConnection, open_connection
from .errors import cannot_open, not_writable, system_faults
from .lock import WriteQueue, begin
from .statements import (
    ADDING,
    LAYOUT_TABLES,
    SQL,
    in_layout,
    migrations,
    oldest_writer_of,
    table_of,
    use_layout,
)
from .txn import create_adding

NO_LAYOUT = Layout(0, 0)

# A commit writes whole pages to the log, one of each table and index: with half of SQLite's default a single
# add is a quarter less work. An application's own file keeps its page size.
PAGE_BYTES = 2_048
WRITER_CACHE_KB = 32 * 1024
READER_CACHE_KB = 4 * 1024
# How long to wait for another connection's lock: when opening, after a crash, when reading.
PATIENT_MS = 5_000
# The size to which a write-ahead log is truncated.
LOG_KEPT_BYTES = 32 * 1024 * 1024


def open_writer(
    path: Path, queue: WriteQueue, *, join: bool, create: bool
) -> tuple[SqliteConnection, Layout]:
    """A connection that writes, and the layout of the store, which is created or migrated first.

    `join`: also create it in a database with tables of an application. Without `create` the store must exist.
    """
    with system_faults(path):
        if not create and not _has_bytes(path):
            raise StoreMissing(path)
        if not path.parent.is_dir() or path.is_dir():
            raise cannot_open(path, "no such file")
        # SQLite would leave files that the owner cannot write: only a process that may write removes them.
        if _has_bytes(path) and not os.access(path, os.W_OK):
            raise not_writable(path)
    connection = open_connection(str(path))
    try:
        connection.rows(f"PRAGMA busy_timeout = {PATIENT_MS}")
        layout = _checked_layout(connection, path, join=join)
        if not layout.version and not create:
            raise StoreMissing(path)
        if layout.version < len(migrations()) or not is_in_wal(connection):
            try:
                queue.take()
                _prepare(connection, path, queue.patience_s, join=join)
            finally:
                queue.give()
            layout = layout_of(connection, path)
        _settle(connection, path, WRITER_CACHE_KB)
        # From here on `begin` waits for the lock.
        connection.rows("PRAGMA busy_timeout = 20")
        if layout.version > len(migrations()):
            use_layout(connection, layout.version)
    except BaseException:
        connection.close()
        raise
    return connection, layout


def _has_bytes(path: Path) -> bool:
    """Whether the file exists and is not empty."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_reader(path: Path, layout: Layout = NO_LAYOUT) -> SqliteConnection:
    """A connection that cannot write."""
    connection = open_connection(str(path))
    try:
        connection.rows(f"PRAGMA busy_timeout = {PATIENT_MS}")
        _settle(connection, path, READER_CACHE_KB)
        connection.rows("PRAGMA query_only = 1")
        if layout.version > len(migrations()):
            use_layout(connection, layout.version)
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


def layout_of(connection: SqliteConnection, path: Path) -> Layout:
    """The layout of our tables in the file; `NO_LAYOUT`: there are none."""
    if not connection.value("SELECT count(*) FROM sqlite_schema WHERE name = 'holdfast_schema'"):
        if connection.value("SELECT count(*) FROM sqlite_schema WHERE name = 'holdfast_counts'"):
            raise missing_version(path, "holdfast_schema")
        return NO_LAYOUT
    return layout_in(
        connection.rows("SELECT * FROM holdfast_schema ORDER BY 1 DESC"), path, "holdfast_schema"
    )


def needs_migration(connection: SqliteConnection, path: Path) -> bool:
    """Whether the file lacks our tables, or has those of an older layout."""
    return layout_of(connection, path).version < len(migrations())


def is_in_wal(connection: SqliteConnection) -> bool:
    """Whether the file has a write-ahead log, as every open store has."""
    return bool(connection.value("PRAGMA journal_mode") == "wal")


def _checked_layout(connection: SqliteConnection, path: Path, *, join: bool) -> Layout:
    # In one transaction: another process may be creating the store at this moment.
    connection.change("BEGIN")
    layout, tables = layout_of(connection, path), connection.value("SELECT count(*) FROM sqlite_schema")
    connection.change("COMMIT")
    if layout.version:
        check_layout(path, layout, len(migrations()))
    elif tables and not join:
        raise StoreCorrupt(
            f"{path} is the database of another program, and no store is in it; the first add by "
            f"holdfast.connect({str(path)!r}) in that program creates one"
        )
    return layout


def _prepare(connection: SqliteConnection, path: Path, patience_s: float, *, join: bool) -> None:
    """Put the file into WAL mode, then create or migrate our tables. The caller holds the queue's lock."""
    version = _checked_layout(connection, path, join=join).version
    if not connection.value("PRAGMA page_count"):
        # An empty file needs no journal: what the next two pragmas write is the beginning of one page.
        connection.rows("PRAGMA journal_mode = MEMORY")
    if not version:
        # Only before there are tables. No such pragma is possible inside a transaction.
        connection.rows(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.rows("PRAGMA auto_vacuum = INCREMENTAL")
    begin(connection, path, patience_s, statement="PRAGMA journal_mode = WAL")
    # Also if nothing is to be migrated: the log is created by the first transaction.
    begin(connection, path, patience_s)
    try:
        create_tables(connection, version)
        connection.change("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.change("ROLLBACK")
        raise


def create_tables(connection: SqliteConnection, version: int = 0) -> None:
    """Create our tables, or migrate those of an older layout, in the transaction that is open."""
    for number, statements in enumerate(migrations()[version:], start=version + 1):
        _name_tables(connection, number)
        for statement in statements:
            connection.change(in_layout(statement, number))
        connection.change("DELETE FROM holdfast_schema")
        layout = (number, oldest_writer_of(number))
        connection.change("INSERT INTO holdfast_schema (version, oldest) VALUES (?, ?)", layout)
    if version < len(migrations()) and connection.value(SQL["notice"]) is None:
        create_adding(connection, len(migrations()))


def _name_tables(connection: SqliteConnection, version: int) -> None:
    """Name the tables for a new layout: statements of processes that do not know of it fail from now on."""
    if version == 1:
        return
    # So that SQLite does not look into the views of an application, some of which may be broken.
    connection.rows("PRAGMA legacy_alter_table = 1")
    connection.change(f"DROP VIEW IF EXISTS {table_of(ADDING, version - 1)}")
    for name in LAYOUT_TABLES:
        connection.change(f"ALTER TABLE {table_of(name, version - 1)} RENAME TO {table_of(name, version)}")
    connection.rows("PRAGMA legacy_alter_table = 0")
