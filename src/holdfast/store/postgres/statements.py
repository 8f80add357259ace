"""The SQL of the PostgreSQL store by name, its migrations, and how values are written into it.

Every value is passed as text that the statement casts (`%s::bigint[]`), arrays as PostgreSQL writes them. So
a statement has the same types for all values, and is prepared once.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ...core.layout import oldest_writer
from ..common.records import load_statements
from .locks import lock_number

# The columns that `as_jobs` needs: those that a claim changes, and `rest`.
HOT = "place, rank, version, owner, lease_until, started_at, claim, rest"

_FOLDER = Path(__file__).parent
# A placeholder, and its cast if it has one.
_PLACE = re.compile(r"%(?:s|\((\w+)\)s)(?:::(\w+\[\]|bytea))?")

# The tag of a dollar-quoted literal.
_TAG = "$h"
# Every batch that writes inserts into the table, and plain statements use the view. Their names have the
# number of the layout (the first has none), so that a process that knows no newer layout cannot commit. See
# docs/decisions/0023.
_LAYOUT_NAME = re.compile(r"\b(commit_marks|plain_jobs|lease_jobs)\b")


_SQL = load_statements(_FOLDER / "sql", ("read", "claim"), HOT)
_JOBS = ("load", "children", "children_at", "expiring", "domain_queue", "domain_queue_last", "heads", "list")
_CLAIMS = {"claim_any": "NULL", "claim_pairs": "NULL", "claim_merged": "(SELECT count(*) FROM candidates)"}


def suffix(version: int) -> str:
    """The end of names that differ between layouts."""
    return f"_{version}" if version > 1 else ""


def in_layout(sql: str, version: int) -> str:
    """SQL with the names of a version of the layout."""
    return _LAYOUT_NAME.sub(lambda found: f"{found[1]}{suffix(version)}", sql)


@cache
def statements(schema: str, *, locking: bool, version: int) -> dict[str, str]:
    """All statements for a schema; `locking`: of a batch, which lock the rows that they read."""
    named = {name: in_layout(sql, version) for name, sql in _SQL.items()}
    first = [f"first_{place}" for place in range(1, 7)]
    for place, name in enumerate(first, start=1):
        named[name] = named["first_ready" if place == 2 else "first"].replace("{place}", str(place))
    for name in (*_JOBS, *first):
        named[name] = named["as_jobs"].replace("{jobs}", named[name])
    for name, looked_at in _CLAIMS.items():
        named[name] = named["claim"].replace("{found}", named[name]).replace("{looked_at}", looked_at)
    fills = {
        "{lock}": "FOR UPDATE" if locking else "",
        "{free}": "FOR UPDATE SKIP LOCKED" if locking else "",
        "{schema}": f'"{schema}"',
        "{above}": _ABOVE,
    }
    for mark, text in fills.items():
        named = {name: sql.replace(mark, text) for name, sql in named.items()}
    return named


@lru_cache(maxsize=512)
def numbered(sql: str, *, cast: bool = False) -> tuple[str, tuple[Any, ...]]:
    """A statement with numbered placeholders, and the name or index of each value.

    `cast`: declare values as text, for a library that would otherwise expect values of another type.
    """
    names: list[Any] = []

    def number(found: re.Match[str]) -> str:
        name: Any = found[1] or len(names)
        if name not in names:
            names.append(name)
        of_text = f"{'::text' if cast else ''}::{found[2]}" if found[2] else ""
        return f"${names.index(name) + 1}{of_text}"

    return _PLACE.sub(number, sql), tuple(names)


@cache
def _migration_texts() -> list[str]:
    folder = _FOLDER / "migrations"
    parts: dict[str, list[str]] = {}
    # Sorted by name: tables before functions, and functions before their callers.
    for name in sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql")):
        parts.setdefault(name[:4], []).append(folder.joinpath(name).read_text("utf-8"))
    return ["\n".join(part) for part in parts.values()]


# A text above every name, and as SQL.
ABOVE = "\U0010ffff" * 64
_ABOVE = "repeat(U&'\\+10FFFF', 64)"
# The version of the layout that this program writes.
LAYOUT = len(_migration_texts())
# Renames what differs between layouts: the table, the view, and the function, also where these are used.
_RENAME = """DO $rename$
DECLARE
    definition text;
