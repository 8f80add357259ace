"""Repairs a PostgreSQL store: rows of jobs that cannot be decoded become jobs marked as damaged."""

from typing import Any

from ...core.damage import salvage
from ...core.job import Place, State
from ..common.form import encode, rest_of
from ..common.repair import is_job
from .connection import PostgresConnection

# How many rows are read at once.
PAGE_ROWS = 1_000

_COLUMNS = ("place", "rank", "version", "owner", "lease_until", "started_at", "claim")
_MORE = ("mock", "expires_at", "parent_id", "domain", "tenant", "task", "schedule")
_LIVE = """SELECT id, {columns}, rest FROM "{schema}".jobs WHERE id > %s ORDER BY id LIMIT %s"""
_ARCHIVED = """SELECT id, finished_at, tenant, task, state, record FROM "{schema}".archive
WHERE id > %s ORDER BY id LIMIT %s"""
_PUT_LIVE = """UPDATE "{schema}".jobs SET place = %s, rest = %s WHERE id = %s AND rest = %s"""
_PUT_ARCHIVED = """UPDATE "{schema}".archive SET state = %s, record = %s WHERE id = %s AND record = %s"""


def repair_records(connection: PostgresConnection, schema: str) -> int:
    """Rewrite unreadable rows of jobs; return their number."""
    live = _LIVE.format(schema=schema, columns=", ".join(_COLUMNS + _MORE))
    return _repair(connection, live, _PUT_LIVE.format(schema=schema), _live) + _repair(
        connection, _ARCHIVED.format(schema=schema), _PUT_ARCHIVED.format(schema=schema), _archived
    )


def _repair(connection: PostgresConnection, select: str, update: str, repair_row: Any) -> int:
    count = after = 0
    while rows := connection.rows(select, (after, PAGE_ROWS)):
        for job_id, *columns, text in rows:
            if (put := repair_row(job_id, columns, text)) is not None:
                count += connection.change(update, (*put, job_id, text))
        after = rows[-1][0]
    return count


def _live(job_id: int, columns: list[Any], text: str) -> tuple[int, str] | None:
    known = dict(zip(_COLUMNS + _MORE, columns, strict=True))
    is_placed = known["place"] in list(Place)
    if is_placed and is_job(text, job_id):
        return None
    # With an invalid place no process can have claimed the job.
    known |= {"place": Place(known["place"])} if is_placed else {"place": Place.DONE, "ended": State.FAILED}
    job = salvage(job_id, text.encode(), **known)
    return int(job.place), rest_of(job)


def _archived(job_id: int, columns: list[Any], text: str) -> tuple[str, str] | None:
    finished_at, tenant, task, state = columns
    if is_job(text, job_id):
        return None
    ended = State(state) if state in list(State) else State.FAILED
    known = {"finished_at": finished_at, "tenant": tenant, "task": task, "ended": ended}
    return ended.value, encode(salvage(job_id, text.encode(), place=Place.DONE, **known)).decode()
