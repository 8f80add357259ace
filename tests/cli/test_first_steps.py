"""What a new user types wrong: each is told in plain words, with what to do, and a code that scripts know."""

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.cli.test_process import HOLDFAST, SECONDS, bash, environment
from tests.stores import here_and_in_proof

WRONG = {
    ("add", "a", "-"): (2, "standard input is empty, and must be JSON"),
    ("add", "a", ""): (2, "DATA is empty, and must be JSON"),
    ("add", "a", "--delay", "soon"): (2, 'a duration from 0 to ten years, such as 90 (seconds), "2h 30m"'),
    ("requeue", 5, "--run-at", "tomorrow"): (2, "--run-at is 'tomorrow', and must be a moment in the years"),
    ("schedule", "n", "t", "--every", "0s"): (2, "every is 0.0, and must be whole seconds"),
    ("schedule", "n", "t", "--cron", "@daily", "--every", "1h"): (2, "'cron and every', and must be exactly"),
    ("schedule", "n", "--delete", "--run"): (2, "--delete needs NAME and nothing else"),
    ("counts", "--store", "jobs.db?shards=4"): (2, "store is 'jobs.db?shards=4', and must be a file name"),
    ("limit", "d", "--rate", "0"): (2, "from 0.000001 to 1,000,000 starts a second"),
    ("completion",): (2, "Missing argument 'SHELL'"),
    ("move", "jobs.db"): (2, "Missing argument 'TO'"),
    ("lst",): (2, "did you mean jobs?"),
    ("statsu",): (2, "did you mean stats or counts?"),
    ("worker", ":queue"): (2, "queue is ':queue', and must be MODULE:QUEUE, such as app:queue"),
    ("worker", "\udcff"): (2, "queue is '\\udcff', and must be text that can be written as UTF-8"),
    ("worker", "./tasks.py"): (2, "queue is './tasks.py', and must be a module, not a file: tasks:queue"),
    ("worker", "src/tasks.py:app"): (2, "must be a module, not a file: src.tasks:app"),
    ("worker", "../tasks"): (2, "must be a module, not a file: tasks:queue"),
    ("show", "9" * 23): (2, "must be a number up to 9223372036854775807, as `holdfast jobs` lists them"),
    ("show", "x"): (2, "job id is 'x', and must be a number, as `holdfast jobs` lists them"),
    ("dashboard", "--port", "9000"): (2, "No such option '--port'. Did you mean '--http HOST:PORT'?"),
    ("dashboard", "--http", "localhost:80800"): (2, "must be HOST:PORT with a port from 0 to 65535"),
    ("counts", "--port", "9000"): (2, "No such option '--port'."),
    ("worker", "app:queue", "--lease", "0"): (2, "lease is '0', and must be a duration from 10 ms"),
    ("worker", "app:queue", "--lease", "1ms"): (2, "lease is '1ms', and must be a duration from 10 ms"),
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(map(str, words)))
def test_a_slip_is_told_with_what_to_do(shell, words):
    """In words of the command line, not of Python; nothing is changed."""
    shell.add("a")
    code, text = WRONG[words]

    said = shell.refused(*words, code=code, stdin="")

    assert text in said


@pytest.mark.parametrize("command", ["serve", "dashboard"])
def test_a_missing_extra_is_told_with_the_line_that_installs_it(shell, command, monkeypatch):
    """By the command that was typed."""
    shell.add("a")
    monkeypatch.setitem(sys.modules, "apsw", None)

    said = shell.refused(command, code=5)

    assert said.startswith(f"holdfast: holdfast {command} needs apsw: pip install 'holdfast-queue[server]'")


def test_a_group_of_commands_alone_shows_its_help(shell):
    """Line by line, as --help does."""
    said = shell.run("token")

    assert (said.code, said.out) == (2, "")
    assert said.err == shell.ok("token", "--help").out


def test_a_question_that_nobody_answers_names_the_way_out(shell):
    """Nothing is cancelled meanwhile."""
    shell.add("a")

    said = shell.run("cancel", "--all", stdin="")

    assert said.code == 2
    assert said.err.startswith("cancel 1 job? [y/N] ")
    assert "use --yes to skip the question" in said.err
    assert len(shell.ok("jobs", "--json").records) == 1


def test_a_machine_without_workers_is_told_as_a_sentence(shell):
    """With and without the number of one."""
    shell.add("a")

    assert shell.run("doctor", "--worker").out == "✗ no worker of this machine is alive on this store\n"
    said = shell.run("doctor", "--worker", "1")
    assert (
        said.out
        == "✗ worker 1: no such worker of this machine is alive on this store; see holdfast workers\n"
    )
    assert said.code == 1


def test_the_list_of_commands_has_no_cut_sentences(shell):
    """On a screen of 80 columns."""
    listed = shell.ok("--help").out.partition("Commands:")[2].partition("Exit codes:")[0]

    assert len(listed.split("\n")) > 20
    assert "..." not in listed


# One of each way to print: a table, a record, lines as they come, JSON, help. The others by `make proof`.
COMMANDS = here_and_in_proof(
    ["jobs", "show {}", "doctor", "top --once --interval 1ms", "jobs --json", "--help"],
    [
        *("counts", "why {}", "limits", "schedules", "jobs --help", "completion bash", "version"),
        "show {} --json",
    ],
)


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_minds_a_reader_that_has_gone(shell, words):
    """`| head -0`: no traceback, no words, the code of a broken pipe or of a command that was faster."""
    job_id = shell.add("a")

    done = bash(f"holdfast {words.format(job_id)} | head -0 > /dev/null; exit ${{PIPESTATUS[0]}}")

    assert done.stderr == ""
    assert done.returncode in (0, 141)


def test_an_interrupt_ends_top_and_leaves_the_terminal_as_it_was(shell):
    """The screen that it drew on is closed, the cursor is back."""
    shell.add("a")
    script = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    command = [
        "python3",
        "-c",
        script,
        "env",
        "--default-signal=INT",
        str(HOLDFAST),
        "top",
        "--interval",
        "1ms",
    ]

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(TERM="xterm")
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        shown = b""
        while b"nothing runs" not in shown:
            shown += os.read(process.stdout.fileno(), 65536)
        process.stdin.write(b"\x03")
        process.stdin.flush()
        rest, _ = process.communicate(timeout=SECONDS)

    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in rest
    assert re.search(rb"\x1b\[\?1049l", rest)
    assert re.search(rb"\x1b\[\?25h", rest)
