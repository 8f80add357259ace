"""The SQL of the PostgreSQL store, by name, and how many values go into one statement.

Every value travels as text that the statement casts (`%s::bigint[]`), arrays as PostgreSQL writes them:
so a statement has the same types whatever its values, and is prepared once. psycopg would choose the type of
an array by the largest number in it, and takes several times as long to write it.
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.resources import files

# The columns that `as_jobs` needs: what a claim changes, and the rest.
HOT = "place, rank, version, owner, lease_until, started_at, claim, rest"
# What a claim answers besides.
MORE = "tenant, task, body, raw"

# The columns of a job, in the order of `rows.row`.
COLUMNS = {
    "id": "bigint",
    "tenant": "text",
    "task": "text",
    "place": "smallint",
    "rank": "bigint",
    "version": "bigint",
    "owner": "integer",
    "lease_until": "bigint",
    "started_at": "bigint",
    "claim": "bigint",
    "mock": "boolean",
    "lapsed": "boolean",
    "retries": "boolean",
    "ended": "text",
    "expires_at": "bigint",
    "parent_id": "bigint",
    "domain": "bytea",
    "schedule": "text",
    "rest": "text",
}

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


def _load() -> dict[str, str]:
    named: dict[str, str] = {}
    for part in ("read", "claim", "turns", "write"):
        text = files(__package__).joinpath("sql", f"{part}.sql").read_text("utf-8")
        pieces = _NAME.split(text)[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            named[name] = _COMMENT.sub("", body).strip().replace("{hot}", HOT).replace("{more}", MORE)
    return named


_SQL = _load()
_JOBS = ("load", "children", "children_at", "expiring", "lineup", "lineup_last", "list")
_FOUND = ("ready", "ready_filtered", "ready_of_pair", "ready_of_ids", "ready_of_picks")
_ROWS = ", ".join(f"%({name})s::{kind}[]" for name, kind in COLUMNS.items())
_NEW = f"unnest({_ROWS}) AS new ({', '.join(COLUMNS)})"


@cache
def statements(schema: str, *, locking: bool) -> dict[str, str]:
    """All statements for a schema: those of a batch, which lock what they read, or those of a view."""
    named = dict(_SQL)
    for place in range(1, 7):
        named[f"first_{place}"] = named["first"].replace("{place}", str(place))
    for name in (*_JOBS, *(f"first_{place}" for place in range(1, 7))):
        named[name] = named["as_jobs"].replace("{jobs}", named[name])
    for name in _FOUND:
        named[name] = named["claim"].replace("{found}", named[name])
    for name in ("moments", "pairs"):
        named["glance"] = named["glance"].replace(f"{{{name}}}", named[name])
    for name in ("insert", "insert_carefully", "swap"):
        named[name] = named[name].replace("{rows}", _NEW)
    fills = {
        "{columns}": ", ".join(COLUMNS),
        "{lock}": "FOR UPDATE" if locking else "",
        "{free}": "FOR UPDATE SKIP LOCKED" if locking else "",
        "{schema}": f'"{schema}"',
    }
    for mark, text in fills.items():
        named = {name: sql.replace(mark, text) for name, sql in named.items()}
    return named


def migrations(schema: str) -> list[str]:
    """The text of each migration: the first of them leads to version 1, the next to 2."""
    folder = files(__package__).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    texts = [folder.joinpath(name).read_text("utf-8") for name in names]
    fills = {
        "{schema}": f'"{schema}"',
        "{channel}": f"'{channel(schema)}'",
        "{notice_lock}": str(lock_number(schema, "notice")),
    }
    for mark, fill in fills.items():
        texts = [text.replace(mark, fill) for text in texts]
    return texts


def channel(schema: str) -> str:
    """By which name the users of a schema tell each other."""
    return f"holdfast_{schema}"


# A server has room for some thousands of locks, and a batch may name ten thousand domains or keys: so many
# locks there are of each sort. Two things that share one wait for each other without need, and that is all.
SHARES = {"domain": 2048, "unique": 1024, "lane": 512, "tenant": 512, "record": 512}


# The same few are asked for all the time.
@lru_cache(maxsize=4096)
def lock_number(schema: str, sort: str, *what: str | bytes) -> int:
    """The number of the advisory lock of something: 64 bits, those of a sort next to each other."""
    shares = SHARES.get(sort, 1)
    base = _hashed(schema, sort) if sort in SHARES else _hashed(schema, sort, *what)
    return base // shares * shares + _hashed(*what) % shares


def _hashed(*parts: str | bytes) -> int:
    digest = blake2b(digest_size=8, person=b"holdfast-lock")
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return int.from_bytes(digest.digest(), "big", signed=True)


def numbers(values: Iterable[int]) -> str:
    """An array of whole numbers."""
    return "{" + ",".join(map(str, values)) + "}"


def switches(values: Iterable[bool]) -> str:
    """An array of booleans."""
    return "{" + ",".join("t" if value else "f" for value in values) + "}"


def texts(values: Iterable[str | None]) -> str:
    """An array of text."""
    values = list(values)
    if values and None not in values:
        # All at once, with a character between them that no text of PostgreSQL's has.
        joined = "\0".join(values)  # type: ignore[arg-type]
        if joined.count("\0") == len(values) - 1:
            return "{" + quoted(joined).replace("\0", '","') + "}"
    return "{" + ",".join(["NULL" if value is None else quoted(value) for value in values]) + "}"


def raws(values: Iterable[bytes | None]) -> str:
    """An array of bytes."""
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


def quoted(text: str) -> str:
    """A text as it stands in an array or a row."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text}"'
