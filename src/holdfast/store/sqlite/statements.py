"""The SQL of the SQLite store, by name, and the two ways in which many rows go into one statement.

Ids travel as a JSON array. Rows of several columns travel as bound values, `VALUES (?,?),(?,?)…`, cut
into powers of two so that a handful of prepared statements serves every length: that was measured at
twice the speed of a JSON array of arrays, whose columns SQLite looks up one by one, and unlike JSON it
carries bytes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

# Statements grow with this, and beyond it nothing gets faster.
ROWS_AT_ONCE = 128

# The columns that `as_jobs` needs: what a claim changes, and the rest.
HOT = "place, rank, version, owner, lease_until, started_at, claim, rest"

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


def _load() -> dict[str, str]:
    named: dict[str, str] = {}
    for part in ("read", "claim", "write"):
        text = files(__package__).joinpath("sql", f"{part}.sql").read_text("utf-8")
        pieces = _NAME.split(text)[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            named[name] = _COMMENT.sub("", body).strip().replace("{hot}", HOT)
    return named


SQL = _load()


def migrations() -> list[list[str]]:
    """The statements of each migration: the first of them leads to version 1, the next to 2.

    They are counted by the number in their name. One that is not there has no statements.
    """
    folder = files(__package__).joinpath("migrations")
    texts = {int(entry.name[:4]): entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    return [_statements(texts[n].read_text("utf-8")) if n in texts else [] for n in range(1, max(texts) + 1)]


def _statements(text: str) -> list[str]:
    return [part.strip() for part in _COMMENT.sub("", text).split(";\n") if part.strip()]


def as_jobs(select: str) -> str:
    """A statement that answers whole records, as one JSON array, for one that selects the hot columns."""
    return SQL["as_jobs"].replace("{jobs}", select)


JOBS = {name: as_jobs(SQL[name]) for name in ("load", "first", "expiring", "lineup", "lineup_last")}


TURN_OF = SQL["turn_of"].replace("{last_turn}", SQL["last_turn"])


@cache
def children(*places: int) -> str:
    """The children of a parent that stand in these places, by id, whole records."""
    parts = [SQL["children"].replace("{place}", str(place)) for place in places]
    return as_jobs(" UNION ALL ".join(parts) + " ORDER BY id LIMIT ?3")


@cache
def waiting_tasks(known: bool, passed: bool) -> str:
    """The tasks of tenants by turn: only some, where they are `known`, and none that are `passed` by."""
    asked = ["task IN (SELECT value FROM json_each(?4))"] if known else []
    if passed:
        asked.append(SQL["not_passed"].replace("{tenant}", "named.value").replace("{n}", str(4 + known)))
    return SQL["tasks_by_turn"].replace("{asked}", " AND ".join(asked) or "TRUE")


@cache
def sized(name: str, count: int, width: int) -> str:
    """A statement for `count` rows of `width` columns."""
    row = "(" + ",".join("?" * width) + ")"
    return SQL[name].replace("{rows}", ",".join([row] * count))


def in_rows(name: str, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The statements that together take all rows, each with its values."""
    at = 0
    while left := len(rows) - at:
        size = min(1 << left.bit_length() - 1, ROWS_AT_ONCE)
        values = [value for row in rows[at : at + size] for value in row]
        yield sized(name, size, len(rows[at])), values
        at += size


def listed(values: Iterable[object]) -> str:
    """Ids or names as the JSON array that `json_each` takes."""
    return msgspec.json.encode(list(values)).decode()
