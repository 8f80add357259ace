"""The registry of workers, as real processes come, go, and are killed."""

import json
from typing import Any

from holdfast.core.commands import Dismiss
from holdfast.core.queries import ListWorkers
from tests.cli.shell import Said, Shell
from tests.work.conftest import ROOT, Bench

APP = "tests.work.several:queue"


def holdfast(bench: Bench, *words: str) -> Said:
    """Run a command on the store, in this process."""
    return Shell(ROOT).run("--store", bench.store, *words)


def living(bench: Bench) -> list[int]:
    """The process numbers of all workers that are alive."""
    return [worker.pid for worker in bench.queue.connection.ask(ListWorkers())]


def test_a_task_that_nobody_knows_waits_for_a_worker_that_does(bench):
    """`why` says so meanwhile, and how many know it then."""
    job = bench.queue.add("double", {"n": 21})
    stranger = bench.start(name=APP)
    bench.wait_for(lambda: living(bench) == [stranger.pid])
    assert "No live worker knows the task 'double'." in job.why()

    knower = bench.start()
    assert job.result(wait=60) == 42
    # Both know this one: both are busy.
    gated, _ = bench.queue.add_many([("gated", None)] * 2)
    bench.wait_for(lambda: len(bench.noted("gated")) == 2)
    names = [one.name for one in bench.queue.workers()]
    shown = holdfast(bench, "show", str(gated.id)).out
    assert any(f"worker        {name}, claim 1" in shown for name in names)
    waiting = bench.queue.add("double", {"n": 1})
    assert "1 live worker knows its task." in waiting.why()

    bench.open_gate()
    assert waiting.result(wait=60) == 2
    knower.terminate()
    knower.communicate(timeout=60)
    assert "No live worker knows the task 'double'." in bench.queue.add("double", {"n": 1}).why()


def test_a_worker_that_is_killed_is_no_longer_alive(bench):
    """At once, without a word from it; and what it left is tidied away."""
    worker = bench.start(name=APP)
    bench.wait_for(lambda: living(bench) == [worker.pid])

    worker.kill()
    worker.wait()

    assert living(bench) == []
    bench.work()
    assert bench.queue.connection.engine.read(lambda txn: txn.rows("worker")) == {}


def test_a_worker_whose_entry_was_removed_enters_again(bench):
    """As one that was not connected for a moment."""
    worker = bench.start(name=APP)
    bench.wait_for(lambda: living(bench) == [worker.pid])
    (entry,) = bench.queue.connection.ask(ListWorkers())

    bench.queue.connection.ask(Dismiss(name=entry.name))

    bench.wait_for(lambda: living(bench) == [worker.pid])


def test_workers_are_listed(bench):
    """For people and for programs, with what they know and what they have done."""
    bench.queue.add("nap", {"seconds": 0.0})
    assert holdfast(bench, "workers").out == "no worker is alive\n"
    worker = bench.start("--threads", "4", "--processes", "2", name=APP)
    bench.wait_for(lambda: living(bench) == [worker.pid])

    def told() -> Any:
        return json.loads(holdfast(bench, "workers", "--json").out)

    bench.wait_for(lambda: told()["done"] == 1)

    assert (told()["pid"], told()["processes"], told()["threads"]) == (worker.pid, 2, 4)
    assert "nap" in told()["serves"][0]["tasks"]
    table = holdfast(bench, "workers").out
    assert str(worker.pid) in table
    assert "2 × 4" in table


def test_a_worker_is_stopped_from_elsewhere(bench):
    """It finishes what it runs and ends, as on SIGTERM; other workers go on."""
    worker = bench.start()
    job = bench.queue.add("patient", {"seconds": 1.0})
    bench.wait_for(lambda: bench.noted("began"))

    told = holdfast(bench, "workers", "stop", str(worker.pid))

    assert told.out.endswith("to stop\n"), told
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert job.result()
    assert living(bench) == []
    assert holdfast(bench, "workers", "stop", "nobody").code == 3
