"""The SQL of the PostgreSQL store by name, its migrations, and how values are written into it.

Every value travels as text that the statement casts (`%s::bigint[]`), arrays as PostgreSQL writes them: so a
statement has the same types whatever its values, and is prepared once.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from .locks import lock_number

# The columns that `as_jobs` needs: what a claim changes, and the rest.
HOT = "place, rank, version, owner, lease_until, started_at, claim, rest"

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
# A place for a value, and what it is cast to where it comes as text.
_PLACE = re.compile(r"%(?:s|\((\w+)\)s)(?:::(\w+\[\]|bytea))?")

# What begins and ends a literal that does not have it in it.
_TAG = "$h"


def _load() -> dict[str, str]:
    named: dict[str, str] = {}
    for part in ("read", "claim"):
        text = (_FOLDER / "sql" / f"{part}.sql").read_text("utf-8")
        pieces = _NAME.split(text)[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            named[name] = _COMMENT.sub("", body).strip().replace("{hot}", HOT)
    return named


_SQL = _load()
_JOBS = ("load", "children", "children_at", "expiring", "domain_queue", "domain_queue_last", "heads", "list")
_CLAIMS = {"claim_any": "NULL", "claim_pairs": "NULL", "claim_merged": "(SELECT count(*) FROM candidates)"}


@cache
def statements(schema: str, *, locking: bool) -> dict[str, str]:
    """All statements for a schema: those of a batch, which lock what they read, or those of a view."""
    named = dict(_SQL)
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
    }
    for mark, text in fills.items():
        named = {name: sql.replace(mark, text) for name, sql in named.items()}
    return named


@lru_cache(maxsize=512)
def numbered(sql: str, *, cast: bool = False) -> tuple[str, tuple[Any, ...]]:
    """A statement with its places numbered, as PostgreSQL itself has it, and the name or index of each value.

    `cast`: say what comes as text, to a library that would take values of another type.
    """
    names: list[Any] = []

    def number(found: re.Match[str]) -> str:
        name: Any = found[1] or len(names)
        if name not in names:
            names.append(name)
        of_text = f"{'::text' if cast else ''}::{found[2]}" if found[2] else ""
        return f"${names.index(name) + 1}{of_text}"

    return _PLACE.sub(number, sql), tuple(names)


def migrations(schema: str) -> list[str]:
    """The text of each migration, of one file or several: the first leads to version 1, the next to 2."""
    folder = _FOLDER / "migrations"
    parts: dict[str, list[str]] = {}
    # Tables before functions, and what others call before them.
    for name in sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql")):
        parts.setdefault(name[:4], []).append(folder.joinpath(name).read_text("utf-8"))
    fills = {
        "{schema}": f'"{schema}"',
        "{channel}": f"'{channel(schema)}'",
        "{notice_lock}": str(lock_number(schema, "notice")),
        "{fold_lock}": str(lock_number(schema, "fold")),
    }
    texts = ["\n".join(part) for part in parts.values()]
    for mark, fill in fills.items():
        texts = [text.replace(mark, fill) for text in texts]
    return texts


def channel(schema: str) -> str:
    """The channel of NOTIFY by which the processes that use a schema wake each other."""
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
        # All at once, with a character between them that no text of PostgreSQL's has.
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
    """A key as it is stored: PostgreSQL has no NUL in text. The order stays."""
    return key.replace("\1", "\1\2").replace("\0", "\1\1") if "\0" in key or "\1" in key else key


def read_key(key: str) -> str:
    """The key that `written_key` wrote."""
    return key.replace("\1\1", "\0").replace("\1\2", "\1") if "\1" in key else key


def raws(values: Iterable[bytes | None]) -> str:
    """An array of bytes."""
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


def literal(value: object) -> str:
    """A value as it stands in a statement."""
    if value is None or isinstance(value, int):
        return "NULL" if value is None else str(value)
    text = str(value)
    if _TAG not in text:
        return f"{_TAG}${text}{_TAG}$"
    # Safe whatever `standard_conforming_strings` is.
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def in_hex(value: bytes) -> str:
    """Bytes as text."""
    return "\\x" + value.hex()


def quoted(text: str) -> str:
    """A text as it stands in an array."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
