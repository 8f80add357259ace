"""`connect`: from an address to a queue.

Stores are imported when their address is used, so that no other store's driver is needed.
"""

import re
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import BadInput, StoreError
from ..core.slots import SHARDS
from ..engine.makers import ConnectionMaker, StoreMaker
from ..store.contract import AnyStore, Store
from .addresses import addresses as addresses
from .addresses import shown_url as shown_url
from .addresses import with_password
from .options import Duration

if TYPE_CHECKING:
    from .aio import AsyncQueue
    from .queue import Queue

POSTGRES = ("postgresql", "postgres")
REMOTE = ("grpc", "grpcs")
REDIS = ("redis", "rediss", "redis+cluster", "rediss+cluster")
# How long one of several servers is tried before it counts as down: the other shards wait for it.
SHARD_PATIENCE_S = 3.0
# The display name of a shard, and the function that opens it.
Named = tuple[str, Callable[[], AnyStore]]
# File names that are meant to be addresses.
_NEARLY = re.compile(r"^(?:sqlite|file|postgres(?:ql)?|rediss?|grpcs?|memory):|[?]\w+=")
ADDRESS_FORMS = (
    "a file name, sqlite:///…, postgresql://…, redis://…, redis+cluster://…, grpc://…, memory://, "
    "or several of the stores, separated by spaces"
)


def connect(
    url: str | PathLike[str] = "jobs.db",
    *,
    tenant: str = "",
    retention: Duration | None = None,
    lease: Duration | None = None,
    join: bool = True,
    follow: bool = True,
    create: bool = True,
    journal: str | PathLike[str] | None = None,
    clock: Callable[[], int] | None = None,
) -> "Queue":
    """Return a queue on a store, given as a file name, `sqlite:///…` or the address of a server.

    On a server: `postgresql://…?schema=holdfast`, `redis://…?prefix=holdfast&durability=always`,
    `redis+cluster://host,host/?prefix=holdfast`. `grpc://host:port?token=…` is the store of a `holdfast serve
    --grpc`: see docs/grpc.md. `sqlite:///folder?shards=4` uses four files as shards; several addresses,
    separated by spaces, are shards too: see docs/sharding.md. `memory://` exists as long as the queue.
    Nothing is opened before the first call.

    `retention`: how long ended jobs are kept (default: a day). `lease`: the default lease of claims (a
    minute). The file may be the database of your application, to which the tables of the store are added;
    `join=False` refuses a database without a store. A store that does not exist is created by the first call;
    with `create=False` that raises `StoreMissing`. If the jobs have moved to another store (`holdfast move`),
    the queue switches to it, provided that no other password is needed; with `follow=False` it raises
    `Moved`.

    `journal` is a folder on the local disk: `add` returns when the job is durable there, even if the store is
    unreachable, and a thread copies it to the store. See docs/journal.md.
    """
    from .queue import Queue

    url = fspath(url) if isinstance(url, PathLike) else url
    make_store = store_maker(url, clock, join=join, follow=follow, create=create)
    make_store = journaled(make_store, journal, clock)
    return Queue(make_store, url=url, tenant=tenant, retention=retention, lease=lease)


def connect_async(
    url: str | PathLike[str] = "jobs.db",
    *,
    tenant: str = "",
    retention: Duration | None = None,
    lease: Duration | None = None,
    join: bool = True,
    follow: bool = True,
    create: bool = True,
    journal: str | PathLike[str] | None = None,
    clock: Callable[[], int] | None = None,
) -> "AsyncQueue":
    """Return an `AsyncQueue`, whose methods are coroutines; see `connect`."""
    from .aio import AsyncQueue

    url = fspath(url) if isinstance(url, PathLike) else url
    make_store = store_maker(url, clock, join=join, follow=follow, create=create)
    make_store = journaled(make_store, journal, clock)
    return AsyncQueue(make_store, url=url, tenant=tenant, retention=retention, lease=lease)


def store_maker(
    url: str,
    clock: Callable[[], int] | None = None,
    *,
    join: bool = True,
    follow: bool = True,
    create: bool = True,
) -> ConnectionMaker:
    """Check an address; return a function that opens its store or its connection to a server."""
    make = _maker(url, clock, join=join, create=create)
    if isinstance(make, ConnectionMaker):
        return make
    if not follow or url.startswith("memory://"):
        return StoreMaker(make)

    def reopen(address: str) -> AnyStore | None:
        if not all(path.exists() for path in store_files(address)):
            # The store at the new address of a moved store must exist: it is never created here.
            return None
        return _maker(with_password(address, url), clock, join=False, create=False)()

    return StoreMaker(make, reopen)


