"""Random histories in the middle of which the store moves, again and again, and nobody can tell.

The memory store, which is the one that is right, moves as well: to another memory store.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import note

from holdfast.engine.migrate.move import StoreMove
from holdfast.engine.migrate.parts import Misplaced
from holdfast.store.common.clock import Clock
from holdfast.store.contract import AnyStore
from holdfast.store.memory.store import MemoryStore
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sharded.store import Opener, ShardedStore
from holdfast.store.sqlite.store import SqliteStore
from tests.model.model import Model, Side
from tests.servers import Schemas
from tests.test_model import run

# Opens the n-th store of a history.
OpenNext = Callable[[Clock, Path, int], AnyStore]
HISTORIES, PROOF_HISTORIES, PIECES = 4, 500, 10
# Of how many shards the stores of a history are, again and again.
COUNTS = (4, 2, 1, 8)


class Moving(Model):
    """The model of stores that move whenever a history says that they are opened anew."""

    open_next: OpenNext

    def __init__(self) -> None:
        self.moves = 0
        type(self).make_store = staticmethod(lambda clock, folder: self.open_next(clock, folder, 0))
        super().__init__()

    def _reopen(self, how: str) -> None:
        self.moves += 1
        note(f"move {self.moves}, where it would have been {how}")
        memory = MemoryStore(self.clock)
        folder, number = Path(self.folder.name), self.moves
        self._move(self.sides[0], lambda: memory)
        self._move(self.sides[1], lambda: self.open_next(self.clock, folder, number))
        self.view = self._look()

    def _move(self, side: Side, open_store: Callable[[], AnyStore]) -> None:
        """Move, and let all processes follow with all that they hold."""
        target = open_store()
        StoreMove(side.now.store, target, here=f"{self.moves - 1}", there=f"{self.moves}", batch=3).run()
        for process in side.processes:
            process.close()
            process.open_store = open_store
            process.store = process.engine.store = target if process.keeps else open_store()
        if not side.now.keeps:
            target.close()


def moving(opener: OpenNext) -> type[Model]:
    """The model of stores that are opened one after the other."""
    return type("Machine", (Moving,), {"open_next": staticmethod(opener)})


class Spreading(Moving):
    """The same where each store has another number of shards than the one before, on both sides."""

    refused = 0

    def __init__(self) -> None:
        super().__init__()
        self.spread = COUNTS[0] > 1

    def _reopen(self, how: str) -> None:
        of = COUNTS[(self.moves + 1) % len(COUNTS)]
        target = memories(self.clock, of)
        source = self.sides[0].now.store
        try:
            StoreMove(source, target, here="here", there="there").check()
        except Misplaced as error:
            # Which the other side says of the same job.
            note(f"no move: {error}")
            self.refused += 1
            folder, number = Path(self.folder.name), self.moves + 1
            other = self.open_next(self.clock, folder / "refused", number)
            with pytest.raises(Misplaced, match=re.escape(str(error))):
                StoreMove(self.sides[1].now.store, other, here="here", there="there").run()
            other.close()
            shutil.rmtree(folder / "refused")
            return
        self.spread = of > 1
        self.moves += 1
        note(f"move {self.moves}, to {of}, where it would have been {how}")
        folder, number = Path(self.folder.name), self.moves
        self._move(self.sides[0], lambda: target)
        self._move(self.sides[1], lambda: self.open_next(self.clock, folder, number))
        self.view = self._look()

    def _move(self, side: Side, open_store: Callable[[], AnyStore]) -> None:
        before = [process.engine for process in side.processes]
        super()._move(side, open_store)
        for process, engine in zip(side.processes, before, strict=True):
            process.begin(None, seed=0)
            process.engine.ids.go_on(engine.ids)


def memories(clock: Clock, count: int) -> AnyStore:
    """So many stores in memory as one, or one."""
    stores = [MemoryStore(clock) for _ in range(count)]
    if count == 1:
        return stores[0]
    return ShardedStore([Opener("memory", partial(_same, store)) for store in stores])


def _same(store: AnyStore) -> AnyStore:
    return store


def folders(clock: Clock, folder: Path, number: int) -> AnyStore:
    """One file, or several as one, after the other."""
    of = COUNTS[number % len(COUNTS)]
    if of == 1:
        folder.mkdir(exist_ok=True)
        return files(clock, folder, number)
    place = folder / f"{number}"
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{at}.db" for at in range(of)]
    return ShardedStore([Opener(path.name, partial(SqliteStore, path, clock=clock)) for path in paths])


def spreading() -> type[Model]:
    """The model of stores of other numbers of shards, one after the other."""
    memory = staticmethod(lambda clock: memories(clock, COUNTS[0]))
    return type("Machine", (Spreading,), {"open_next": staticmethod(folders), "make_memory": memory})


def files(clock: Clock, folder: Path, number: int) -> AnyStore:
    """One file after the other."""
    return SqliteStore(folder / f"{number}.db", clock=clock)


@pytest.fixture
def both(postgres_schemas: Schemas) -> Iterator[OpenNext]:
    """A file, then a schema of PostgreSQL, then a file."""
    taken: dict[tuple[Path, int], str] = {}

    def opened(clock: Clock, folder: Path, number: int) -> AnyStore:
        if number % 2 == 0:
            return files(clock, folder, number)
        if (folder, number) not in taken:
            for old in [key for key in taken if key[0] != folder]:
                postgres_schemas.give(taken.pop(old))
            taken[folder, number] = postgres_schemas.take()
        return PostgresStore(postgres_schemas.server.url(taken[folder, number]), clock=clock)

    yield opened
    for name in taken.values():
        postgres_schemas.give(name)


@pytest.mark.timeout(600)
def test_nobody_can_tell_that_a_file_has_moved():
    """All that can be seen is the same afterwards, and goes on in the same way."""
    run(moving(files), HISTORIES, piece=0)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PIECES))
def test_nobody_can_tell_that_jobs_have_moved_between_shards_in_many_histories(piece):
    """Other histories each time."""
    run(spreading(), PROOF_HISTORIES // PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PIECES))
def test_nobody_can_tell_in_many_histories(piece, both):
    """Other histories each time."""
    run(moving(both), PROOF_HISTORIES // PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("machine", [moving(files), spreading()], ids=["alone", "spread"])
def test_histories_do_move(machine):
    """Not a test that cannot fail: moves are part of what is drawn."""
    found: list[int] = []

    def teardown(self: Moving) -> None:
        found.append(self.moves)
        machine.teardown(self)

    run(type("Counted", (machine,), {"teardown": teardown}), HISTORIES, piece=0)

    assert sum(found) >= HISTORIES // 2, found
