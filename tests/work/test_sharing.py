"""Workers that serve several tenants and tasks: real processes."""

import pytest

import holdfast
from tests.cli.conftest import shell as shell


def add(bench, tenant, task, *data):
    """Add jobs of a tenant."""
    with holdfast.connect(bench.store, tenant=tenant) as queue:
        return [job.id for job in queue.add_many([(task, one) for one in data])]


def states(bench, tenant):
    """How many jobs of a tenant stand how, by task."""
    with holdfast.connect(bench.store, tenant=tenant) as queue:
        return queue.counts()


@pytest.mark.parametrize(
    ("words", "served"),
    [
        pytest.param([], [""], marks=pytest.mark.proof),
        pytest.param(["--tenant", "a"], ["a"], marks=pytest.mark.proof),
        (["--tenant", "a", "--tenant", "b"], ["a", "b"]),
        pytest.param(["--tenant", "*"], ["", "a", "b"], marks=pytest.mark.proof),
        pytest.param(["--tenant", "*", "--scheduler", "first"], ["", "a", "b"], marks=pytest.mark.proof),
        pytest.param(["--tenant", "*", "--scheduler", "random"], ["", "a", "b"], marks=pytest.mark.proof),
        (["--tenant", "*", "--scheduler", "weighted", "--weight", "double=3"], ["", "a", "b"]),
    ],
)
def test_a_worker_serves_the_tenants_that_it_is_told(bench, words, served):
    """Its queue's own, some, or all, by every scheduler; all of their jobs."""
    for tenant in ("", "a", "b"):
        add(bench, tenant, "double", *({"n": n} for n in range(50)))
        add(bench, tenant, "later", *({"n": n} for n in range(5)))

    bench.work("--threads", "2", *words)

    for tenant in ("", "a", "b"):
        state = "FINISHED" if tenant in served else "QUEUED"
        assert states(bench, tenant) == {"double": {state: 50}, "later": {state: 5}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scheduler", "fare"], "fair, first, random, weighted"),
        (["--weight", "double"], "such as mail=5"),
        (["--scheduler", "weighted", "--weight", "double=0"], "weight of double"),
    ],
)
def test_what_no_worker_can_do_is_told_at_once(shell, words, said):
    """Before anything is started."""
    told = shell.run("worker", "tests.work.app:queue", *words)

    assert told.code == 2
    assert said in told.err


@pytest.mark.parametrize("scheduler", ["fair", pytest.param("first", marks=pytest.mark.proof)])
def test_a_slow_task_does_not_hoard_what_another_worker_could_do(bench, scheduler):
    """However short the jobs were that ran before it."""
    bench.queue.add_many([("double", {"n": n}) for n in range(500)])
    bench.start("--scheduler", scheduler)
    bench.wait_for(lambda: bench.queue.counts()["double"] == {"FINISHED": 500})

    slow = bench.queue.add_many([("patient", {"seconds": 60})] * 5)
    bench.wait_for(lambda: bench.noted("began"))
    bench.start("--scheduler", scheduler)
    bench.wait_for(lambda: len(bench.noted("began")) == 2)

    assert sorted(job.get().state for job in slow) == ["QUEUED"] * 3 + ["RUNNING"] * 2
