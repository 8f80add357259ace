"""The SQL of the SQLite store, by name, and the two ways to pass many rows to one statement.

Ids are passed as a JSON array, unless there is only one. Rows of several columns are passed as bound values,
`VALUES (?,?),(?,?)…`, split into powers of two, so that a few prepared statements serve every length. That is
twice as fast as a JSON array of arrays, whose columns SQLite looks up one by one, and unlike JSON it allows
bytes.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from ...core.layout import oldest_writer
from ..common.records import COMMENT, load_statements
from .connection import SqliteConnection, Values

# Rows per statement; with more nothing gets faster.
ROWS_AT_ONCE = 128
# Larger data and results are not in the row of their job: a claim writes the row again, which would then not
# fit into its page.
BODY_BYTES = 1_400

# The columns that `as_jobs` needs: `rest`, and the fields that are not in it.
HOT = "id, place, rank, version, owner, lease_until, started_at, claim, size, rest"

_FOLDER = Path(__file__).parent
# Statements inside a trigger are indented, and so do not match.
_BETWEEN_STATEMENTS = re.compile(r";\n+(?! |END)")
_IDS = re.compile(r"id IN \(SELECT value FROM json_each\((\?1?)\)\)")
_PART = re.compile(r"\{(ready_of_pair|is_wanted)\}")
# Every batch writes one of these tables. Their names have the number of the layout (the first has none), so
# that a process that does not know of a newer layout can neither read nor write: docs/decisions/0023.
LAYOUT_TABLES = ("jobs", "data", "results", "archive", "rows")
# And the view through which single jobs are added (`add_job`), which is created again.
ADDING = "adding"
_LAYOUT_TABLE = re.compile(rf"\bholdfast\d*_({'|'.join((*LAYOUT_TABLES, ADDING))})\b")

_encode = msgspec.json.Encoder().encode


@cache
def _migration_texts() -> list[str]:
    folder = _FOLDER / "migrations"
    texts = {
        entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")
    }
    return [texts[name] for name in sorted(texts)]


@cache
def migrations() -> list[list[str]]:
    """The statements of each migration: the first creates version 1, the next version 2."""
    return [_BETWEEN_STATEMENTS.split(COMMENT.sub("", text).strip()) for text in _migration_texts()]


def oldest_writer_of(version: int) -> int:
    """The oldest version that may still write this one."""
    texts = _migration_texts()
    return oldest_writer(texts[version - 1], version) if version <= len(texts) else version


def table_of(name: str, version: int) -> str:
    """The name of one of `LAYOUT_TABLES` in a version of the layout."""
    return f"holdfast{version if version > 1 else ''}_{name}"


@cache
def in_layout(sql: str, version: int) -> str:
    """A statement with the names of tables in a version of the layout."""
    return _LAYOUT_TABLE.sub(lambda found: table_of(found[1], version), sql)


def use_layout(connection: SqliteConnection, version: int) -> None:
    """Let the statements of this version use the tables of a newer layout that it may write."""
    execute = connection.execute
    connection.execute = lambda sql, *values: execute(in_layout(sql, version), *values)


# The version of the layout that this program writes.
LAYOUT = len(migrations())
_NAMED = load_statements(_FOLDER / "sql", ("read", "claim", "write"), HOT)
SQL = {name: in_layout(_PART.sub(lambda part: _NAMED[part[1]], sql), LAYOUT) for name, sql in _NAMED.items()}


def as_jobs(select: str) -> str:
    """A statement that returns whole records as one JSON array, from one that selects the HOT columns."""
    return SQL["as_jobs"].replace("{jobs}", select)


_OF_JOBS = ("load", "first", "expiring", "domain_queue", "domain_queue_last")
JOBS = {name: as_jobs(SQL[name]) for name in (*_OF_JOBS, "ready", "ready_by_rank", "ready_by_name")}
ROWS = {
    name: SQL["as_rows"].replace("{selected}", SQL[name]) for name in ("rows", "table", "scan", "scan_due")
}
PAIRS = SQL["pairs"].replace("{of_tenant}", "")
PAIRS_OF_TENANT = SQL["pairs"].replace("{of_tenant}", "AND tenant = ?6")


@cache
def children(*places: int) -> str:
    """The statement for the children of a parent in these places, by id, as whole records."""
    parts = [SQL["children"].replace("{place}", str(place)) for place in places]
    return as_jobs(" UNION ALL ".join(parts) + " ORDER BY id LIMIT ?3")


@cache
def ready_of_pairs(count: int) -> str:
    """The statement for the first READY jobs of `count` pairs, merged by (rank, id), as whole records."""
    return as_jobs(" UNION ALL ".join([SQL["ready_of_pair"]] * count) + " ORDER BY rank, id LIMIT ?")


@cache
def ready_of_picks(count: int) -> str:
    """The statement for the first READY jobs of each of `count` pairs, pair by pair, as whole records."""
    return as_jobs(" UNION ALL ".join([SQL["ready_of_pick"]] * count))


@cache
def waiting_tasks(known: bool, passed: bool) -> str:
    """The statement for ready tasks; `known`: only the given ones; `passed`: without the skipped ones."""
    asked = ["task IN (SELECT value FROM json_each(?5))"] if known else []
    if passed:
        asked.append(SQL["not_passed"].replace("{tenant}", "named.value").replace("{n}", str(5 + known)))
    return SQL["ready_tasks"].replace("{asked}", " AND ".join(asked) or "TRUE")


@cache
def sized(name: str, count: int, width: int) -> str:
    """A statement for `count` rows of `width` columns."""
    row = "(" + ",".join("?" * width) + ")"
    return SQL[name].replace("{rows}", ",".join([row] * count))


def cut(rows: Sequence[tuple[Any, ...]], most: int = ROWS_AT_ONCE) -> list[tuple[int, Values]]:
    """Split rows into parts of a power of two, up to `most`: of each the number of rows and all values."""
    count = len(rows)
    if count == 1:
        return [(1, rows[0])]
    parts: list[tuple[int, Values]] = []
    at = 0
    while at < count:
        size = min(1 << (count - at).bit_length() - 1, most)
        parts.append((size, [*chain.from_iterable(rows[at : at + size])]))
        at += size
    return parts


def listed(values: Iterable[object]) -> str:
    """Ids or names as a JSON array for `json_each`."""
    return _encode([*values]).decode()


def with_ids(name: str, ids: Collection[int]) -> tuple[str, str | int]:
    """A statement for the jobs with these ids, and the value to bind: one id is compared directly."""
    if len(ids) == 1:
        (job_id,) = ids
        return _with_id(name), job_id
    return SQL[name], listed(ids)


@cache
def _with_id(name: str) -> str:
    return _one_id(SQL[name])


def _one_id(sql: str) -> str:
    return _IDS.sub(r"id = \1", sql)


@cache
def bodies_of(kind: str, *, results: bool, one: bool) -> str:
    """The statement `bodies` or `raw_bodies` for data or results, of several jobs or of one."""
    sql = SQL[kind].replace("{from}", SQL["all_results" if results else "all_data"])
    return _one_id(sql) if one else sql
