"""The command line as a process of its own: exit codes, pipes, signals, and stores that cannot be used."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

from holdfast.cli.app import app

HOLDFAST = Path(sys.executable).with_name("holdfast")
SECONDS = 60


def environment(**more: str) -> dict[str, str]:
    """Ours without what was said of holdfast there."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return plain | more


def run(*words: object, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command line as anybody would; a traceback never leaves it."""
    command = [str(HOLDFAST), *map(str, words)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=SECONDS, env=environment(**more)
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "a bug in Holdfast" not in done.stderr, done.stderr
    return done


def bash(script: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell."""
    line = f"holdfast() {{ '{HOLDFAST}' \"$@\"; }}; {script}"
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=SECONDS, env=environment(**more)
    )


def test_codes_reach_the_shell(shell):
    """Whatever went wrong has its number, and its words on stderr."""
    job_id = run("add", "resize").stdout.strip()

    missing = run("show", 12)
    assert (missing.returncode, missing.stderr) == (3, "holdfast: there is no job 12\n")
    assert run("jobs", "--bad").returncode == 2
    # A process ends with what its command line does.
    assert shell.run("jobs").code == 0
    assert shell.run("add", "a", "--parent", job_id).code == 4
    assert shell.run("jobs", "--store", "none.db").code == 5
    assert shell.run("add", "a", "--wait", "10ms").code == 6


def test_it_is_also_a_module(shell):
    """For whoever has the Python and not the path."""
    command = [sys.executable, "-m", "holdfast", "version"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)

    assert done.stdout.startswith("holdfast ")


def test_the_store_may_stand_in_the_environment(shell):
    """Empty is as if it did not."""
    run("add", "a", HOLDFAST_STORE="here.db")
    run("add", "a", HOLDFAST_STORE="")

    assert (shell.folder / "here.db").exists()
    assert shell.file.exists()


def test_a_pipe_that_is_closed_is_no_reason_to_complain(shell):
    """`head` has read enough."""
    shell.ok("add", "a", "--file", "-", stdin="1\n" * 3000)

    for words in ("jobs --json --limit 3000", "jobs --limit 3000"):
        done = bash(f"holdfast {words} | head -1; exit ${{PIPESTATUS[0]}}")
        assert (done.returncode, done.stderr) == (141, "")
        assert len(done.stdout.splitlines()) == 1


def test_output_that_cannot_be_written_is_an_error(shell):
    """A full disk behind `>` must not look like an empty list."""
    shell.add("a")

    done = bash("holdfast jobs > /dev/full")

    assert done.returncode == 1
    assert done.stderr == "holdfast: No space left on device\n"


def test_closed_streams_are_survived(shell):
    """By whoever starts it from a daemon."""
    assert bash("holdfast add a - <&-").returncode == 2
    assert bash("holdfast add a --file - <&-").returncode == 2
    added = bash("holdfast add a >&-")
    assert (added.returncode, added.stderr) == (0, "")
    assert bash("holdfast show 12 2>&-").returncode == 3


@pytest.mark.parametrize(
    "words", [["add", "a", "--wait", "60s"], ["add", "a", "--wait", "60s", "--priority", "3"]]
)
def test_an_interrupt_ends_it_quietly(shell, words):
    """With the code that shells know."""
    # A shell's background jobs, which the tests may be part of, inherit that interrupts are ignored.
    command = ["env", "--default-signal=INT", str(HOLDFAST), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the id: it waits now
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)

    assert (process.returncode, err) == (130, "")


def test_bash_completes_our_words(shell):
    """By the script that we print."""
    shell.add("resize")
    typed = "COMP_WORDS=(holdfast jobs --task re); COMP_CWORD=3"

    done = bash(
        f'PATH={HOLDFAST.parent}:$PATH; eval "$(holdfast completion bash)"; {typed}; '
        '_holdfast_completion holdfast; echo "${COMPREPLY[@]}"'
    )

    assert done.stdout == "resize\n"


