"""`holdfast bench`: what it measures, in the forms that it is asked for."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli.bench.table import MEASURES

SMALL = ("--scale", "0.01", "--rounds", "1")


def figures(said):
    """The figures of an answer in JSON, and the settings they were taken under."""
    answer = json.loads(said.out)
    assert set(answer["settings"]) == {"holdfast", "store", "machine", "scale", "rounds"}
    return answer["figures"]


@pytest.mark.parametrize(
    "words", [("--json", "bench", "add"), ("bench", "--json", "add"), ("bench", "add", "--json")]
)
def test_json_may_be_asked_for_before_or_after_the_command(shell, words):
    (figure,) = figures(shell.ok(*words, *SMALL))

    assert figure["name"] == "one thread add() / raw one-row commits"
    assert figure["ratio"] == pytest.approx(figure["ours"] / figure["raw"])


def test_a_real_worker_drains_and_is_gone_afterwards(shell):
    """Two executors; whoever is left behind would fail this test."""
    (figure,) = figures(shell.ok("--json", "bench", "drain2", *SMALL))

    assert figure["name"] == "drain by 2 executors / raw claim + delete by 1,000"
    assert figure["ours"] > 0


def test_the_latency_to_another_process_and_an_idle_worker_are_measured(shell):
    other, idle = figures(shell.ok("--json", "bench", "latency2", "idle", *SMALL))

    assert (other["unit"], other["ours"] > 0) == ("ms", True)
    assert (idle["unit"], idle["raw"], idle["ratio"]) == ("% of a core, no write", None, None)


@pytest.mark.parametrize("measure", ["add_many", "claim", "add64", "backlog", "domains", "latency"])
def test_each_measure_has_a_line_in_the_table(shell, measure):
    said = shell.ok("bench", measure, *SMALL)

    assert said.lines[0].startswith("holdfast: ")
    assert said.lines[-1].split()[-1] == "1"
    assert len(said.lines) == 7


def test_a_slow_disk_is_measured_with_apsw(shell):
    """Only that library lets a program stand between SQLite and its disk."""
    (figure,) = figures(
        shell.ok("--json", "--store", "sqlite:///jobs.db?driver=apsw", "bench", "slow", *SMALL)
    )

    assert figure["ours"] > 0
    assert figures(shell.ok("--json", "bench", "slow", *SMALL)) == []


def test_the_store_says_where_and_is_not_touched(shell):
    """Fresh ones are made beside it, and removed."""
    shell.add("resize")
    before = shell.everything()

    shell.ok("--store", f"sqlite:///{shell.file}?driver=apsw", "bench", "add", *SMALL)

    assert shell.everything() == before
    assert [path.name for path in shell.folder.glob("holdfast-bench-*")] == []


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("bench", "speed"), "add_many, claim, drain"),
        (("bench", "--scale", "0"), "--scale"),
        (("bench", "--rounds", "0"), "--rounds"),
        (("bench", "--store", "memory://"), "raw side"),
        (("bench", "--store", "nowhere/jobs.db"), "folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(shell, words, word):
    assert word in shell.refused(*words, code=2)


def test_the_help_names_every_measure(shell):
    said = shell.ok("bench", "--help").out.split()

    assert [name for name in MEASURES if not {name, f"{name},"} & set(said)] == []


def test_a_terminal_sees_how_far_it_is(shell):
    """And a program that reads the answer does not."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "bench", "add", *SMALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=shell.folder) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # what a terminal says when nobody is left at the other end
            pass
        assert process.stdout is not None
        answer = process.stdout.read()
    os.close(ours)

    assert process.returncode == 0
    assert b"one thread add()" in shown
    assert b"\x1b" not in answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("measure", ["idle", "latency2"])
def test_a_bench_that_is_interrupted_leaves_nothing_behind(tmp_path, measure, number):
    """Neither the processes that it has started nor its stores."""
    command = [sys.executable, "-m", "holdfast", "bench", measure, "--scale", "10", "--folder", str(tmp_path)]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        started = until(lambda: descendants(bench.pid))

        bench.send_signal(number)

        assert bench.wait(60) == 128 + number
        assert [pid for pid in started if is_running(pid)] == []
        assert list(tmp_path.iterdir()) == []
    finally:
        bench.kill()
        bench.wait()


def until(found):
    """Look until there is something."""
    end = time.monotonic() + 60
    while not (it := found()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return it


def descendants(pid):
    """The processes that one has started, and those that these have."""
    try:
        paths = list(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [int(word) for path in paths for word in path.read_text().split()]
    except OSError:  # it has just ended
        return []
    return [one for child in children for one in (child, *descendants(child))]


def is_running(pid):
    """Whether a process is there, and is not only waiting to be asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
