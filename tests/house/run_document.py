"""Run documents: their ```python and ```console blocks, from top to bottom, in a folder for each.

    python tests/house/run_document.py

Each line on stdin is a JSON object of document, folder, output and environment; the answer is an exit code.
A document runs in a process forked from this one, which has imported Holdfast. Each plain `$ holdfast …` and
`$ python FILE …` runs in one forked from another, which has imported Django too: most of their time would go
into imports.

Python blocks share one namespace, as if they were one program. In a console block each `$ command` runs
in a shell of its own, must exit with 0, and must print the lines that follow it, if any do; `...` stands
for any text. A comment directly before a block changes that:

    <!-- not run: why -->    the block is left out
    <!-- exits 3 -->         the block's commands exit with 3
    <!-- file app.py -->     the block is written to that file, and not run; `added to` adds it at the end
    <!-- background -->      the block's command keeps running, as in a second terminal. The next block runs
                             when it has printed the lines shown. At the end of the document it gets SIGTERM,
                             and must exit with 0.
"""

import gc
import json
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from typing import IO, Any

import holdfast.cli.app  # imported once, for all commands

# What commands import sooner or later.
PRELOADED = [
    *(
        "holdfast.cli.verb_commands",
        "holdfast.queue.queue",
        "holdfast.store.sqlite.store",
        "holdfast.testing",
    ),
    *("holdfast.engine.engine", "holdfast.engine.queries", "holdfast.engine.store_connection"),
    *(f"holdfast.engine.commands.{name}" for name in ("chores", "governing", "handlers", "indexing")),
    *(f"holdfast.engine.commands.{name}" for name in ("schedules", "tokens", "workers")),
    *("holdfast.work.worker", "holdfast.serve.dashboard.app"),
    *("django.core.management", "django.db.migrations", "django.contrib.auth", "django.test"),
    *("django.views.i18n", "django.db.backends.sqlite3.base"),
]

FENCE = re.compile(r" *(?P<ticks>`{3,})(?P<language>\w*)")
NOT_RUN = re.compile(r" *<!-- not run: .*\S.* -->$")
EXITS = re.compile(r" *<!-- exits (?P<code>\d+) -->$")
FILE = re.compile(r" *<!-- (?P<how>file|added to) (?P<name>[\w./-]+) -->$")
BACKGROUND = re.compile(r" *<!-- background -->$")

# Not run wherever they stand: they get, make or enter what runs this.
SKIPPED = ("make", "git clone", "cd", "pip install")

# Commands that are run by a process which has imported what they need.
FORKED = re.compile(r"holdfast |python \w+\.py( |$)")

# What only a shell understands.
SHELL = re.compile(r"[|&;<>$`*?()~#\\\n]")

DOCUMENT_SECONDS = 290  # a little less than a test may take, so that the output is seen
COMMAND_SECONDS = 200
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line that it starts on, its text and the line before it."""

    language: str
    line: int
    text: str
    before: str


@dataclass(frozen=True)
class Command:
    """A line of a console block, and what it should print; `None` if that is not said."""

    line: int
    text: str
    output: str | None


class Mismatch(Exception):
    """A command did not do what the document says."""


class CommandLine:
    """A process forked before documents begin, which forks another for each plain command of `FORKED`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            self._socket.close()
            _serve_commands(theirs)
        theirs.close()
        self._pid = pid

    def run(self, words: list[str]) -> tuple[int, str]:
        """Run a command line to its end; its exit code, and what it printed."""
        with tempfile.TemporaryFile() as output:
            request = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
            socket.send_fds(self._socket, [json.dumps(request).encode()], [output.fileno()])
            code = int(self._socket.recv(100))
            output.seek(0)
            return code, output.read().decode()

    def close(self) -> None:
        """End that process; its time counts as that of this one."""
        self._socket.close()
        os.waitpid(self._pid, 0)


def _serve_commands(requests: socket.socket) -> None:
    for name in PRELOADED:
        with suppress(ImportError):  # where the wheel alone is installed
            import_module(name)
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 17, 1)
        if not message:
            os._exit(0)
        if (child := os.fork()) == 0:
            requests.close()
            request = json.loads(message)
            signal.alarm(COMMAND_SECONDS)
            os.chdir(request["folder"])
            _become(request["environment"], fds[0])
            _end_as(request["words"])
        os.close(fds[0])
        _, status = os.waitpid(child, 0)
        requests.send(str(os.waitstatus_to_exitcode(status)).encode())


def _end_as(words: list[str]) -> None:
    """End as a command line does."""
    code: Any = 1
    try:
        if words[0] == "holdfast":
            sys.argv = words
            holdfast.cli.main()
        else:
            _run_file(words[1:])
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_file(words: list[str]) -> None:
    """Run a file as `python FILE …` does: `-W` is for the documents themselves."""
    sys.argv, sys.warnoptions = words, []
    sys.path.insert(0, str(Path(words[0]).resolve().parent))
    warnings.simplefilter("ignore")
    runpy.run_path(words[0], run_name="__main__")