def test_other_encodings_show_what_they_can(shell):
    """What they cannot is escaped."""
    shell.add("☃ 😀")

    assert "\\u2603 \\U0001f600" in run("jobs", PYTHONIOENCODING="latin-1").stdout
    assert json.loads(run("jobs", "--json", PYTHONIOENCODING="latin-1").stdout)["task"] == "☃ 😀"


def test_bytes_that_are_no_text_come_through(shell):
    """As a domain they are one; as the name of a task they are refused."""
    done = bash(r"holdfast add a --domain $'\xff' --json && holdfast jobs --domain $'\xff' --json")

    assert json.loads(done.stdout.splitlines()[1])["domain"] == {"base64": "/w=="}
    refused = bash(r"holdfast add $'\xff'")
    assert refused.returncode == 2
    assert "UTF-8" in refused.stderr
    # As Python gets it from the shell.
    assert shell.run("add", "a", "\udcff").code == 2
    assert shell.run("add", "a", "--arg", "x=\udcff").code == 2


LOOKING = [
    "jobs",
    "counts",
    "limits",
    "schedules",
    "consumers",
    "doctor",
    "show 1",
    "why 1",
    "purge --before 1d",
    "resume",
]
CHANGING = ["cancel 1", "requeue 1", "delete 1", "cancel --all", "limit a --off", "schedule a --pause"]
CHANGING += ["consumers set a 1 --yes"]


@pytest.mark.parametrize("words", [*LOOKING, *CHANGING])
def test_a_store_that_is_not_there_is_not_created(shell, words):
    """Reading nothing says so, by the whole path, and how to make something."""
    said = shell.run(*words.split())

    assert said.code == 5
    assert said.err.startswith(f"holdfast: there is no store at {shell.file}; ")
    assert "check --store and HOLDFAST_STORE; `holdfast add` " in said.err
    command = app.get_command(click.Context(app), words.split()[0])
    assert command is not None
    has_create = any(option.name == "create" for option in command.params)
    assert ("and --create make a new store" in said.err) is has_create
    assert list(shell.folder.iterdir()) == []

    shell.file.touch()
    assert shell.run(*words.split()).code == 5
    assert shell.file.stat().st_size == 0


COMMANDS = [*LOOKING, *CHANGING, "add a", "pause --yes", "limit a --concurrency 1", "schedule a b --every 1h"]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_file_that_is_no_store_is_left_as_it_is(shell, words):
    """Text, another program's database, or a damaged one."""
    text = b"no database, but long enough to look like one might. " * 100
    with sqlite3.connect(shell.folder / "other.db") as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    (shell.folder / "text.db").write_bytes(text)
    for name in ("text.db", "other.db"):
        before = (shell.folder / name).read_bytes()
        said = shell.run(*words.split(), "--store", name)
        assert said.code == 5
        assert said.err.startswith("holdfast: ")
        assert said.out == ""
        assert (shell.folder / name).read_bytes() == before


@pytest.mark.parametrize("words", COMMANDS)
def test_a_newer_store_is_refused(shell, words):
    """With the version that it needs."""
    shell.add("a")
    with sqlite3.connect(shell.file) as database:
        database.execute("UPDATE holdfast_schema SET version = 999, oldest = 999")
    database.close()
    before = shell.file.read_bytes()

    said = shell.run(*words.split(), "--json")

    assert said.code == 5
    assert json.loads(said.err)["error"]["code"] == "SCHEMA"
    assert "newer Holdfast" in said.err
    assert shell.file.read_bytes() == before


def test_a_damaged_store_is_told_with_what_to_do(shell):
    """By whichever command meets the damage; the doctor finds all of it."""
    shell.ok("add", "a", "--file", "-", stdin='"x"\n' * 5000)
    raw = bytearray(shell.file.read_bytes())
    raw[8192:] = b"\xaa" * (len(raw) - 8192)
    shell.file.write_bytes(raw)

    for words in ("doctor", "jobs", "add a", "counts"):
        said = shell.run(*words.split())
        assert said.code in (1, 5)
        assert "damaged" in said.out + said.err
        assert "restore a backup" in said.out + said.err


