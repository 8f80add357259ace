"""The setting HOLDFAST, checked, and the address of a store in a database of Django's.

HOLDFAST = {"database": "default"}            in a database of Django's, which is also the default
HOLDFAST = {"url": "redis://127.0.0.1/0"}     in any other store
"""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from ...core.errors import BadInput

SETTING = "HOLDFAST"
KEYS = ("database", "url", "schema", "tenant", "retention", "lease")
POSTGRES, SQLITE = "django.db.backends.postgresql", "django.db.backends.sqlite3"
# Backends of others that use one of these two.
_KINDS = {
    POSTGRES: POSTGRES,
    SQLITE: SQLITE,
    "django.contrib.gis.db.backends.postgis": POSTGRES,
    "django.contrib.gis.db.backends.spatialite": SQLITE,
}


class Setting(NamedTuple):
    """Where the queue is, and the other options of `holdfast.connect`."""

    # The name of the database that it is in; "": in the store at `url`.
    database: str
    url: str
    options: dict[str, Any]


def read_setting(given: Any = None) -> Setting:
    """The checked setting of the project, or another one; raises `ImproperlyConfigured`."""
    given = getattr(settings, SETTING, {}) if given is None else given
    if not isinstance(given, dict):
        raise _bad(SETTING, given, needed='a dict, such as {"database": "default"}')
    for key in given:
        if key not in KEYS:
            raise _bad(f"{SETTING} key", key, needed=f"one of {', '.join(KEYS)}")
    if "url" in given and (other := next((key for key in ("database", "schema") if key in given), "")):
        raise _bad(
            f"{SETTING} key", other, needed="absent beside url: one of the two says where the jobs are"
        )
    options = {key: given[key] for key in ("tenant", "retention", "lease") if key in given}
    if "url" in given:
        return Setting("", given["url"], options)
    alias, schema = given.get("database", DEFAULT_DB_ALIAS), given.get("schema", "")
    if alias not in connections.settings:
        needed = f"one of DATABASES: {', '.join(connections.settings)}"
        raise _bad(f"{SETTING} database", alias, needed=needed)
    return Setting(alias, address_of(alias, schema), options)


def address_of(alias: str, schema: str = "") -> str:
    """The address of the store in a database of Django's; nothing is opened."""
    database = connections.settings[alias]
    kind = _KINDS.get(database["ENGINE"])
    if kind is None:
        needed = "a database of PostgreSQL or SQLite; or give the url of a store"
        raise _bad(f"{SETTING} database {alias}", database["ENGINE"], needed=needed)
    if kind == POSTGRES:
        return _postgres_address(database, schema)
    if schema:
        raise _bad(f"{SETTING} schema", schema, needed=f"absent: database {alias} is not of PostgreSQL")
    name = str(database["NAME"])
    # Tests have their database in memory; elsewhere the first use refuses this.
    is_in_memory = name == ":memory:" or "mode=memory" in name
    return "memory://" if is_in_memory else str(Path(name).absolute())


def _postgres_address(database: dict[str, Any], schema: str) -> str:
    try:
        from psycopg.pq import Conninfo
    except ImportError:
        raise _bad(
            f"{SETTING} database", "PostgreSQL without psycopg 3", needed="psycopg installed"
        ) from None
    ours = {"schema": schema} if schema else {}
    # What Django's backend takes for itself, such as `pool`, is not libpq's.
    known = {one.keyword.decode() for one in Conninfo.get_defaults()}
    given = {key: value for key, value in database["OPTIONS"].items() if key in known}
    places = {"host": database["HOST"], "port": database["PORT"], "dbname": database["NAME"]}
    given |= {key: value for key, value in places.items() if value}
    user, password = quote(database["USER"], safe=""), quote(database["PASSWORD"], safe="")
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    return f"postgresql://{who}/?{urlencode(given | ours, quote_via=quote)}"


def _bad(name: str, found: object, *, needed: str) -> ImproperlyConfigured:
    """The error, in the words of Holdfast and the class of Django."""
    return ImproperlyConfigured(str(BadInput(name, found, needed=needed)))
