"""How a worker is operated: several queues, as many executors as are needed, none that eats too much."""

import os
import signal
import subprocess
import sys
import time

import pytest

import holdfast
from holdfast.core.errors import BadInput
from holdfast.core.units import size_bytes, size_text
from tests.cli.conftest import shell as shell
from tests.queue_suite.tools import until
from tests.work.conftest import PATIENCE_S, Bench, children_of, lines_of

APP = "tests.work.several"
QUEUES = (f"{APP}:queue", f"{APP}:tenants", f"{APP}:elsewhere")


def work(bench: Bench, *words: str, names: tuple[str, ...] = QUEUES[:1]) -> str:
    """Have a worker of these queues do all there is to do; what it said."""
    worker = bench.start(*names[1:], "--until-empty", *words, name=names[0])
    _, said = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0, said
    return said


def executors(worker: subprocess.Popen[str]) -> list[int]:
    """The processes that a worker has started."""
    return children_of(worker.pid)


# ── several queues ───────────────────────────────────────────────────────────────────────────────


def test_a_job_is_run_by_the_queue_that_it_came_from(bench):
    """Two tenants of one store, and another store, each with a task of the same name."""
    with (
        holdfast.connect(bench.store, tenant="acme") as acme,
        holdfast.connect(f"{bench.store}.elsewhere") as other,
    ):
        jobs = [queue.add("where") for queue in (bench.queue, acme, other)]

        work(bench, "--threads", "3", names=QUEUES)

        assert [jobs[0].result(), jobs[1].result()] == ["queue", "tenants"]
        said, _, follower = jobs[2].result().rpartition(" ")
        assert said == "elsewhere, then"
        assert bench.queue.result(follower) == "queue"


def test_a_store_is_named_for_one_queue_only(shell):
    """With several nobody could say which is meant."""
    said = shell.run("worker", *QUEUES[:2], "--store", "jobs.db")

    assert said.code == 2
    assert "must be absent: each of the 2 queues has its own" in said.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--processes", "0"), "processes is '0', and must be a number from 1 to 256, or two such as 1..8"),
        (("--processes", "4..2"), "processes is '4..2'"),
        (("--processes", "many"), "processes is 'many'"),
        (("--memory-limit", "lots"), "memory-limit is 'lots', and must be a size such as 500MB"),
        (("--memory-limit", "5"), "memory-limit is '5', and must be a size such as 500MB"),
        (("--max-growth", "0"), "max-growth is '0'"),
        (("--max-jobs", "0"), "max-jobs"),
        (("--burst-seconds", "-1"), "burst-seconds"),
        ((QUEUES[0],), "each named once"),
    ],
)
def test_bad_words_are_refused_before_anything_starts(shell, words, complaint):
    """By the thing, what was found and what was needed."""
    said = shell.run("worker", QUEUES[0], *words)

    assert said.code == 2
    assert complaint in said.err


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("500MB", 500_000_000), ("1.5 gb", 1_500_000_000), ("512MiB", 512 * 1024**2), ("2kb", 2000)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    """Powers of ten, or of two with an i."""
    assert size_bytes(text, name="limit") == size


@pytest.mark.parametrize("text", ["", "0", "MB", "-1MB", "1e9", "5 apples", "1 1MB", "9" * 15 + "TB"])
def test_what_is_no_size_is_refused(text):
    """By name."""
    with pytest.raises(BadInput, match="limit is"):
        size_bytes(text, name="limit")


def test_a_size_is_told_in_its_largest_unit():
    assert [size_text(n) for n in (5, 2_000, 500_000_000, 1_500_000_000)] == [
        "5 B",
        "2 KB",
        "500 MB",
        "1.5 GB",
    ]


# ── as many executors as are needed ──────────────────────────────────────────────────────────────


def test_executors_come_while_jobs_wait_and_go_after_an_idle_while(bench):
    """From one to three and back, and no job is killed for it."""
    jobs = [bench.queue.add("gated") for _ in range(9)]
    worker = bench.start("--processes", "1..3", "--shrink-after", "500ms", name=QUEUES[0])

    bench.wait_for(lambda: len(executors(worker)) == 3 == len(set(bench.noted("gated"))))
    bench.open_gate()
    assert [job.result(wait=60) for job in jobs] == ["done"] * 9
    bench.wait_for(lambda: len(executors(worker)) == 1)

    assert {job.get().claim for job in jobs} == {1}


def test_a_burst_ends_by_itself_and_drains(bench):
    """What runs may finish, what waits goes on waiting."""
    first = bench.queue.add("gated")
    second = bench.queue.add("gated")

    worker = bench.start("--burst-seconds", "2", name=QUEUES[0])
    assert any("finishing " in line for line in lines_of(worker))
    bench.open_gate()
    worker.communicate(timeout=60)

    assert worker.returncode == 0
    assert first.result() == "done"
    assert second.get().state == "QUEUED"


