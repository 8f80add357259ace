"""Parses the URL of a PostgreSQL store.

    postgresql://user:password@host:port/database?schema=holdfast&notify=off&prepare=off&pool=10&commits=2

Other parameters are passed to libpq (`sslmode`, `connect_timeout`, several hosts, …). The password is never
shown.
"""

import re
from difflib import get_close_matches
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict

from ...core.errors import BadInput

SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
SCHEMA_NEEDED = "1 to 40 lower-case letters, digits and _, not a digit first"
FORM = "postgresql://user:password@host:port/database?schema=holdfast, with %40 for @ and so on in its parts"
OURS = ("schema", "notify", "prepare", "pool", "commits")
POOL, MOST_POOL = 10, 1_000
COMMITS, MOST_COMMITS = 2, 16
# For libpq. Without limits it would wait for hours, or for ever, for a server that has disappeared. A server
# that works on a statement acknowledges the probes, however long it takes.
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "holdfast",
}


class PostgresAddress(NamedTuple):
    """Where a store is, and how to use it."""

    # For libpq, with the password; never shown.
    parameters: dict[str, Any]
    shown: str
    schema: str = "holdfast"
    # Whether processes are notified by LISTEN/NOTIFY; otherwise they poll.
    notify: bool = True
    # Whether statements are prepared; not all transaction poolers support it.
    prepare: bool = True
    # The size of the pool, and how many commits may be in progress at once.
    pool: int = POOL
    commits: int = COMMITS

    def __repr__(self) -> str:
        return f"PostgresAddress({self.shown!r})"


def parse(url: str) -> PostgresAddress:
    """Parse a URL, without connecting."""
    try:
        ours, parameters = _parts(url)
    except (Error, ValueError):
        for name, _ in parse_qsl(url.partition("?")[2]):
            if name not in OURS and (meant := get_close_matches(name, OURS, 1)):
                raise BadInput("store option", name, needed=meant[0]) from None
        # Without libpq's message, which may contain a part of the password.
        raise BadInput("store", "postgresql://…", needed=FORM) from None
    schema = ours.get("schema", "holdfast")
    if not SCHEMA.fullmatch(schema):
        raise BadInput("schema", schema, needed=SCHEMA_NEEDED)
    parameters = DEFAULTS | parameters
    return PostgresAddress(
        parameters=parameters,
        shown=_shown(parameters, schema),
        schema=schema,
        notify=_switch("notify", ours),
        prepare=_switch("prepare", ours),
        pool=_number("pool", ours, POOL, 2, MOST_POOL),
        commits=_number("commits", ours, COMMITS, 1, MOST_COMMITS),
    )


def _parts(url: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The parameters of the store, and those of libpq."""
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    theirs = urlencode([pair for pair in asked if pair[0] not in OURS], quote_via=quote)
    plain = urlunsplit(("postgresql", parts.netloc, parts.path, theirs, ""))
    parameters: dict[str, Any] = dict(conninfo_to_dict(plain))
    if not re.fullmatch(r"[0-9,]*", str(parameters.get("port", ""))):
        raise ValueError("port")
    return {name: value for name, value in asked if name in OURS}, parameters


def _shown(parameters: dict[str, Any], schema: str) -> str:
    host, port = str(parameters.get("host") or "localhost"), parameters.get("port")
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    where = f"{host}:{port}" if port else host
    return f"postgresql://{user}{where}/{parameters.get('dbname') or ''}?schema={schema}"


def _switch(name: str, ours: dict[str, str]) -> bool:
    value = ours.get(name, "on")
    if value not in ("on", "off"):
        raise BadInput(name, value, needed="on or off")
    return value == "on"


def _number(name: str, ours: dict[str, str], default: int, least: int, most: int) -> int:
    value = ours.get(name, str(default))
    if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
        raise BadInput(name, value, needed=f"a number from {least} to {most:,}")
    return int(value)
