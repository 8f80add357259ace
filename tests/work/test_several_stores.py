"""`holdfast worker --handlers` on several stores, one of which is a server that is stopped and started."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core import ids
from tests.cli.conftest import shell as shell
from tests.servers import PostgresServer, postgres_or_skip

from .conftest import Bench

WHO = "import os\nreturn os.getpid()"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own."""
    with closing(postgres_or_skip()) as made:
        yield made


def in_shard(number: int, **fields: Any) -> dict[str, Any]:
    """The arguments of a job in a shard of two."""
    domain = next(f"d{n}" for n in range(99) if ids.slot_of("", f"d{n}") % 2 == number)
    return {"domain": domain, **fields}


def task_in(number: int) -> str:
    """A task whose handler is kept in a shard of two."""
    return next(f"task{n}" for n in range(99) if ids.slot_of("", f"task{n}") % 2 == number)


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_worker_goes_on_while_stores_are_away(server: PostgresServer, tmp_path: Path) -> None:
    """A file, a server, and both as one store. All share warm contexts; what was away is worked when back."""
    urls = [str(tmp_path / "a.db"), server.url("b"), f"sqlite:///{tmp_path}/c.db {server.url('c')}"]
    with ExitStack() as stack:
        file, away, shards = (stack.enter_context(holdfast.connect(url)) for url in urls)
        for queue in (file, away, shards):
            for task in (task_in(0), task_in(1)):
                queue.handlers.set(task, WHO, lang="python", eid="one")
        jobs = [away.add(task_in(1)), shards.add(task_in(1), **in_shard(1))]
        server.stop(immediately=True)
        bench = stack.enter_context(closing(Bench(tmp_path)))
        words = [word for url in urls for word in ("--store", url)]
        # One at a time: a job beside another one has a context of its own.
        bench.start("--handlers", "--handler-slots", "1", *words, name="")
        jobs.append(file.add(task_in(0)))
        assert isinstance(jobs[-1].result(wait=100), int)

        server.start()
        jobs += [shards.add(task, **in_shard(0)) for task in (task_in(0), task_in(1))]
        # Not one for each: a context that was idle for long, on a busy machine, has been stopped meanwhile.
        assert len({job.result(wait=100) for job in jobs}) < len(jobs)

        server.stop(immediately=True)
        others = [file.add(task_in(0)), *(shards.add(task_in(one), **in_shard(0)) for one in (0, 1))]
        assert [isinstance(job.result(wait=100), int) for job in others] == [True] * 3
        done = len(jobs) + len(others)
        bench.wait_for(lambda: [one.done for one in file.workers()] == [done])
        file.stop_worker(file.workers()[0].name)
        bench.wait_for(lambda: file.workers() == [])
        server.start()


def test_what_cannot_be_combined_is_refused(shell) -> None:
    """Several stores with a module's queue, without handlers, with a journal, or one of them twice."""
    two = ("--store", "a.db", "--store", "b.db")
    for words, reason in [
        (("app:queue", "--handlers", *two), "several are for --handlers without MODULE:QUEUE"),
        (("app:queue", *two), "several are for --handlers"),
        (("--handlers", "--journal", "j", *two), "it belongs to one store"),
        (("--handlers", *two, "--store", "a.db"), "each named once"),
    ]:
        assert reason in shell.run("worker", *words).err
