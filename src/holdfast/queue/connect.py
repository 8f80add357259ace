"""`connect`: from an address to a queue.

The one place with lazy imports, so that nobody needs the drivers of other stores.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import BadInput, StoreError
from ..store.contract import Store
from .aio import AsyncQueue
from .options import Duration
from .queue import Queue

POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "redis+cluster", "rediss+cluster")
STORES = "a file name, sqlite:///…, postgresql://…, redis://…, redis+cluster://…, or memory://"


def connect(
    url: str = "jobs.db",
    *,
    tenant: str = "",
    retention: Duration | None = None,
    lease: Duration | None = None,
    driver: str | None = None,
    join: bool = True,
    clock: Callable[[], int] | None = None,
) -> Queue:
    """A queue on a store: a file name or `sqlite:///…`, or the address of one on a server.

    On a server: `postgresql://…?schema=holdfast`, `redis://…?prefix=holdfast&durability=always`,
    `redis+cluster://host,host/?prefix=holdfast`. `memory://` is a store that lives as long as the queue.
    Nothing is opened before the first verb.

    `retention` is how long ended jobs are kept (a day), `lease` how long claims last unless they say
    otherwise (a minute), `driver` which SQLite library is used: apsw, or stdlib to share connections of
    the standard library's sqlite3. The file may be your application's own database, which the store's
    tables join; `join=False` refuses one that holds no store yet.
    """
    return Queue(
        store_maker(url, driver, clock, join=join), url=url, tenant=tenant, retention=retention, lease=lease
    )


def connect_async(
    url: str = "jobs.db",
    *,
    tenant: str = "",
    retention: Duration | None = None,
    lease: Duration | None = None,
    driver: str | None = None,
    join: bool = True,
    clock: Callable[[], int] | None = None,
) -> AsyncQueue:
    """The same with verbs to await; see `connect`."""
    return AsyncQueue(
        store_maker(url, driver, clock, join=join), url=url, tenant=tenant, retention=retention, lease=lease
    )


def store_maker(
    url: str, driver: str | None = None, clock: Callable[[], int] | None = None, *, join: bool = True
) -> Callable[[], Store]:
    """What opens the store of an address; the address is checked at once."""
    if not isinstance(url, str) or not url:
        raise BadInput("store", url, needed=STORES)
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    options: dict[str, Any] = {} if clock is None else {"clock": clock}
    if scheme == "memory":
        return _memory(options)
    if scheme == "sqlite":
        path, asked = _path(url)
        if driver or asked.get("driver"):
            options["driver"] = driver or asked["driver"]
            if options["driver"] not in ("apsw", "stdlib"):
                raise BadInput("driver", options["driver"], needed="apsw or stdlib")
        return _sqlite(path, options | {"join": join})
    if scheme in POSTGRES:
        if driver is not None:
            raise BadInput("driver", driver, needed="absent: it is for SQLite")
        return _postgres(url, options)
    if scheme in REDIS:
        if driver is not None:
            raise BadInput("driver", driver, needed="absent: it is for SQLite")
        return _redis(url, options)
    raise BadInput("store", f"{scheme}://…", needed=STORES)


def store_file(url: str) -> Path | None:
    """The file that a store of this address is kept in; None where it is in no file."""
    store_maker(url)
    return Path(_path(url)[0]) if url.startswith("sqlite://") or "://" not in url else None


def is_served(url: str) -> bool:
    """Whether the store of this address is on a server."""
    return isinstance(url, str) and url.partition("://")[0] in (*POSTGRES, *REDIS)


def migrate(url: str, *, show: bool = False) -> list[int] | str:
    """Bring the store of an address up to date, by which versions; or the SQL that would (`show`)."""
    if not isinstance(url, str) or url.partition("://")[0] not in POSTGRES:
        raise BadInput(
            "store", shown_url(url), needed="postgresql://…: other stores are brought up to date when opened"
        )
    _postgres(url, {})
    from ..store.postgres import PostgresStore

    store = PostgresStore(url)
    try:
        return store.migrations() if show else store.migrate()
    finally:
        store.close()


def shown_url(url: str) -> str:
    """An address for people: without its password."""
    head, mark, tail = url.partition("://")
    userinfo, at, where = tail.rpartition("@")
    shown = f"{head}{mark}{userinfo.partition(':')[0]}{at}{where}" if mark else url
    return re.sub(r"([?&](?:password|sslpassword)=)[^&]*", r"\1…", shown)


def _path(url: str) -> tuple[str, dict[str, str]]:
    if "://" not in url:
        return url, {}
    parts = urlsplit(url)
    if parts.netloc:
        raise BadInput(
            "store", url, needed="sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for an absolute path"
        )
    asked = dict(parse_qsl(parts.query))
    unknown = asked.keys() - {"driver"}
    if unknown:
        raise BadInput("store option", min(unknown), needed="driver")
    return unquote(parts.path.removeprefix("/")), asked


def _memory(options: dict[str, Any]) -> Callable[[], Store]:
    from ..store.memory import MemoryStore

    return lambda: MemoryStore(**options)


def _postgres(url: str, options: dict[str, Any]) -> Callable[[], Store]:
    try:
        from ..store.postgres import PostgresStore
        from ..store.postgres_url import parse
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_binary", "psycopg_c"):
            raise
        raise StoreError("PostgreSQL needs psycopg: pip install 'holdfast[postgres]'") from None
    # Whatever is wrong with the address is told now.
    parse(url)
    return lambda: PostgresStore(url, **options)


def _redis(url: str, options: dict[str, Any]) -> Callable[[], Store]:
    try:
        from ..store.redis import RedisStore
        from ..store.redis_url import parse
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("redis", "hiredis"):
            raise
        raise StoreError("Redis needs redis-py: pip install 'holdfast[redis]'") from None
    # Whatever is wrong with the address is told now.
    parse(url)
    return lambda: RedisStore(url, **options)


def _sqlite(path: str, options: dict[str, Any]) -> Callable[[], Store]:
    from ..store.sqlite import SqliteStore

    return lambda: SqliteStore(path, **options)
