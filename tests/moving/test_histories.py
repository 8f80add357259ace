"""Random histories in the middle of which the store moves, again and again, and nobody can tell.

The memory store, which is the one that is right, moves as well: to another memory store.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import note

from holdfast.engine.move import Move
from holdfast.store.clock import Clock
from holdfast.store.contract import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.model import Model, Side
from tests.servers import Schemas
from tests.test_model import run

# Opens the n-th store of a history.
Opener = Callable[[Clock, Path, int], Store]
HISTORIES, PROOF_HISTORIES, PIECES = 40, 500, 10


class Moving(Model):
    """The model of stores that move whenever a history says that they are opened anew."""

    open_next: Opener

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

    def _move(self, side: Side, open_store: Callable[[], Store]) -> None:
        """Move, and let all processes follow with all that they hold."""
        target = open_store()
        Move(side.now.store, target, here=f"{self.moves - 1}", there=f"{self.moves}", batch=3).run()
        for process in side.processes:
            process.close()
            process.open_store = open_store
            process.store = process.engine.store = target if process.keeps else open_store()
        if not side.now.keeps:
            target.close()


def moving(opener: Opener) -> type[Model]:
    """The model of stores that are opened one after the other."""
    return type("Machine", (Moving,), {"open_next": staticmethod(opener)})


def files(clock: Clock, folder: Path, number: int) -> Store:
    """One file after the other."""
    return SqliteStore(folder / f"{number}.db", clock=clock)


@pytest.fixture
def both(postgres_schemas: Schemas) -> Iterator[Opener]:
    """A file, then a schema of PostgreSQL, then a file."""
    taken: dict[tuple[Path, int], str] = {}

    def opened(clock: Clock, folder: Path, number: int) -> Store:
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


@pytest.mark.timeout(600)
def test_nobody_can_tell_that_jobs_have_moved_to_a_server_and_back(both):
    """From SQLite to PostgreSQL, and from there to SQLite."""
    run(moving(both), HISTORIES // 2, piece=0)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PIECES))
def test_nobody_can_tell_in_many_histories(piece, both):
    """Other histories each time."""
    run(moving(both), PROOF_HISTORIES // PIECES)


def test_histories_do_move():
    """Not a test that cannot fail: moves are part of what is drawn."""
    found: list[int] = []

    class Counted(Moving):
        open_next = staticmethod(files)

        def teardown(self) -> None:
            found.append(self.moves)
            super().teardown()

    run(Counted, 10, piece=0)

    assert sum(found) >= 5, found
