"""Every store that there is, for every suite: a new one joins by a line here (docs/stores.md lists the rest).

What a test demands of the order over all jobs, stores of several shards promise within each only. Such a
test says so by a mark, `one_shard`, and gets a store whose shards are one.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.common.clock import Clock
from holdfast.store.contract import AnyStore
from tests.doubles import SharedMemory

Open = Callable[[], AnyStore]
# The fixtures of addresses of empty stores on servers.
SERVED = ["postgres_url", "redis_url"]


def _memory(_request: pytest.FixtureRequest, clock: Clock) -> Open:
    return SharedMemory(clock).open


def _sqlite(request: pytest.FixtureRequest, clock: Clock) -> Open:
    from holdfast.store.sqlite.store import SqliteStore

    path = request.getfixturevalue("tmp_path") / "sqlite.db"
    return lambda: SqliteStore(path, clock=clock)


def _postgres(request: pytest.FixtureRequest, clock: Clock) -> Open:
    from holdfast.store.postgres.store import PostgresStore

    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url, clock=clock)


def _shards(request: pytest.FixtureRequest) -> int:
    return 1 if request.node.get_closest_marker("one_shard") else 4


def _sharded(request: pytest.FixtureRequest, clock: Clock) -> Open:
    from holdfast.store.sharded.store import ShardedStore

    folder: Path = request.getfixturevalue("tmp_path")
    openers = [_file(folder / f"{at}.db", clock) for at in range(_shards(request))]
    return lambda: ShardedStore(openers)


def _mixed(request: pytest.FixtureRequest, clock: Clock) -> Open:
    from holdfast.store.postgres.store import PostgresStore
    from holdfast.store.sharded.store import Opener, ShardedStore

    folder: Path = request.getfixturevalue("tmp_path")
    url = request.getfixturevalue("postgres_url")
    openers = [
        Opener("memory", SharedMemory(clock).open),
        _file(folder / "1.db", clock),
        Opener("postgres", lambda: PostgresStore(url, clock=clock)),
        _file(folder / "3.db", clock),
    ]
    return lambda: ShardedStore(openers[: _shards(request)])


def _file(path: Path, clock: Clock) -> Any:
    from holdfast.store.sharded.store import Opener
    from holdfast.store.sqlite.store import SqliteStore

    return Opener(path.name, lambda: SqliteStore(path, clock=clock))


def _redis(fixture: str) -> Callable[[pytest.FixtureRequest, Clock], Open]:
    def make(request: pytest.FixtureRequest, clock: Clock) -> Open:
        from holdfast.store.redis.store import RedisStore

        url = request.getfixturevalue(fixture).url()
        return lambda: RedisStore(url, clock=clock)

    return make


# Of each kind, what opens an empty store of the test's own: the same one each time, as another process would.
STORES: dict[str, Callable[[pytest.FixtureRequest, Clock], Open]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "redis": _redis("redis_server"),
    "sharded": _sharded,
    "mixed": _mixed,
}
# One of each kind, for what stands on queues, which the suite of queues has tried on every store.
ONE_OF_EACH = [kind for kind in STORES if kind != "mixed"]
# Several stores as one: for queues. Each of them is a store by itself, which keeps the contract.
SHARDED = ["sharded", "mixed"]
# What takes long to start: for the suite of stores, and for parts of others by name.
EVERY = STORES | {"cluster": _redis("redis_cluster")}


def here_and_in_proof(kinds: Collection[str], rest: Collection[str]) -> list[Any]:
    """Parameters of a fixture: kinds of stores to test on, and others, on which `make proof` alone tests."""
    proof = [pytest.param(kind, marks=pytest.mark.proof) for kind in rest if kind not in kinds]
    return [*kinds, *proof]


def opener(request: pytest.FixtureRequest, clock: Clock, kind: str | None = None) -> Open:
    """What opens the store of a kind: that of the fixture's parameter, where none is said."""
    return EVERY[kind or request.param](request, clock)
