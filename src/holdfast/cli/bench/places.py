"""Where `holdfast bench` creates its stores: new files, schemas or prefixes, removed afterwards."""

import secrets
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from ...core.errors import BadInput, HoldfastError
from ...queue.connect import POSTGRES, REDIS, store_file

# How many keys are listed and removed at once.
SWEPT_KEYS = 1_000
# The settings of a PostgreSQL server that affect the figures.
POSTGRES_SETTINGS = ("fsync", "synchronous_commit", "shared_buffers")


class BenchPlace(Protocol):
    """One kind of store, and where to create new ones."""

    def settings(self) -> str:
        """The engine and its durability, for display with the figures."""

    def store(self) -> AbstractContextManager[str]:
        """The address of a new store, which is removed at the end."""


def place_of(url: str | None, folder: Path | None) -> BenchPlace:
    """The place for a store's address; None: SQLite, in a folder or among the temporary files."""
    scheme = "sqlite" if url is None or "://" not in url else url.partition("://")[0]
    make = _PLACES.get(scheme)
    if make is None or (url is not None and " " in url):
        raise BadInput("store", f"{scheme}://…", needed=f"one of these: {', '.join(_PLACES)}")
    return make(url, folder)


class SqlitePlace:
    """Files in new folders, beside the given file."""

    def __init__(self, url: str | None, folder: Path | None) -> None:
        named = None if url is None else store_file(url)
        self._query = "" if url is None else url.partition("?")[2]
        self._folder = folder if named is None else named.absolute().parent
        if self._folder is not None and not self._folder.is_dir():
            raise BadInput("store", str(self._folder), needed="in a folder that is there")

    def settings(self) -> str:
        """The library, and its sync mode."""
        return f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A file."""
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=self._folder) as folder:
            yield f"sqlite:///{folder}/jobs.db" + (f"?{self._query}" if self._query else "")


class PostgresPlace:
    """New schemas in the given database."""

    def __init__(self, url: str | None, folder: Path | None) -> None:
        _refuse(folder)
        assert url is not None
        self._url = url

    def settings(self) -> str:
        """The version, and the settings that matter."""
        with closing(self._connect()) as connection:
            version, *rest = (_setting(connection, name) for name in ("server_version", *POSTGRES_SETTINGS))
        told = ", ".join(f"{name} = {value}" for name, value in zip(POSTGRES_SETTINGS, rest, strict=True))
        return f"PostgreSQL {version}, {told}"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A schema, which the store creates."""
        schema = f"holdfast_bench_{secrets.token_hex(4)}"
        try:
            yield _with(self._url, "schema", schema)
        finally:
            with closing(self._connect()) as connection:
                connection.execute("SET client_min_messages = warning")
                connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    def _connect(self) -> Any:
        import psycopg

        from ...store.postgres.url import parse

        return psycopg.connect(**parse(self._url).parameters, autocommit=True)


class RedisPlace:
    """New prefixes on the given server."""

    def __init__(self, url: str | None, folder: Path | None) -> None:
        _refuse(folder)
        assert url is not None
        self._url = url

    def settings(self) -> str:
        """The version, and its persistence settings."""
        from ...store.redis.doctor import kept
        from ...store.redis.open import look

        with self._server(self._url) as (server, keys):
            info = look(server, keys)
        return f"{info.named}, log: {kept(info)}"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A prefix."""
        url = _with(self._url, "prefix", f"bench-{secrets.token_hex(6)}")
        try:
            yield url
        finally:
            with self._server(url) as (server, keys):
                _sweep(server, keys.base)

    @contextmanager
    def _server(self, url: str) -> Iterator[tuple[Any, Any]]:
        from ...store.redis.connection import server_of
        from ...store.redis.keys import Keys
        from ...store.redis.url import parse

        address = parse(url)
        keys = Keys(address.prefix)
        with closing(server_of(address, keys.base)) as server:
            yield server, keys


class GrpcPlace:
    """Servers on loopback, each with a new store: measures the cost of the network.

    `grpc://?store=URL` names the stores; `grpc://` alone: SQLite files.
    """

    def __init__(self, url: str | None, folder: Path | None) -> None:
        behind = (url or "").partition("?store=")[2] or None
        self._stores = place_of(behind, folder)

    def settings(self) -> str:
        """The stores of the servers."""
        return f"gRPC on loopback, in front of {self._stores.settings()}"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A server on a free port."""
        with self._stores.store() as url:
            command = [sys.executable, "-m", "holdfast", "serve", "--store", url, "--grpc", "127.0.0.1:0"]
            quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(command, **quiet) as server:
                try:
                    assert server.stdout is not None
                    ready = server.stdout.readline().decode()
                    if not ready.startswith("ready: grpc on "):
                        raise HoldfastError("the server of the measure has not started")
                    yield f"grpc://{ready.split()[-1]}"
                finally:
                    server.terminate()


_PLACES: dict[str, Callable[[str | None, Path | None], BenchPlace]] = {
    "sqlite": SqlitePlace,
    **dict.fromkeys(POSTGRES, PostgresPlace),
    **dict.fromkeys(REDIS, RedisPlace),
    "grpc": GrpcPlace,
}


def _refuse(folder: Path | None) -> None:
    if folder is not None:
        raise BadInput("folder", str(folder), needed="absent: the server knows where its files are")


def _with(url: str, name: str, value: str) -> str:
    """The address with one option changed."""
    base, _, query = url.partition("?")
    others = [pair for pair in query.split("&") if pair and not pair.startswith(f"{name}=")]
    return f"{base}?{'&'.join([*others, f'{name}={value}'])}"


def _setting(connection: Any, name: str) -> str:
    return str(connection.execute("SELECT current_setting(%s)", (name,)).fetchone()[0])


def _sweep(server: Any, base: bytes) -> None:
    """Remove all keys with a prefix."""
    cursor: Any = b"0"
    while True:
        cursor, found = server.call(b"SCAN", cursor, b"MATCH", base + b"*", b"COUNT", SWEPT_KEYS)
        if found:
            server.call_many([(b"UNLINK", key) for key in found])
        if cursor == b"0":
            return
