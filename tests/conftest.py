"""What holds for every test: nothing is left running, and random tests are the same each time."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

from holdfast.core import limits
from holdfast.engine import upkeep
from holdfast.engine.batch import limiting
from holdfast.engine.commands import chores, claims
from tests.leftovers import Leftovers
from tests.outages import Heard
from tests.redis_servers import ClusterAddress, RedisAddress
from tests.servers import PostgresAddress, Schemas, roomy
from tests.shared_servers import (
    begin_run,
    end_run,
    servers_cpu_s,
    shared_cluster,
    shared_postgres,
    shared_redis,
)

ROOT = Path(__file__).parents[1]
# Tests start hundreds of processes that import the same files: what is compiled is kept, and out of the tree.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "pycache"))

# The shipped suites assert too, and should tell as much as tests do when they fail.
pytest.register_assert_rewrite("holdfast.testing")

set_hypothesis_home_dir(ROOT / ".cache" / "hypothesis")
settings.register_profile(
    "ci", max_examples=40, derandomize=True, deadline=None, print_blob=True, database=None
)
# For `make proof`: new histories each time, and many of them.
settings.register_profile("proof", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Put temporary folders into memory where there is room: no test depends on how slow a disk syncs.

    A shell has background processes, and all that these start, ignore SIGINT; tests send it to processes.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What programs log to pipes is JSON by default; tests and documents read it as people do.
    os.environ.setdefault("HOLDFAST_LOG_FORMAT", "text")
    if memory := roomy():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    # Until all tests are collected: it would look at all of them again and again.
    gc.disable()
    begin_run()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the test modules in another order in each process of a full run.

    So each process compiles a part of them and reads the rest from the cache; in the same order, all of them
    would compile all of them at the same time.
    """
    if (
        session.config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and "PYTEST_XDIST_WORKER" in os.environ
    ):
        number = int(os.environ["PYTEST_XDIST_WORKER"][2:])
        paths = sorted(ROOT.glob("tests/**/test_*.py"))
        first = len(paths) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        for path in [*paths[first:], *paths[:first]]:
            # The collection tells of a module that cannot be imported.
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that a run does not end with waiting for one of them."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking at ten thousand tests again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    # Of what a test makes nearly all goes when it ends: seven times fewer looks save a thirtieth of the time.
    gc.set_threshold(5_000, 10, 10)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what the run has cost; its wall time depends on what else the machine does."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        # With the children that have ended: under xdist, all processes but the servers.
        run_s, servers_s = sum(os.times()[:4]), servers_cpu_s()
        terminalreporter.write_line(
            f"processor time: {_minutes(run_s)}, and {_minutes(servers_s)} of shared servers"
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}m{int(seconds) % 60:02}s"


def pytest_unconfigure() -> None:
    """Remove what the processes of this run shared."""
    end_run()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test that leaves a thread or a process behind: the next test would have to live with it."""
    leftovers = Leftovers()
    yield
    if left := leftovers.wait():
        pytest.fail("left running: " + "; ".join(left), pytrace=False)


@pytest.fixture
def heard() -> Iterator[Heard]:
    """The lines of the log `holdfast`."""
    handler, log = Heard(), logging.getLogger("holdfast")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def no_slow_walks() -> Iterator[None]:
    """No walk along an index counts as slow unless a test says so: on a busy machine any would."""
    from holdfast.store.postgres import starts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starts, "SLOW_S", 3_600.0)
        yield


@pytest.fixture(scope="session")
def postgres() -> PostgresAddress:
    """A PostgreSQL database for all tests of this process."""
    return shared_postgres()


@pytest.fixture(scope="session")
def postgres_schemas(postgres: PostgresAddress) -> Iterator[Schemas]:
    """Its schemas."""
    schemas = Schemas(postgres)
    yield schemas
    schemas.close()


@pytest.fixture
def postgres_url(postgres_schemas: Schemas) -> Iterator[str]:
    """The address of an empty store in PostgreSQL."""
    with postgres_schemas.one() as name:
        yield postgres_schemas.server.url(name)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a figure, also where nothing failed: for docs/proof.md."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n    {request.node.name}: {text}\n")

    return say


@pytest.fixture(scope="session")
def redis_server() -> RedisAddress:
    """A Redis for all tests."""
    return shared_redis()


@pytest.fixture
def redis_url(redis_server: RedisAddress) -> str:
    """The address of an empty store in Redis."""
    return redis_server.url()


@pytest.fixture(scope="session")
def redis_cluster() -> ClusterAddress:
    """A Redis Cluster of three masters with replicas for all tests."""
    return shared_cluster()


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that listens to a server never looks by itself: it finds only what it is told."""
    from holdfast.store.common import listener
    from holdfast.store.postgres import notify

    for module in (listener, notify):
        monkeypatch.setattr(module, "SOON_S", 3_600.0)
        monkeypatch.setattr(module, "SELDOM_S", 3_600.0)


@pytest.fixture
def small_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done at once ends after two or three, so that much is left for later."""
    for module in (chores, limiting, upkeep):
        monkeypatch.setattr(module, "UPKEEP_JOBS", 2)
    for module in (limits, limiting):
        monkeypatch.setattr(module, "ALLOWANCE", 2)
    monkeypatch.setattr(claims, "CLAIM_BYTES", 6)