@pytest.mark.parametrize(
    ("store", "code", "complaint"),
    [
        ("", 2, "store is ''"),
        ("memory://", 2, "outlives this command"),
        ("mongodb://here", 2, "store is 'mongodb://…'"),
        ("sqlite://host/jobs.db", 2, "sqlite:///jobs.db"),
        ("sqlite:///jobs.db?speed=fast", 2, "store option is 'speed'"),
        ("sqlite:///a%00b", 2, "the name of a file"),
        ("nowhere/jobs.db", 5, "there is no folder"),
        (".", 5, "is a folder"),
        ("/proc/jobs.db", 5, "/proc"),
        ("x" * 300, 5, ""),
    ],
)
def test_a_store_that_cannot_be_is_refused(shell, store, code, complaint):
    """An address, a folder, a place where nothing can be written."""
    said = shell.run("add", "a", "--store", store)

    assert said.code == code
    assert complaint in said.err
    assert list(shell.folder.iterdir()) == []
    assert shell.run("jobs", "--store", store).code == code


AS_NOBODY = """
import importlib, os, sys
from holdfast.cli.app import FILES, app
import holdfast.cli.verb_commands
for file in FILES.values():
    importlib.import_module(f"holdfast.cli.commands.{file}")
def run(*words):
    try:
        app.main(words)
    except SystemExit as end:
        print(int(end.code), flush=True)
run("add", "a")
run("jobs")
os.chmod("jobs.db", 0o444)
os.chmod(".", 0o555)
if os.geteuid() == 0:
    os.setuid(65534)
for words in (["jobs"], ["add", "a"], ["add", "a", "--store", "other.db"], ["doctor"]):
    run(*words)
"""


def test_a_folder_that_cannot_be_written_is_told():
    """With what must be done. Whoever is root becomes nobody first, once all that is needed is imported."""
    # Not pytest's own folder, into which nobody may look.
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", AS_NOBODY]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment()
        )
        Path(folder).chmod(0o755)

    assert [line for line in done.stdout.splitlines() if len(line) == 1] == ["0", "0", "5", "5", "5", "5"]
    assert done.stderr.count("holdfast: ") == done.stderr.count("writable") == 4


def test_a_disk_without_space_is_told_and_loses_nothing(shell):
    """Here a limit on the size of files; what was added before is there after."""
    job_id = run("add", "a").stdout.strip()
    (shell.folder / "big.json").write_text(json.dumps("x" * 4_000_000))

    done = bash("ulimit -f 1500; holdfast add a - < big.json")

    assert done.returncode == 5
    assert done.stderr.startswith("holdfast: ")
    assert "Traceback" not in done.stderr
    assert [record["id"] for record in shell.ok("jobs", "--json").records] == [job_id]
    assert shell.ok("doctor").code == 0


def test_a_terminal_gets_colour_progress_and_questions(shell):
    """Which nobody else does."""
    shell.ok("add", "a", "--file", "-", stdin="1\n" * 3)
    shell.fail(int(shell.ok("jobs", "--json").records[0]["id"]))

    shown = on_terminal("jobs")
    asked = on_terminal("cancel", "--all", typed="y\n")

    assert "\x1b[31mFAILED\x1b[0m" in shown
    assert str(shell.ok("jobs", "--json").record["id"]) in on_terminal("jobs", columns=40)
    assert "cancel 2 jobs? [y/N]" in asked
    assert "cancelled 2 jobs" in asked
    assert "\x1b" not in run("jobs").stdout


def on_terminal(*words: str, typed: str = "", columns: int = 100, **more: str) -> str:
    """What a command line shows on a terminal."""
    ours, theirs = pty.openpty()
    plain = environment(TERM="xterm", COLUMNS=str(columns))
    plain.pop("NO_COLOR", None)
    command, env = [str(HOLDFAST), *words], plain | more
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # the other end is closed: that is how terminals say so
            pass
        process.wait(SECONDS)
    os.close(ours)
    return shown.decode()
