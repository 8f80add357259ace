"""A PostgreSQL that is stopped while jobs are added: all are accepted, and in the store afterwards, once."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import holdfast
from holdfast.journal.connection import JournalConnection
from tests.servers import PostgresServer, postgres_or_skip

THREADS = 8
Stop = Callable[[PostgresServer], AbstractContextManager[None]]


class Size(NamedTuple):
    """How many jobs, and for how long the store is stopped."""

    jobs: int
    stopped_s: float


SIZES = [
    pytest.param(Size(1_000, 0.3), id="small"),
    pytest.param(Size(100_000, 30.0), id="full", marks=pytest.mark.proof),
]


@contextmanager
def shut_down(server: PostgresServer) -> Iterator[None]:
    """As by an operator, or a crash."""
    server.stop(immediately=True)
    try:
        yield
    finally:
        server.start()


@contextmanager
def suspended(server: PostgresServer) -> Iterator[None]:
    """All processes of the server stand still: connections stay, and nobody answers."""
    assert server.process is not None
    pid = server.process.pid
    os.kill(pid, signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    # From now on none is started, and none that ends vanishes.
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    for one in pids[1:]:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in reversed(pids):
            os.kill(one, signal.SIGCONT)


@pytest.mark.parametrize("size", SIZES)
def test_jobs_are_accepted_while_the_store_is_stopped(tmp_path, size, tell):
    """Singly and by many, from several threads; whichever way the store is stopped."""
    with closing(postgres_or_skip()) as server:
        for stop in (shut_down, suspended):
            url, journal = server.url(stop.__name__), tmp_path / stop.__name__
            added, told = add_while_stopped(server, url, journal, stop, size)
            with holdfast.connect(url) as queue:
                found = sorted(
                    (job.id, job.data["n"])
                    for some in iter(lambda: queue.claim(["work"], limit=1_000, lease="1h", renew=False), [])
                    for job in some
                )

            assert found == sorted(added)
            assert len(found) == size.jobs
            tell(f"{stop.__name__}: {told}")


def add_while_stopped(
    server: PostgresServer, url: str, journal: Path, stop: Stop, size: Size
) -> tuple[list[tuple[int, str]], str]:
    """Add jobs while the store is stopped, and wait until it has them; these, and how long it took."""
    with holdfast.connect(url, journal=journal) as queue, ThreadPoolExecutor(THREADS) as pool:
        queue.add("before")
        queue.counts()
        with stop(server):
            started_s = time.monotonic()
            share = size.jobs // THREADS
            adding = [pool.submit(add_all, queue, share, size.stopped_s / 2, f"t{n}") for n in range(THREADS)]
            added = [job for one in adding for job in one.result(600)]
            accepted_s = time.monotonic() - started_s
            assert cast(JournalConnection, queue.connection).journal.is_empty is False
            time.sleep(max(0.0, size.stopped_s - accepted_s))
        began_s = time.monotonic()
        wait_ingested(queue)
        took_s = time.monotonic() - began_s
    return added, (
        f"{size.jobs:,} jobs accepted in {accepted_s:.1f} s without the store, "
        f"which was stopped for {max(size.stopped_s, accepted_s):.1f} s; in the store {took_s:.1f} s later"
    )


def add_all(queue: holdfast.Queue, count: int, over_s: float, tag: str) -> list[tuple[int, str]]:
    """Add jobs, spread over a time; their ids and names."""
    rng, began_s = random.Random(tag), time.monotonic()
    made: list[tuple[int, str]] = []
    while len(made) < count:
        some = min(rng.choice([1, 100]), count - len(made))
        names = [f"{tag}.{len(made) + one}" for one in range(some)]
        if some == 1:
            handles = [queue.add("work", {"n": names[0]})]
        else:
            handles = queue.add_many([("work", {"n": name}) for name in names])
        made += [(job.id, name) for job, name in zip(handles, names, strict=True)]
        time.sleep(max(0.0, began_s + over_s * len(made) / count - time.monotonic()))
    return made


def wait_ingested(queue: holdfast.Queue, patience_s: float = 300.0) -> None:
    """Wait until the journal is empty, also over the next outage."""
    until_s = time.monotonic() + patience_s
    ingest: Callable[[float], Any] = cast(JournalConnection, queue.connection).wait_empty
    while not ingest(1.0):
        time.sleep(0.02)
        assert time.monotonic() < until_s, "the journal was not ingested"
