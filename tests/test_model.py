"""Random histories: the SQLite store against the memory store, and the memory store against its promises."""

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.store.sqlite import SqliteStore
from holdfast.testing.model import Model, machine

HISTORIES, PROOF_HISTORIES, STEPS = 500, 20_000, 50
# So many tests, for as many processors.
PIECES = 4

MEMORY = machine(None)
SQLITE = machine(lambda clock, folder: SqliteStore(folder / "jobs.db", clock=clock))


def run(model: type[Model], histories: int, **options: object) -> None:
    """So many histories of a model."""
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            # A history of fifty steps is as large and slow as it looks.
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_sqlite_shows_what_memory_shows(piece):
    """The same commands, clocks and reopenings: the same replies, and everything that can be seen."""
    run(seed(piece)(SQLITE), HISTORIES // PIECES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", range(PIECES))
def test_memory_keeps_every_promise(piece):
    """What the rules promise holds after every step."""
    run(seed(PIECES + piece)(MEMORY), HISTORIES // PIECES)


@pytest.mark.proof
@pytest.mark.parametrize("piece", range(PIECES))
def test_sqlite_shows_what_memory_shows_in_many_histories(piece):
    """Other histories each time; what fails prints how to repeat it."""
    run(machine(SQLITE.make_store), PROOF_HISTORIES // PIECES)
