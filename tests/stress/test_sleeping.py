"""Functions that sleep or wait cost a worker nothing meanwhile, and run like other jobs when they are due.

asleep   as many sleep as wait for a signal: an idle worker beside them, and beside none
due      all at one moment: beside as many ordinary jobs that are
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.bounds import DAY_MS
from holdfast.core.job import Code
from holdfast.engine.ticket import Ticket
from holdfast.store.sqlite.connection import SqliteConnection
from tests.doubles import engine_of
from tests.idle import SETTLED_S
from tests.postgres.test_idle import asked as asked_of_postgres
from tests.redis.test_idle import asked as asked_of_redis
from tests.redis_servers import redis_or_skip
from tests.servers import postgres_or_skip
from tests.work.conftest import Bench
from tests.work.test_idle import cpu_s, family

BY = 500
SLEEP = c.Suspension(kind="sleep", delay_ms=DAY_MS)
WAIT = c.Suspension(kind="signal", name="go")
MANY, IDLE_S = 100_000, 30.0
DUE = 10_000
# So long before they are due they are in the store, and a worker is ready.
AHEAD_S = 20.0


def suspend(queue: holdfast.Queue, task: str, count: int, how: c.Suspension) -> None:
    """Add jobs and have each wait, as its first run would."""
    connection = queue.connection
    for _ in range(count // BY):
        queue.add_many([(task, {})] * BY)
        jobs = [one.job for one in connection.ask(c.Claim(tasks=(task,), limit=BY, lease_ms=120_000))]
        assert len(jobs) == BY
        ends = [c.Answer(hold=c.hold_of(job), code=Code.SUSPEND, suspend=how, held=job) for job in jobs]
        tickets = [Ticket(answer) for answer in ends]
        for ticket in tickets:
            connection.submit(ticket)
        for ticket in tickets:
            reply = ticket.wait_for_reply()
            assert not isinstance(reply, BaseException), reply


def test_what_an_idle_process_asks_costs_the_same_beside_any_number(tmp_path, monkeypatch):
    """In instructions of SQLite's virtual machine: it finds nothing without a look at any of them."""
    instructions = 0

    def count() -> int:
        nonlocal instructions
        instructions += 1
        return 0

    class Counted(SqliteConnection):
        def __init__(self, connection):
            super().__init__(connection)
            connection.set_progress_handler(count, 1)

    monkeypatch.setattr("holdfast.store.sqlite.connection.SqliteConnection", Counted)
    claim = c.Claim(tasks=("nap", "wait"), limit=10, lease_ms=60_000)
    costs: dict[int, list[int]] = {}
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        engine = engine_of(queue.connection)
        asks = [
            lambda: engine.execute([c.Upkeep()]),
            lambda: engine.execute([claim]),
            lambda: engine.claim_hint([claim]),
        ]
        for number in (1, 2):
            suspend(queue, "nap", BY, SLEEP)
            suspend(queue, "wait", BY, WAIT)
            costs[number] = []
            for ask in asks:
                # Not the first time, when connections are opened.
                ask()
                instructions = 0
                ask()
                costs[number].append(instructions)

    assert min(costs[1]) > 0
    assert costs[1] == costs[2]


@contextmanager
def _sqlite(folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    path = folder / "jobs.db"
    log = path.with_name("jobs.db-wal")
    yield str(path), lambda: log.stat().st_mtime_ns


@contextmanager
def _postgres(_folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    with ExitStack() as stack:
        server = postgres_or_skip(log_statement="all", log_line_prefix="~", autovacuum="off")
        stack.callback(server.close)
        yield server.url(), lambda: len(asked_of_postgres(server, 0))


@contextmanager
def _redis(_folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    with ExitStack() as stack:
        server = redis_or_skip()
        stack.callback(server.close)
        client = stack.enter_context(server.client())
        yield server.url(), lambda: asked_of_redis(client).total()


# Of each kind, the address of an empty store, and a number that grows with each statement, or write.
STORES = {"sqlite": _sqlite, "postgres": _postgres, "redis": _redis}


class Idle(NamedTuple):
    """What an idle worker has used: of a core, and statements a minute."""

    share: float
    asked: int


def _idle(bench: Bench, asked: Callable[[], int]) -> Idle:
    worker = bench.start()
    assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
    bench.queue.close()
    time.sleep(SETTLED_S)
    used_s, before = sum(map(cpu_s, family(worker.pid))), asked()
    # What is measured is the passing of time.
    time.sleep(IDLE_S)
    found = Idle((sum(map(cpu_s, family(worker.pid))) - used_s) / IDLE_S, asked() - before)
    bench.close()
    return found


@pytest.mark.proof
@pytest.mark.parametrize("kind", STORES)
def test_an_idle_worker_costs_the_same_beside_many_that_sleep_and_wait(kind, tmp_path, tell):
    """Of tasks that it knows; it may not look for them, nor at them."""
    with STORES[kind](tmp_path) as (address, asked):
        alone = _idle(Bench(tmp_path, address), asked)
        with holdfast.connect(address) as queue:
            suspend(queue, "double", MANY, SLEEP)
            suspend(queue, "double", MANY, WAIT)
        beside = _idle(Bench(tmp_path, address), asked)
        with holdfast.connect(address) as queue:
            assert queue.counts()["double"] == {"QUEUED": MANY, "PAUSED": MANY, "FINISHED": 2}

    shown = [f"{one.share:.2%} of a core, {one.asked} statements" for one in (alone, beside)]
    tell(f"in {IDLE_S:g} s {shown[0]} alone, {shown[1]} beside {2 * MANY:,} jobs")
    assert beside.share < alone.share + 0.005
    assert beside.asked <= alone.asked + 5


@pytest.mark.proof
@pytest.mark.parametrize("kind", STORES)
def test_functions_that_are_due_at_one_moment_run_like_other_jobs(kind, tmp_path, tell):
    """In turn with as many ordinary jobs that are due at one moment."""
    took_s: dict[str, list[float]] = {"double": [], "nap": []}
    with STORES[kind](tmp_path) as (address, _):
        for _ in range(3):
            for task in took_s:
                took_s[task].append(_drain(Bench(tmp_path, address), task))

    rates = {task: DUE / min(some) for task, some in took_s.items()}
    tell(f"{DUE:,} due at one moment: {rates['double']:,.0f} jobs/s, {rates['nap']:,.0f} functions/s")
    assert rates["nap"] > rates["double"] / 2


def _drain(bench: Bench, task: str) -> float:
    """The seconds from the moment at which jobs are due until a worker of 8 threads has run all."""
    queue = bench.queue
    done = queue.counts().get(task, {}).get("FINISHED", 0)
    due_s = time.time() + AHEAD_S
    if task == "nap":
        suspend(queue, task, DUE, c.Suspension(kind="sleep", until=int(due_s * 1000)))
    else:
        for _ in range(DUE // BY):
            queue.add_many([(task, {"n": 1})] * BY, delay=due_s - time.time())
    bench.start("--threads", "8", "--quiet")
    assert time.time() < due_s - 5
    time.sleep(due_s - time.time())
    bench.wait_for(lambda: queue.counts()[task].get("FINISHED", 0) == done + DUE)
    took_s = time.time() - due_s
    bench.close()
    return took_s