BEGIN
    ALTER TABLE {schema}.commit_marks{old} RENAME TO commit_marks{new};
    ALTER VIEW IF EXISTS {schema}.plain_jobs{old} RENAME TO plain_jobs{new};
    FOR definition IN
        SELECT pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = '{schema}'::regnamespace AND prosrc ~ '(commit_marks|plain_jobs){old}[ ;]'
    LOOP
        EXECUTE regexp_replace(
            definition, '(commit_marks|plain_jobs|lease_jobs){old}([ ;(])', '\\1{new}\\2', 'g'
        );
    END LOOP;
    DROP FUNCTION IF EXISTS {schema}.lease_jobs{old};
END
$rename$;
"""
_VERSION = """
DELETE FROM {schema}.version;
INSERT INTO {schema}.version (version, oldest) VALUES ("""


def migrations(schema: str) -> list[str]:
    """The SQL of each migration, from one or more files: the first creates version 1, the next version 2."""
    fills = {
        "{schema}": f'"{schema}"',
        "{channel}": f"'{channel(schema)}'",
        "{notice_lock}": str(lock_number(schema, "notice")),
        "{fold_lock}": str(lock_number(schema, "fold")),
        "{above}": _ABOVE,
    }
    texts = []
    for number, text in enumerate(_migration_texts(), start=1):
        old, new, oldest = suffix(number - 1), suffix(number), oldest_writer(text, number)
        rename = _RENAME.replace("{old}", old).replace("{new}", new) if number > 1 else ""
        sql = f"{rename}{in_layout(text, number)}{_VERSION}{number}, {oldest});\n"
        for mark, fill in fills.items():
            sql = sql.replace(mark, fill)
        texts.append(sql)
    return texts


def channel(schema: str) -> str:
    """The NOTIFY channel of a schema."""
    return f"holdfast_{schema}"


def numbers(values: Iterable[int]) -> str:
    """An array of whole numbers."""
    return "{" + ",".join(map(str, values)) + "}"


def switches(values: Iterable[bool]) -> str:
    """An array of booleans."""
    return "{" + ",".join(["t" if value else "f" for value in values]) + "}"


def texts(values: Sequence[str | None]) -> str:
    """An array of text."""
    if not values:
        return "{}"
    try:
        # Quoted in one call, joined by NUL, which PostgreSQL does not allow in text.
        joined = "\0".join(values)  # type: ignore[arg-type]
    except TypeError:
        return "{" + ",".join(["NULL" if value is None else quoted(value) for value in values]) + "}"
    if joined.count("\0") != len(values) - 1:
        return "{" + ",".join(map(quoted, values)) + "}"  # type: ignore[arg-type]
    return "{" + quoted(joined).replace("\0", '","') + "}"


def key_texts(keys: Iterable[str]) -> str:
    """An array of keys of rows."""
    return texts([written_key(key) for key in keys])


def written_key(key: str) -> str:
    """A key as it is stored: without NUL, which PostgreSQL does not allow; the order stays the same."""
    return key.replace("\1", "\1\2").replace("\0", "\1\1") if "\0" in key or "\1" in key else key


def read_key(key: str) -> str:
    """The inverse of `written_key`."""
    return key.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in key else key


def raws(values: Iterable[bytes | None]) -> str:
    """An array of bytes."""
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


def literal(value: object) -> str:
    """A value as a literal of a statement."""
    if value is None or isinstance(value, int):
        return "NULL" if value is None else str(value)
    text = str(value)
    if _TAG not in text:
        return f"{_TAG}${text}{_TAG}$"
    # Safe with any setting of `standard_conforming_strings`.
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def in_hex(value: bytes) -> str:
    """Bytes as text."""
    return "\\x" + value.hex()


def quoted(text: str) -> str:
    """A text as an element of an array."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
