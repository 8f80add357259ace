"""Health: whether a worker claimed, or could have claimed, lately. A live process is no proof."""

import fcntl
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.work.health import Health, complaint
from tests.cli.shell import Said, Shell
from tests.queue_suite.tools import until
from tests.work.conftest import ROOT

NOW = 1_800_000_000_000
WELL = Health(pid=1, name="w", written_at=NOW, claimed_at=NOW, executors=1)


def doctor(*words: str) -> Said:
    """Ask the doctor about a worker, in this process: it is asked often."""
    return Shell(ROOT).run("doctor", "--worker", *words)


def is_well(path: Path) -> bool:
    """What the doctor's exit code says."""
    code = doctor(str(path)).code
    assert code in (0, 1)
    return code == 0


@pytest.mark.parametrize(
    ("health", "later_ms", "words"),
    [
        ({}, 0, ""),
        ({}, 7_000, "not written down how it is for 7 s"),
        ({"store_error": "locked"}, 0, "does not let it claim: locked"),
        ({"executors": 0, "start_error": "ImportError: x"}, 0, "executors can be started: ImportError"),
        ({"executors": 0}, 0, ""),
        ({"claimed_at": NOW - 13_000}, 0, "has not answered a claim for 13 s"),
        ({"claimed_at": NOW - 13_000, "full": True}, 0, ""),
        ({"claimed_at": NOW - 13_000, "draining": True}, 0, ""),
    ],
)
def test_what_is_written_down_is_judged(health, later_ms, words):
    """The first that is wrong is told."""
    fields = {name: getattr(WELL, name) for name in WELL.__struct_fields__} | health

    found = complaint(Health(**fields), now_ms=NOW + later_ms)

    assert words in found
    assert bool(words) == bool(found)


def test_a_worker_that_is_stopped_is_not_well_until_it_goes_on(bench, tmp_path):
    """Its process is there all the while."""
    path = tmp_path / "health.json"
    assert not is_well(path)
    worker = bench.start("--health-file", str(path))
    bench.wait_for(lambda: path.exists() and is_well(path))
    assert "the store last answered a claim" in doctor(str(path)).out

    worker.send_signal(signal.SIGSTOP)
    bench.wait_for(lambda: not is_well(path))
    # On a busy machine its last claim may have been long before.
    bench.wait_for(lambda: "is there, but has not written down how it is" in doctor(str(path)).out)
    worker.send_signal(signal.SIGCONT)
    bench.wait_for(lambda: is_well(path))

    by_number = doctor(str(worker.pid), "--store", bench.store, "--json")
    assert json.loads(by_number.out)["ok"] is True
    assert doctor("--store", bench.store).code == 0
    worker.terminate()
    worker.communicate(timeout=60)
    assert not path.exists()
    assert doctor("--store", bench.store).code == 1


@pytest.mark.long
def test_a_worker_whose_store_cannot_be_written_is_not_well(bench, tmp_path):
    """Somebody holds the lock and does not end; when he does, the worker goes on."""
    path = tmp_path / "health.json"
    worker = bench.start("--health-file", str(path))
    bench.wait_for(lambda: path.exists() and is_well(path))

    with Path(f"{bench.store}-lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        bench.wait_for(lambda: not is_well(path))
        assert "store" in doctor(str(path)).out
    bench.wait_for(lambda: is_well(path))

    assert bench.queue.add("double", {"n": 4}).result(wait=60) == 8
    assert worker.poll() is None


def test_a_worker_whose_executors_cannot_start_is_not_well(tmp_path):
    """The only one dies, and what it imported is broken since."""
    app, path = tmp_path / "app.py", tmp_path / "health.json"
    text = "import holdfast, os\nqueue = holdfast.connect('jobs.db')\n\n@queue.task\ndef die(): os._exit(1)\n"
    app.write_text(text)
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "app:queue", "--create", "--health-file", str(path)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stderr is not None
        assert "ready" in worker.stderr.readline()
        app.write_text("raise RuntimeError('out of order')\n" + text)
        with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
            job = queue.add("die")
            heard = iter(worker.stderr.readline, "")
            assert any("no executor could be started: RuntimeError: out of order" in line for line in heard)

            until(lambda: not is_well(path))
            assert worker.poll() is None
            assert "none of its executors can be started: RuntimeError" in doctor(str(path)).out
            until(lambda: job.get().state != "RUNNING")
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def test_a_worker_whose_code_has_no_task_for_a_while_goes_on_to_be_well(tmp_path):
    """It waits for the next reload."""
    app, path = tmp_path / "app.py", tmp_path / "health.json"
    bare = "import holdfast\nqueue = holdfast.connect('jobs.db')\n"
    app.write_text(f"{bare}\n@queue.task\ndef rest(): pass\n")
    words = ["worker", "app:queue", "--create", "--reload", "--health-file", str(path)]
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert worker.stderr is not None
        assert "ready" in worker.stderr.readline()
        until(lambda: path.exists() and is_well(path))

        app.write_text(bare)
        assert any("there are no tasks" in line for line in iter(worker.stderr.readline, ""))
        path.unlink(missing_ok=True)

        until(lambda: path.exists() and is_well(path))
    finally:
        worker.terminate()
        worker.communicate(timeout=60)