# ── recycling ────────────────────────────────────────────────────────────────────────────────────


def test_an_executor_is_recycled_after_so_many_jobs(bench):
    """A fresh one is there first, so nothing waits; nothing is lost or run twice."""
    worker = bench.start("--max-jobs", "2", name=QUEUES[0])
    jobs = []

    def third_is_there() -> bool:
        jobs.append(bench.queue.add("nap", {"seconds": 0.01}))
        assert jobs[-1].result(wait=60) == "rested"
        return len(set(bench.noted("nap"))) == 3

    bench.wait_for(third_is_there)

    assert len(bench.noted("nap")) == len(jobs)
    first = bench.noted("nap")[0]
    bench.wait_for(lambda: first not in executors(worker))


@pytest.mark.proof
def test_an_executor_that_has_grown_is_recycled(bench):
    """What it leaves behind goes with it."""
    first = bench.queue.add("grow", {"megabytes": 80})
    worker = bench.start("--max-growth", "50MB", name=QUEUES[0])
    grown = first.result(wait=60)

    bench.wait_for(lambda: executors(worker) not in ([], [grown]) and grown not in executors(worker))

    assert bench.queue.add("process").result(wait=60) != grown
    worker.terminate()
    assert "has grown by" in worker.communicate(timeout=60)[1]


def test_a_limit_below_the_memory_of_an_idle_executor_is_refused(bench):
    """Each executor would be killed at once, and each job quarantined."""
    worker = bench.start("--memory-limit", "16MB", name=QUEUES[0])
    _, said = worker.communicate(timeout=60)

    assert worker.returncode == 2
    assert "memory-limit is '16 MB', and must be above the" in said
    assert "that an executor has before it runs a job" in said


def test_a_job_that_eats_alone_is_quarantined_and_its_neighbours_are_not(bench):
    """The first time all that ran are suspects; after that it eats alone, and that counts."""
    eater = bench.queue.add("eat", {"megabytes": 400}, losses=2)
    neighbour = bench.queue.add("nap", {"seconds": 3.0})

    said = work(bench, "--threads", "2", "--memory-limit", "250MB")

    assert "above its limit of 250 MB" in said
    assert eater.get().state == "FAILED"
    assert "quarantined" in eater.get().reason
    assert neighbour.result() == "rested"
    assert (neighbour.get().losses, neighbour.get().attempts) == (0, 0)


# ── reload ───────────────────────────────────────────────────────────────────────────────────────

SOURCE = """
import holdfast
{extra}
queue = holdfast.connect("jobs.db")

@queue.task()
def answer() -> str:
    return {answer!r}
"""


@pytest.fixture
def reloading(tmp_path):
    """A worker that reloads app.py, and what waits for a line of its."""
    (tmp_path / "app.py").write_text(SOURCE.format(extra="", answer="old"))
    words = ["worker", "app:queue", "--create", "--reload", "--processes", "1"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert worker.stderr is not None
    heard = iter(worker.stderr.readline, "")
    try:
        yield worker, lambda words: any(words in line for line in heard)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert worker.returncode == 0


def test_changed_files_are_reloaded_and_broken_ones_wait_to_be_mended(tmp_path, reloading):
    """The old executors go on while the new ones cannot start."""
    app, helper = tmp_path / "app.py", tmp_path / "helper.py"
    _, said = reloading
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        assert said("ready: 1 task on ")
        assert queue.add("answer").result(wait=60) == "old"

        app.write_text(SOURCE.format(extra="import helper", answer="new"))
        assert said("not reloaded after a change of app.py: ModuleNotFoundError")
        helper.write_text("this is no Python")
        assert said("not reloaded after a change of helper.py: SyntaxError")
        assert queue.add("answer").result(wait=60) == "old"

        helper.write_text("mended = True")
        assert said("reloaded after a change of helper.py")
        assert queue.add("answer").result(wait=60) == "new"


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_an_executor_that_ends_while_its_successor_starts_is_replaced_once(tmp_path, reloading):
    """The new code waits for a file while it is imported, and the old executor dies meanwhile."""
    worker, said = reloading
    waits = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"
    assert said("ready: 1 task on ")
    (old,) = executors(worker)
    (tmp_path / "app.py").write_text(SOURCE.format(extra=waits, answer="new"))
    until(lambda: len(executors(worker)) == 2)
    os.kill(old, signal.SIGKILL)
    until(lambda: old not in executors(worker))
    # Another one would be started now.
    time.sleep(0.3)
    assert len(executors(worker)) == 1
    (tmp_path / "go").touch()
    assert said("reloaded after a change of app.py")
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        assert queue.add("answer").result(wait=60) == "new"
    assert len(executors(worker)) == 1
