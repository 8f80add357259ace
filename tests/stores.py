"""Every store that there is, for every suite: a new one joins by a line here."""

from collections.abc import Callable

import pytest

from holdfast.store.clock import Clock
from holdfast.store.contract import Store
from holdfast.store.postgres import PostgresStore
from holdfast.store.redis import RedisStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.doubles import SharedMemory

Open = Callable[[], Store]
# The fixtures of addresses of empty stores on servers.
SERVED = ["postgres_url", "redis_url"]


def _memory(_request: pytest.FixtureRequest, clock: Clock) -> Open:
    return SharedMemory(clock).open


def _sqlite(driver: str) -> Callable[[pytest.FixtureRequest, Clock], Open]:
    def make(request: pytest.FixtureRequest, clock: Clock) -> Open:
        path = request.getfixturevalue("tmp_path") / "jobs.db"
        return lambda: SqliteStore(path, driver=driver, clock=clock)

    return make


def _postgres(request: pytest.FixtureRequest, clock: Clock) -> Open:
    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url, clock=clock)


def _redis(fixture: str) -> Callable[[pytest.FixtureRequest, Clock], Open]:
    def make(request: pytest.FixtureRequest, clock: Clock) -> Open:
        url = request.getfixturevalue(fixture).url()
        return lambda: RedisStore(url, clock=clock)

    return make


# Of each kind, what opens an empty store of the test's own: the same one each time, as another process would.
STORES: dict[str, Callable[[pytest.FixtureRequest, Clock], Open]] = {
    "memory": _memory,
    "apsw": _sqlite("apsw"),
    "stdlib": _sqlite("stdlib"),
    "postgres": _postgres,
    "redis": _redis("redis_server"),
}
# What takes long to start: for the suite of stores, and for parts of others by name.
EVERY = STORES | {"cluster": _redis("redis_cluster")}


def opener(request: pytest.FixtureRequest, clock: Clock, kind: str | None = None) -> Open:
    """What opens the store of a kind: that of the fixture's parameter, where none is said."""
    return EVERY[kind or request.param](request, clock)
