"""What `holdfast doctor` shows of a SQLite store, and how unreadable records are repaired.

The report has problems and their fixes, version, settings and sizes. Rows of jobs that cannot be decoded
become jobs marked as damaged.
"""

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from ...core.damage import salvage
from ...core.job import Place, State
from ...core.units import counted
from ..common.records import is_job
from .connection import SqliteConnection
from .errors import not_writable
from .notify import SqliteNotifier
from .open import layout_of
from .statements import LAYOUT, in_layout, table_of
from .txn import row_of
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


# How many rows are read at once.
PAGE_ROWS = 1_000

_COLUMNS = ("place", "rank", "version", "owner", "lease_until", "started_at", "claim", "size")
_MORE = ("mock", "expires_at", "parent_id", "domain")
_LIVE = f"""SELECT id, {", ".join(_COLUMNS + _MORE)}, CAST(tenant AS BLOB), CAST(task AS BLOB),
CAST(schedule AS BLOB), CAST(rest AS BLOB)
FROM {table_of("jobs", LAYOUT)} WHERE id > ? ORDER BY id LIMIT {PAGE_ROWS}"""
_ARCHIVED = f"""SELECT id, finished_at, CAST(tenant AS BLOB), CAST(task AS BLOB), CAST(state AS BLOB),
CAST(record AS BLOB) FROM {table_of("archive", LAYOUT)} WHERE id > ? ORDER BY id LIMIT {PAGE_ROWS}"""
_PUT_LIVE = f"""UPDATE {table_of("jobs", LAYOUT)}
SET place = ?, tenant = ?, task = ?, schedule = ?, rest = ? WHERE id = ?"""
_PUT_ARCHIVED = f"""UPDATE {table_of("archive", LAYOUT)}
SET tenant = ?, task = ?, state = ?, record = ? WHERE id = ?"""

_encode = msgspec.json.Encoder().encode


def repair_records(connection: SqliteConnection) -> int:
    """Rewrite unreadable rows of jobs inside a write transaction; return their number."""
    return _repair(connection, _LIVE, _repair_live) + _repair(connection, _ARCHIVED, _repair_archived)


def _repair(connection: SqliteConnection, select: str, repair_row: Any) -> int:
    count = after = 0
    while rows := connection.rows(select, (after,)):
        count += sum(repair_row(connection, row) for row in rows)
        after = rows[-1][0]
    return count


def _repair_live(connection: SqliteConnection, row: tuple[Any, ...]) -> bool:
    job_id, *columns, tenant, task, schedule, rest = row
    known = dict(zip(_COLUMNS + _MORE, columns, strict=True))
    names = {"tenant": tenant, "task": task, "schedule": schedule}
    if (
        known["place"] in list(Place)
        and _is_text(*names.values())
        and is_job(b'{"id":%d,%b' % (job_id, rest[1:]), job_id)
    ):
        return False
    is_placed = known["place"] in list(Place)
    known |= {"place": Place(known["place"]), "mock": bool(known["mock"])} if is_placed else _ENDED
    known |= {name: value.decode() for name, value in names.items() if _is_text(value)}
    job = salvage(job_id, rest, **known)
    connection.change(
        _PUT_LIVE, (int(job.place), job.tenant, job.task, job.schedule, row_of(job)[-1], job_id)
    )
    return True


# For a row with an invalid place: no process can have claimed the job.
_ENDED = {"place": Place.DONE, "ended": State.FAILED, "mock": False}


def _repair_archived(connection: SqliteConnection, row: tuple[Any, ...]) -> bool:
    job_id, finished_at, tenant, task, state, record = row
    if _is_text(tenant, task, state) and is_job(record, job_id):
        return False
    ended = State.FAILED
    if _is_text(state) and state.decode() in list(State):
        ended = State(state.decode())
    names = {"tenant": tenant, "task": task}
    known = {name: value.decode() for name, value in names.items() if _is_text(value)}
    job = salvage(job_id, record, place=Place.DONE, finished_at=finished_at, ended=ended, **known)
    connection.change(_PUT_ARCHIVED, (job.tenant, job.task, ended.value, _encode(job).decode(), job_id))
    return True


def _is_text(*values: bytes) -> bool:
    try:
        return all(value.decode() is not None for value in values)
    except UnicodeDecodeError:
        return False