def _become(environment: dict[str, str], output: int) -> None:
    """Take an environment and an output, and no input."""
    os.environ.clear()
    os.environ.update(environment)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, number)
    os.close(nothing)
    os.close(output)


@dataclass(frozen=True)
class Background:
    """A command that runs beside the blocks that follow it, and the file that collects its output."""

    command: Command
    process: subprocess.Popen[bytes]
    output: IO[bytes]

    def printed(self) -> str:
        """Return its output so far."""
        return os.pread(self.output.fileno(), 1_000_000, 0).decode()

    def wait_until_shown(self) -> None:
        """Return when it has printed what the document shows."""
        deadline = time.monotonic() + COMMAND_SECONDS
        while not agrees(self.printed(), shown=self.command.output or ""):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Mismatch(
                    f"line {self.command.line}: {self.command.text}\n"
                    f"printed:\n{self.printed()}\nwhere the document shows:\n{self.command.output}"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(COMMAND_SECONDS)
        finally:
            self.process.kill()
            self.output.close()


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of a document, in order."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = FENCE.match(lines[at])
        start = at = at + 1
        if not opening:
            continue
        while at < len(lines) and lines[at].strip() != opening["ticks"]:
            at += 1
        before = lines[start - 2] if start > 1 else ""
        yield Block(opening["language"], start + 1, dedent("\n".join(lines[start:at])) + "\n", before)
        at += 1


def is_run(block: Block) -> bool:
    """Whether it is code or commands, and nothing says that it is not run."""
    return block.language in ("python", "console") and not NOT_RUN.match(block.before)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; one that ends in a backslash goes on in the next line."""
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        first_output = start + 1
        while first_output < end and lines[first_output - 1].endswith("\\"):
            first_output += 1
        text = "\n".join(lines[start:first_output]).removeprefix("$ ")
        output = "\n".join(lines[first_output:end]).strip()
        yield Command(block.line + start, text, output or None)


def agrees(printed: str, *, shown: str) -> bool:
    """Whether output is as a document shows it, `...` being any text and space at line ends nothing."""
    pattern = ".*".join(re.escape(part) for part in _trimmed(shown).split("..."))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def run(document: Path, command_line: CommandLine) -> int:
    """Run all blocks of a document and return how many there were."""
    # A fresh `__main__`, so that the document sees none of our names and its own classes can be found.
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    count = 0
    background: list[Background] = []
    try:
        for block in blocks(document.read_text("utf-8")):
            if not is_run(block):
                continue
            count += 1
            if file := FILE.match(block.before):
                with Path(file["name"]).open("a" if file["how"] == "added to" else "w") as written:
                    written.write(block.text)
            elif BACKGROUND.match(block.before):
                background += map(_start, commands(block))
            elif block.language == "console":
                _run_console(block, command_line)
            else:
                # Empty lines in front make tracebacks show the document's own lines.
                source = "\n" * (block.line - 1) + block.text
                exec(compile(source, str(document), "exec"), main.__dict__)
    finally:
        codes = [(one.command, one.stop()) for one in background]
    for command, code in codes:
        if code != 0:
            raise Mismatch(f"line {command.line}: {command.text}\nexited with {code} after SIGTERM, not 0")
    return count


def _start(command: Command) -> Background:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `Background.stop`
    # `exec`: the signal is for the command, not for a shell around it.
    process = subprocess.Popen(
        f"exec {command.text}",
        shell=True,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    started = Background(command, process, output)
    try:
        started.wait_until_shown()
    except Mismatch:
        started.stop()
        raise
    return started


def _run_console(block: Block, command_line: CommandLine) -> None:
    exits = EXITS.match(block.before)
    for command in commands(block):
        if not _skipped(command):
            _run_command(command, command_line, code=int(exits["code"]) if exits else 0)


def _run_command(command: Command, command_line: CommandLine, *, code: int) -> None:
    if FORKED.match(command.text) and not SHELL.search(command.text):
        ended, printed = command_line.run(shlex.split(command.text))
    else:
        done = subprocess.run(
            command.text,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        ended, printed = done.returncode, done.stdout
    where = f"line {command.line}: {command.text}"
    if ended != code:
        raise Mismatch(f"{where}\nexited with {ended}, not {code}, and printed:\n{printed}")
    if command.output is not None and not agrees(printed, shown=command.output):
        raise Mismatch(f"{where}\nprinted:\n{printed}\nwhere the document shows:\n{command.output}")


def _skipped(command: Command) -> bool:
    words = command.text.split()
    return any(words[: len(skipped.split())] == skipped.split() for skipped in SKIPPED)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def main() -> None:
    """Run what is asked for on stdin, each in a process of its own, which ends as Python ends."""
    command_line = CommandLine()
    for line in sys.stdin:
        request = json.loads(line)
        if (child := os.fork()) == 0:
            signal.alarm(DOCUMENT_SECONDS)
            os.chdir(request["folder"])
            _become(request["environment"], os.open(request["output"], os.O_WRONLY | os.O_CREAT))
            run(Path(request["document"]), command_line)
            return
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    command_line.close()


if __name__ == "__main__":
    this = sys.modules["__main__"]  # kept, or its names would go with it
    main()
