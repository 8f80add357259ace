"""Random histories: each store against the memory store, and the memory store against its promises."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.core import bounds
from holdfast.store.common.clock import Clock
from holdfast.store.memory.store import MemoryStore
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.redis.store import RedisStore
from holdfast.store.sharded.shard import Shard
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.store.sqlite.store import SqliteStore
from tests.doubles import SharedMemory
from tests.model.faults import faulty
from tests.model.model import Model, machine
from tests.redis_servers import ClusterAddress, RedisAddress
from tests.servers import Schemas

STEPS = 50
SHARDS = 4
# In pieces, for as many processors, and because Hypothesis remembers all that it has tried. A
# thousandth of what the proof does: rare interleavings are its business.
HISTORIES, PIECES = 16, 2
PROOF_HISTORIES, PROOF_PIECES = 20_000, 40
# By way of a server a history takes ten times as long. Mixes of stores are for the proof alone.
SERVED_HISTORIES, SERVED_PIECES = 4, 2
SERVED_PROOF_HISTORIES, SERVED_PROOF_PIECES = 500, 10
FAULTY_HISTORIES, FAULTY_PROOF_HISTORIES = 8, 2_000


@pytest.fixture(autouse=True)
def no_claim_is_late(monkeypatch):
    """On a machine so busy that a claim takes a second it is released and made again, by one store only."""
    monkeypatch.setattr(bounds, "LATE_S", 600.0)


def sqlite() -> type[Model]:
    """The model of the SQLite store."""
    return machine(lambda clock, folder: SqliteStore(folder / "jobs.db", clock=clock))


def served(schemas: Schemas) -> type[Model]:
    """The model of the PostgreSQL store. A history has its folder, and here its schema, to itself."""
    taken: dict[Path, str] = {}

    def make(clock: Clock, folder: Path) -> PostgresStore:
        if folder not in taken:
            # The one before is over, and all its stores are closed.
            for name in taken.values():
                schemas.give(name)
            taken.clear()
            taken[folder] = schemas.take()
        return PostgresStore(schemas.server.url(taken[folder]), clock=clock)

    return machine(make)


def sharded_memory(clock: Clock) -> ShardedStore:
    """Four stores in memory as one; they are what they were whoever opens them."""
    stores = [MemoryStore(clock) for _ in range(SHARDS)]
    return ShardedStore([Opener("memory", partial(_same, store)) for store in stores])


def _same(store: MemoryStore) -> MemoryStore:
    return store


def sharded() -> type[Model]:
    """The model of four files as one."""

    def make(clock: Clock, folder: Path) -> ShardedStore:
        paths = [folder / f"{at}.db" for at in range(SHARDS)]
        return ShardedStore([Opener(path.name, partial(SqliteStore, path, clock=clock)) for path in paths])

    return machine(make, sharded_memory, spread=True)


def mixed(schemas: Schemas) -> type[Model]:
    """The model of stores of every kind as one."""
    taken: dict[Path, tuple[str, SharedMemory]] = {}

    def make(clock: Clock, folder: Path) -> ShardedStore:
        if folder not in taken:
            for name, _ in taken.values():
                schemas.give(name)
            taken.clear()
            taken[folder] = schemas.take(), SharedMemory(clock)
        name, memory = taken[folder]
        openers = [
            Opener("memory", memory.open),
            Opener("1.db", partial(SqliteStore, folder / "1.db", clock=clock)),
            Opener("postgres", partial(PostgresStore, schemas.server.url(name), clock=clock)),
            Opener("3.db", partial(SqliteStore, folder / "3.db", clock=clock)),
        ]
        return ShardedStore(openers)

    return machine(make, sharded_memory, spread=True)


def on_redis(server: RedisAddress | ClusterAddress) -> type[Model]:
    """The model of the Redis store. A history has its prefix to itself, which is that of its folder."""

    def make(clock: Clock, folder: Path) -> RedisStore:
        return RedisStore(server.url(folder.name.replace("_", "-")), clock=clock)

    return machine(make)


def run(model: type[Model], histories: int, *, piece: int | None = None) -> None:
    """So many histories of a model, the same each time for a piece, else others each time."""
    run_state_machine_as_test(
        model if piece is None else seed(piece)(model),
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=False,
            # A history is as long and slow as it looks.
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_sqlite_shows_what_memory_shows(piece):
    """The same commands, clocks and reopenings: the same replies, and everything that can be seen."""
    run(sqlite(), HISTORIES // PIECES, piece=piece)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(SERVED_PIECES))
def test_postgres_shows_what_memory_shows(piece, postgres_schemas):
    """By way of a server."""
    run(served(postgres_schemas), SERVED_HISTORIES // SERVED_PIECES, piece=piece)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(SERVED_PIECES))
def test_shards_show_what_shards_in_memory_show(piece):
    """Four files as one, and every promise but those about the order between them."""
    run(sharded(), SERVED_HISTORIES // SERVED_PIECES, piece=piece)


@pytest.fixture
def no_pauses(monkeypatch):
    """A shard that fails is asked again at once."""
    monkeypatch.setattr(Shard, "_went_down", lambda shard, error: None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(SERVED_PIECES))
def test_shards_whose_commits_fail_lose_nothing(piece, no_pauses):
    """Whatever is cut short, upkeep puts it right."""
    run(faulty(), FAULTY_HISTORIES // SERVED_PIECES, piece=piece)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(SERVED_PIECES))
def test_redis_shows_what_memory_shows(piece, redis_server):
    """By way of a server that knows no transactions but its scripts."""
    run(on_redis(redis_server), SERVED_HISTORIES // SERVED_PIECES, piece=piece)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_memory_keeps_every_promise_in_small_bites(piece, small_bites):
    """What the rules promise holds after every step, also where every step leaves something undone."""
    run(machine(None), HISTORIES // PIECES, piece=piece)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PROOF_PIECES))
def test_sqlite_shows_what_memory_shows_in_many_histories(piece):
    """Other histories each time; what fails prints how to repeat it."""
    run(sqlite(), PROOF_HISTORIES // PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_postgres_shows_what_memory_shows_in_many_histories(piece, postgres_schemas):
    """By way of a server."""
    run(served(postgres_schemas), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_shards_show_what_shards_in_memory_show_in_many_histories(piece):
    """Four files as one."""
    run(sharded(), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_shards_whose_commits_fail_lose_nothing_in_many_histories(piece, no_pauses):
    """Other histories and faults each time."""
    run(faulty(), FAULTY_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_redis_shows_what_memory_shows_in_many_histories(piece, redis_server):
    """By way of a server that knows no transactions but its scripts."""
    run(on_redis(redis_server), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_a_mix_of_stores_shows_what_shards_in_memory_show_in_many_histories(piece, postgres_schemas):
    """The same of the mix."""
    run(mixed(postgres_schemas), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(SERVED_PROOF_PIECES))
def test_a_redis_cluster_shows_what_memory_shows_in_many_histories(piece, redis_cluster):
    """By way of three."""
    run(on_redis(redis_cluster), SERVED_PROOF_HISTORIES // SERVED_PROOF_PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PROOF_PIECES))
def test_memory_keeps_every_promise_in_many_histories(piece, small_bites):
    """The same of the promises."""
    run(machine(None), PROOF_HISTORIES // PROOF_PIECES)
