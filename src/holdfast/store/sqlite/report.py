"""The report of a SQLite store: problems and their fixes, version, settings and sizes."""

import os
import sqlite3
from pathlib import Path

from ...core.units import counted
from .connection import SqliteConnection
from .errors import not_writable
from .notify import SqliteNotifier
from .open import layout_of
from .statements import LAYOUT, in_layout
from .wal import log_bytes

MEGABYTE = 1024 * 1024
LARGE_LOG_BYTES = 256 * MEGABYTE
LITTLE_SPACE_BYTES = 64 * MEGABYTE
# How many errors of SQLite's integrity check are reported; more would not help.
FAULTS_SHOWN = 5

_SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}
_ORPHANS = """SELECT count(*) FROM {table} WHERE id NOT IN (SELECT id FROM holdfast_jobs)
AND id NOT IN (SELECT id FROM holdfast_archive)"""


def complaints(connection: SqliteConnection, path: Path, notifier: SqliteNotifier) -> list[str]:
    """The problems of a store, each with its fix."""
    told = []
    for (fault,) in connection.rows(f"PRAGMA integrity_check({FAULTS_SHOWN})"):
        if fault != "ok":
            told.append(f"{path} is damaged: {fault}; restore a backup, or try sqlite3's .recover on a copy")
    if told:
        return told
    for what, table in (("data", "holdfast_data"), ("results", "holdfast_results")):
        if orphans := connection.value(in_layout(_ORPHANS.format(table=table), LAYOUT)):
            told.append(
                f"{path} keeps the {what} of {counted(orphans, 'deleted job')}, which only takes up space"
            )
    if (size := log_bytes(path)) > LARGE_LOG_BYTES:
        told.append(f"the log {path.name}-wal has {_megabytes(size)}: some process reads without ever ending")
    told += [str(not_writable(needed)) for needed in (path, path.parent) if not os.access(needed, os.W_OK)]
    space = os.statvfs(path.parent)
    if (free := space.f_bavail * space.f_frsize) < LITTLE_SPACE_BYTES:
        told.append(f"the disk of {path} has {_megabytes(free)} left; make room")
    if stale := notifier.remove_stale():
        told.append(f"removed {len(stale)} sockets of processes that are gone from {notifier.folder}")
    return told


def particulars(connection: SqliteConnection, path: Path) -> dict[str, str]:
    """The version, settings and sizes of a store."""
    pages, page_bytes = connection.value("PRAGMA page_count"), connection.value("PRAGMA page_size")
    return {
        "store": "sqlite",
        "path": str(path),
        "sqlite": sqlite3.sqlite_version,
        "schema": str(layout_of(connection, path).version),
        "size": _megabytes(pages * page_bytes),
        "free inside": _megabytes(connection.value("PRAGMA freelist_count") * page_bytes),
        "log": _megabytes(log_bytes(path)),
        "journal mode": connection.value("PRAGMA journal_mode"),
        "synchronous": _SYNCHRONOUS[connection.value("PRAGMA synchronous")],
    }


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.1f} MB"