def journaled(
    maker: ConnectionMaker, path: str | PathLike[str] | None, clock: Callable[[], int] | None = None
) -> ConnectionMaker:
    """Wrap a connection opener with the journal in a folder; unchanged without a folder."""
    if path is None:
        return maker
    if not isinstance(path, str | PathLike) or not str(path):
        raise BadInput("journal", path, needed="the name of a folder")
    from ..journal.connection import JournalMaker

    return JournalMaker(maker, path, clock)


def _maker(
    url: str,
    clock: Callable[[], int] | None = None,
    *,
    join: bool = True,
    create: bool = True,
) -> Callable[[], AnyStore]:
    if not isinstance(url, str) or not url:
        raise BadInput("store", url, needed=ADDRESS_FORMS)
    if len(several := addresses(url)) > 1:
        if remote := [one for one in several if one.partition("://")[0] in REMOTE]:
            raise BadInput("store", shown_url(remote[0]), needed="alone: the shards of a queue are stores")

        def listed(create: bool) -> list[Named]:
            return [(shown_url(one), _shard(one, clock, join=join, create=create)) for one in several]

        return _sharded(listed, create=create)
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if "://" not in url and _NEARLY.search(url):
        raise BadInput("store", shown_url(url), needed=f"{ADDRESS_FORMS}; with options: sqlite:///FILE?…")
    options: dict[str, Any] = {} if clock is None else {"clock": clock}
    if scheme == "memory":
        return _memory(options)
    if scheme == "sqlite":
        path, asked = _path(url)
        if path not in ("", ":memory:"):
            # Now: the process may change its folder before the store is opened.
            path = str(Path(path).absolute())
        if "shards" in asked:
            count = _count(asked["shards"])
            options |= {"join": join}
            return _sharded(lambda new: _files(path, count, options | {"create": new}), create=create)
        return _sqlite(path, options | {"join": join, "create": create})
    if scheme in REMOTE or scheme in _OPENERS:
        return _on_server(scheme, url, options | {"create": create})
    raise BadInput("store", f"{scheme}://…", needed=ADDRESS_FORMS)


def _on_server(scheme: str, url: str, options: dict[str, Any]) -> Callable[[], AnyStore]:
    if scheme in REMOTE:
        if "clock" in options:
            raise BadInput("clock", "given", needed="absent: it is the server's")
        return _remote(url)
    return _OPENERS[scheme](url, options)


def _shard(url: str, clock: Callable[[], int] | None, *, join: bool, create: bool) -> Callable[[], AnyStore]:
    if not is_served(url):
        return _maker(url, clock, join=join, create=create)
    options: dict[str, Any] = {"patience_s": SHARD_PATIENCE_S, "create": create}
    options |= {} if clock is None else {"clock": clock}
    return _OPENERS[url.partition("://")[0]](url, options)


def store_file(url: str) -> Path | None:
    """The file, or the folder of files, of the store at this address; None if it is not in files."""
    _maker(url)
    if len(addresses(url)) > 1:
        return None
    return Path(_path(url)[0]) if url.startswith("sqlite://") or "://" not in url else None


def store_files(url: str) -> list[Path]:
    """All files of the store at this address."""
    files: list[Path] = []
    for one in addresses(url):
        path = store_file(one)
        if path is not None:
            shards = _path(one)[1].get("shards")
            files += [path] if shards is None else _shard_files(path, _count(shards))
    return files


def is_served(url: str) -> bool:
    """Whether the store at this address, or any of its shards, is on a server."""
    schemes = {one.partition("://")[0] for one in addresses(url)} if isinstance(url, str) else set()
    return not schemes.isdisjoint((*_OPENERS, *REMOTE))


def is_shared(url: str) -> bool:
    """Whether other processes can open the store at this address: it is on servers or in files."""
    return is_served(url) or all(store_file(one) is not None for one in addresses(url))


def migrate(url: str, *, show: bool = False) -> list[int] | str:
    """Migrate the store at an address; returns the applied versions, or with `show` the SQL."""
    served = [one for one in addresses(url) if one.partition("://")[0] in POSTGRES]
    if not served:
        raise BadInput(
            "store", shown_url(url), needed="postgresql://…: other stores are brought up to date when opened"
        )
    _postgres(served[0], {})
    from ..store.postgres.store import PostgresStore

    made: set[int] = set()
    for one in served:
        store = PostgresStore(one)
        try:
            if show:
                return store.migrations()
            made |= set(store.migrate())
        finally:
            store.close()
    return sorted(made)


