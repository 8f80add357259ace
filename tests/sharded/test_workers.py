"""A worker on shards."""

import pytest

from holdfast.core.job import State
from tests.sharded.places import domain_in
from tests.work.conftest import Bench


@pytest.fixture
def bench(tmp_path):
    """Four files as one store, and workers on it."""
    made = Bench(tmp_path, f"sqlite:///{tmp_path}/jobs?shards=4")
    yield made
    made.close()


def test_a_worker_works_all_shards(bench):
    """What lives anywhere, what is limited, what a handler adds; then nothing is left."""
    queue = bench.queue
    queue.limit(domain_in(2), concurrency=1)
    jobs = [queue.add("double", {"n": n}) for n in range(40)]
    limited = [queue.add("double", {"n": n}, domain=domain_in(2)) for n in range(10)]
    family = queue.add("family")

    bench.work("--processes", "2", "--threads", "2")

    assert [job.result() for job in jobs] == [2 * n for n in range(40)]
    assert [job.result() for job in limited] == [2 * n for n in range(10)]
    assert queue.result(family.result()) == 42
    assert {state for row in queue.counts().values() for state in row} == {State.FINISHED}
