"""The worker function of the document, unchanged in-process and across the network.

`next`, work for three lease lengths, `done`: the lease is kept, and nobody else gets the job.
"""

from collections.abc import Iterator
from time import sleep

import pytest

from holdfast.queue.connect import connect
from holdfast.queue.queue import Queue
from tests.remote.processes import ServerProcess

LEASE_S = 0.5


def work(queue: Queue) -> object:
    """What the document's worker does with one job."""
    job = queue.next(["crawl"], lease=LEASE_S, wait=30)
    assert job is not None
    sleep(3 * LEASE_S)
    job.done(error=None)
    return job.id


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "grpc"])
def url(request, tmp_path) -> Iterator[str]:
    """The address of an empty store of each kind, and of a server."""
    if request.param == "grpc":
        with ServerProcess(str(tmp_path / "jobs.db"), tmp_path) as server:
            yield server.url
    elif request.param == "memory":
        yield "memory://"
    elif request.param == "sqlite":
        yield str(tmp_path / "jobs.db")
    else:
        yield request.getfixturevalue(f"{request.param}_url")


def test_the_worker_of_the_document_runs_unchanged(url):
    """Only the address differs."""
    with connect(url) as queue:
        added = queue.add("crawl", "https://example.org/")

        assert work(queue) == added.id

        job = queue.get(added)
        assert (job.state, job.claim, job.losses) == ("FINISHED", 1, 0)
