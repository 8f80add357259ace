"""Repairs a SQLite store: rows of jobs that cannot be decoded become jobs marked as damaged."""

from typing import Any

import msgspec

from ...core.damage import salvage
from ...core.job import Place, State
from ..common.repair import is_job
from .connection import SqliteConnection
from .statements import LAYOUT, table_of
from .txn import row_of

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