def _path(url: str) -> tuple[str, dict[str, str]]:
    if "://" not in url:
        return url, {}
    parts = urlsplit(url)
    if parts.netloc:
        raise BadInput(
            "store", url, needed="sqlite:///jobs.db, or sqlite:////var/lib/jobs.db for an absolute path"
        )
    asked = dict(parse_qsl(parts.query))
    unknown = asked.keys() - {"shards"}
    if unknown:
        raise BadInput("store option", min(unknown), needed="shards")
    return unquote(parts.path.removeprefix("/")), asked


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) not in SHARDS:
        raise BadInput("shards", text, needed=f"one of {', '.join(map(str, SHARDS))}")
    return int(text)


def _files(folder: str, count: int, options: dict[str, Any]) -> list[Named]:
    """The files of the shards in a folder, created if needed; their names contain the number of shards."""
    paths = _shard_files(Path(folder), count)

    def maker(path: Path) -> Callable[[], Store]:
        def make() -> Store:
            others = [one.name for one in path.parent.glob("shard-*-of-*.db") if one not in paths]
            if others:
                raise StoreError(
                    f"{folder} holds {min(others)}, so it is of another number of shards than {count}; "
                    "name as many as it was made with"
                )
            if options["create"] and path.parent.parent.is_dir():
                path.parent.mkdir(exist_ok=True)
            return _sqlite(str(path), options)()

        return make

    return [(str(path), maker(path)) for path in paths]


def _shard_files(folder: Path, count: int) -> list[Path]:
    return [folder / f"shard-{at}-of-{count}.db" for at in range(count)]


def _sharded(listed: Callable[[bool], list[Named]], *, create: bool) -> Callable[[], AnyStore]:
    """Several stores as one; `listed` returns them, to be opened and to be created."""
    from ..store.sharded.store import Opener, ShardedStore

    openers = [
        Opener(name, opened, created)
        for (name, opened), (_, created) in zip(listed(create), listed(True), strict=True)
    ]
    ShardedStore.check_count(len(openers))
    return lambda: ShardedStore(openers)


def _memory(options: dict[str, Any]) -> Callable[[], Store]:
    from ..store.memory.store import MemoryStore

    return lambda: MemoryStore(**options)


def _remote(url: str) -> ConnectionMaker:
    try:
        from ..remote.connection import RemoteMaker
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("grpc", "google"):
            raise
        raise StoreError("grpc:// needs grpcio and protobuf: pip install 'holdfast-queue[grpc]'") from None
    return RemoteMaker(url)


def _postgres(url: str, options: dict[str, Any]) -> Callable[[], Store]:
    try:
        from ..store.postgres.store import PostgresStore
        from ..store.postgres.url import parse
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("psycopg", "psycopg_binary", "psycopg_c"):
            raise
        raise StoreError("PostgreSQL needs psycopg: pip install 'holdfast-queue[postgres]'") from None
    # Errors of the address are raised now.
    parse(url)
    return lambda: PostgresStore(url, **options)


def _redis(url: str, options: dict[str, Any]) -> Callable[[], AnyStore]:
    try:
        from ..store.redis.store import RedisStore
        from ..store.redis.url import parse
    except ImportError as error:
        if error.name != "hiredis":
            raise
        raise StoreError("Redis needs hiredis: pip install 'holdfast-queue[redis]'") from None
    # Errors of the address are raised now.
    address = parse(url)
    if address.shards == 1:
        return lambda: RedisStore(url, **options)
    options = {"patience_s": SHARD_PATIENCE_S} | options

    def shard(at: int, create: bool) -> Named:
        return f"{address.shown}, shard {at}", lambda: RedisStore(
            url, shard=at, **options | {"create": create}
        )

    def listed(create: bool) -> list[Named]:
        return [shard(at, create) for at in range(address.shards)]

    return _sharded(listed, create=options.get("create", True))


def _sqlite(path: str, options: dict[str, Any]) -> Callable[[], Store]:
    from ..store.sqlite.store import SqliteStore

    return lambda: SqliteStore(path, **options)


# The stores on servers, by the scheme of their address.
_OPENERS = dict.fromkeys(POSTGRES, _postgres) | dict.fromkeys(REDIS, _redis)
