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

from holdfast.cli.bench.measures import MEASURES

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

    assert (figure["measure"], figure["unit"], figure["rounds"]) == ("add", "jobs/s", 1)
    assert figure["value"] > 0


def test_without_names_everything_is_measured(shell):
    """In the order of the help; a worker that is left behind would fail this test."""
    said = shell.ok("bench", *SMALL)

    assert said.lines[0].startswith("holdfast: ")
    assert [line.split()[0] for line in said.lines[6:]] == list(MEASURES)
    assert [line.split()[-1] for line in said.lines[6:]] == ["jobs/s"] * 4 + ["ms"]


def test_the_store_says_where_and_is_not_touched(shell):
    """Fresh ones are made beside it, and removed."""
    shell.add("resize")
    before = shell.everything()

    shell.ok("--store", f"sqlite:///{shell.file}", "bench", "add", *SMALL)

    assert shell.everything() == before
    assert [path.name for path in shell.folder.glob("holdfast-bench-*")] == []


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("bench", "speed"), "add_many, next, drain"),
        (("bench", "--scale", "0"), "--scale"),
        (("bench", "--rounds", "0"), "--rounds"),
        (("bench", "--store", "memory://"), "one of these"),
        (("bench", "--store", "grpc://?store=memory://"), "one of these"),
        (("bench", "--store", "sqlite:///a.db sqlite:///b.db"), "one of these"),
        (("bench", "--store", "nowhere/jobs.db"), "folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(shell, words, word):
    assert word in shell.refused(*words, code=2)


def test_the_help_names_every_measure(shell):
    said = shell.ok("bench", "--help").out.split()

    assert [name for name in MEASURES if not {name, f"{name},", f"{name};"} & set(said)] == []


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
    assert b"task.add" in shown
    assert b"\x1b" not in answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_bench_that_is_interrupted_leaves_nothing_behind(tmp_path, number):
    """Neither the processes that it has started nor its stores."""
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "bench",
        "latency",
        "--scale",
        "10",
        "--folder",
        str(tmp_path),
    ]
    bench = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
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
