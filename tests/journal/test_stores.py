"""A journal on every kind of store, and in front of a server."""

from typing import cast

import pytest

import holdfast
from holdfast.journal.connection import JournalConnection
from tests.remote.processes import ServerProcess


@pytest.fixture(params=["memory", "sqlite", "sharded", "postgres", "redis", "grpc"])
def url(request, tmp_path):
    """The address of an empty store of each kind."""
    if request.param in ("postgres", "redis"):
        yield request.getfixturevalue(f"{request.param}_url")
    elif request.param == "grpc":
        with ServerProcess(str(tmp_path / "jobs.db"), tmp_path) as server:
            yield server.url
    else:
        kinds = {"memory": "memory://", "sqlite": str(tmp_path / "jobs.db")}
        yield kinds.get(request.param, f"sqlite:///{tmp_path}/shards?shards=4")


def test_jobs_of_every_kind_are_ingested_once(url, tmp_path):
    """With options, domains and followers; also when the journal is read again from its beginning."""
    path = tmp_path / "j"
    with holdfast.connect(url, journal=path) as queue:
        then = queue.call("after", {"x": 1})
        added = [queue.add("single", n).id for n in range(20)]
        added += [one.id for one in queue.add_many([("many", n) for n in range(200)])]
        added += [queue.add("limited", n, domain=f"d{n % 3}").id for n in range(10)]
        added += [queue.add("first", n, then=then, attempts=3).id for n in range(5)]
        cast(JournalConnection, queue.connection).ingest()
        assert not (path / "refused").exists()
        counts = {task: sum(states.values()) for task, states in queue.counts().items()}
        assert counts == {"single": 20, "many": 200, "limited": 10, "first": 5}
        assert sorted(job.id for job in queue.jobs(limit=1_000)) == sorted(added)
        if url == "memory://":
            return
    (path / "position").unlink()

    with holdfast.connect(url, journal=path) as queue:
        cast(JournalConnection, queue.connection).ingest()
        assert sorted(job.id for job in queue.jobs(limit=1_000)) == sorted(added)
        assert not (path / "refused").exists()


def test_a_worker_runs_jobs_that_are_on_their_way(tmp_path):
    """It ends when nothing is left, in the journal neither."""
    ran = []
    with holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j") as queue:

        @queue.task
        def work(n: int) -> None:
            ran.append(n)
            if n < 20:
                work.add(n + 20)

        for n in range(20):
            work.add(n)
        while job := queue.next(["work"], until_empty=True):
            job.run()

    assert sorted(ran) == list(range(40))


def test_a_claim_finds_what_was_just_added(tmp_path):
    """Also one that does not wait."""
    with holdfast.connect(str(tmp_path / "jobs.db"), journal=tmp_path / "j") as queue:
        for n in range(50):
            queue.add("work", n)
            job = queue.next(["work"])
            assert job is not None
            assert job.data == n
            job.done()
