"""A runner for each kind of isolation that works here."""

from collections.abc import Iterator
from functools import partial

import pytest

from holdfast.work.runners.isolation import Isolation, find_isolation
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings
from tests.programs import or_skip, program


@pytest.fixture(scope="session")
def isolation() -> Isolation:
    """The walls that work here."""
    for name, package in (("bwrap", "bubblewrap"), ("node", "nodejs")):
        or_skip(partial(program, name, package), what="runners")
    return find_isolation(RunnerSettings())


@pytest.fixture
def walled(isolation: Isolation) -> Iterator[HandlerRunner]:
    """A runner behind bubblewrap; skips where that does not work."""
    if not isolation.bwrap:
        pytest.skip(isolation.reason)
    runner = HandlerRunner(isolation)
    yield runner
    runner.close()


@pytest.fixture
def bare(isolation: Isolation) -> Iterator[HandlerRunner]:
    """A runner without bubblewrap."""
    runner = HandlerRunner(find_isolation(RunnerSettings(isolation="none")))
    yield runner
    runner.close()


@pytest.fixture(params=["walled", "bare"])
def runner(request: pytest.FixtureRequest) -> HandlerRunner:
    """Each of them."""
    found: HandlerRunner = request.getfixturevalue(request.param)
    return found
