"""A queue on a file and a PostgreSQL server, which is stopped: the journal goes on with jobs of the file."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.core import ids
from holdfast.core.slots import shard_of
from holdfast.journal.connection import JournalConnection
from holdfast.journal.status import read_status
from holdfast.queue import connect
from holdfast.store.sharded import shard
from tests.queue_suite.tools import until
from tests.servers import PostgresServer, postgres_or_skip

from .test_kills import lines_of, nursery

# The file is shard 0, the server shard 1.
DOWN = 1
BACKLOG = "backlog-1-of-2"
KILLS = [
    pytest.param(6, id="small", marks=pytest.mark.proof),
    pytest.param(300, id="full", marks=pytest.mark.proof),
]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that is stopped and started."""
    with closing(postgres_or_skip()) as made:
        yield made


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue of two shards; one that is down is noticed soon."""
    monkeypatch.setattr(connect, "SHARD_PATIENCE_S", 0.1)
    monkeypatch.setattr(shard, "TRIED_EVERY_S", 0.05)
    return f"sqlite:///{tmp_path}/jobs.db {server.url()}"


def is_up(job: Any) -> bool:
    """Whether a job is of the shard that stays up."""
    return shard_of(int(job.id), 2) != DOWN


def domain_of(number: int) -> str:
    """A domain of a shard."""
    return next(f"d{n}" for n in range(99) if ids.slot_of("", f"d{n}") % 2 == number)


def claimed(queue: holdfast.Queue) -> list[Any]:
    """All jobs that can be claimed, in order."""
    found: list[Any] = []
    while some := queue.claim(["work"], limit=1_000, lease="1h", renew=False):
        found += some
    return found


def test_jobs_of_the_other_shard_do_not_wait(server, url, tmp_path):
    """Those of the shard that is down are kept, over a restart too, and come in order when it is back."""
    journal = tmp_path / "j"
    with holdfast.connect(url, journal=journal) as queue:
        queue.get(queue.add("before", domain=domain_of(DOWN)))
        server.stop(immediately=True)
        added = [queue.add("work", n) for n in range(200)]
        # Each waits until the journal is ingested, but for jobs of the shard that is down.
        there = [job for job in added if is_up(job)]
        assert [queue.get(job).state for job in there] == ["QUEUED"] * len(there)
        with pytest.raises(holdfast.Unavailable, match="shard 1"):
            queue.get(next(job for job in added if not is_up(job)))
        assert cast(JournalConnection, queue.connection).wait_empty(60) is False
    assert (journal / BACKLOG).exists()
    assert read_status(str(journal)).waiting == len(added) - len(there)

    with holdfast.connect(url, journal=journal) as queue:
        added += [queue.add("work", n) for n in range(200, 300)]
        there = [job for job in added if is_up(job)]
        assert queue.get(there[-1]).state == "QUEUED"
        server.start()
        # The backlog is deleted after the last of its lines has been ingested.
        until(lambda: cast(JournalConnection, queue.connection).journal.is_empty)
        until(lambda: not (journal / BACKLOG).exists())
        found = claimed(queue)

    for number in (0, 1):
        wanted = [job.id for job in added if shard_of(job.id, 2) == number]
        assert [job.id for job in found if shard_of(job.id, 2) == number] == wanted
    status = read_status(str(journal))
    assert (status.waiting, status.refused, status.damaged, status.segments) == (0, 0, 0, 1)


@pytest.mark.parametrize("kills", KILLS)
def test_acknowledged_jobs_survive_kills_while_a_shard_is_down(server, url, tmp_path, kills, tell):
    """Each is in the store once, those of a thread in each shard in their order."""
    journal, acked = tmp_path / "j", tmp_path / "acked"
    went_down = tmp_path / "went down"
    with subprocess.Popen(**nursery("add_jobs", tmp_path, kills, url, went_down)) as killer:
        until(lambda: acked.exists() and acked.stat().st_size)
        server.stop(immediately=True)
        until((journal / BACKLOG).exists)
        went_down.touch()
        size = acked.stat().st_size
        until(lambda: acked.stat().st_size > 2 * size or killer.poll() is not None)
        server.start()
        _, errors = killer.communicate(timeout=3_000)
        assert killer.returncode == 0, errors

    with holdfast.connect(url, journal=journal) as queue:
        until(lambda: cast(JournalConnection, queue.connection).journal.is_empty)
        found = {job.id: (job.data["tag"], job.data["n"]) for job in claimed(queue)}

    told = lines_of(acked)
    assert [found[job_id] for _, _, job_id in told] == [(tag, n) for tag, n, _ in told]
    assert len(set(found.values())) == len(found)
    by_thread: dict[tuple[str, int], list[int]] = {}
    for job_id, (tag, n) in found.items():
        by_thread.setdefault((tag, shard_of(job_id, 2)), []).append(n)
    assert all(numbers == sorted(numbers) for numbers in by_thread.values())
    status = read_status(str(journal))
    assert (status.waiting, status.refused, status.damaged) == (0, 0, 0)
    tell(f"{kills} kills, {len(told):,} acknowledged, {len(found):,} in the store")
