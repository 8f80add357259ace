"""A stand-in for a shell: run a command line, look at what it said."""

import json
import os
import pty
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli.app import app


@dataclass(frozen=True)
class Said:
    """What a command line printed, and the code that it ended with."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Its answer, line by line."""
        return self.out.splitlines()

    @property
    def records(self) -> list[Any]:
        """Its answer to --json, object by object."""
        return [json.loads(line) for line in self.lines]

    @property
    def record(self) -> Any:
        """Its answer to --json, where that is one object."""
        (one,) = self.records
        return one


class Shell:
    """Runs command lines of holdfast in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "jobs.db"

    def run(self, *words: object, stdin: str | bytes | None = None, **environment: str) -> Said:
        """Run a command line, however it ends; but a fault of ours is one, whatever was typed."""
        done = CliRunner(env=environment).invoke(app, [str(word) for word in words], input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "a bug in Holdfast" not in done.stderr, done.stderr
        return Said(done.exit_code, done.stdout, done.stderr)

    def on_terminal(self, *words: str, columns: int = 100, **environment: str) -> str:
        """What a command line shows on a terminal that knows colours."""
        ours, theirs = pty.openpty()
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            for name, value in {"TERM": "xterm", "COLUMNS": str(columns), **environment}.items():
                patch.setenv(name, value)
            with open(theirs, "w") as terminal, redirect_stdout(terminal), suppress(SystemExit):  # noqa: PTH123
                app.main(words)
        shown = b""
        with suppress(OSError):  # the other end is closed: that is how terminals say so
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        return shown.decode()

    def ok(self, *words: object, stdin: str | bytes | None = None) -> Said:
        """Run a command line that goes well and complains of nothing."""
        said = self.run(*words, stdin=stdin)
        assert said.code == 0, said.err
        return said

    def refused(self, *words: object, code: int, stdin: str | bytes | None = None) -> str:
        """Run a command line that ends with this code, answers nothing, and changes nothing; what it said."""
        before = self.everything()
        said = self.run(*words, stdin=stdin)
        assert (said.code, said.out) == (code, "")
        assert said.err.startswith("holdfast: ") or '{"error"' in said.err, said.err
        assert self.everything() == before
        return said.err

    def add(self, *words: object) -> int:
        """Add a job; its id."""
        return int(self.ok("add", *words).out)

    def everything(self) -> object:
        """All that is in the store; None where there is none."""
        if not self.file.exists():
            return None
        with self.queue() as queue:
            live, archived = (queue.jobs(archived=archived, limit=1000) for archived in (False, True))
            engine = queue.connection.engine
            pauses = engine.read(lambda txn: txn.rows("pause"))
            return live, archived, queue.counts(), queue.limits(), queue.schedules(), pauses

    def queue(self, **options: Any) -> holdfast.Queue:
        """The queue, for what only an application does."""
        return holdfast.connect(str(self.file), **options)

    def fail(self, job_id: int, error: str = "no such file") -> None:
        """Have a job run and fail for good."""
        with self.queue() as queue:
            claimed = {job.id: job for job in queue.claim(limit=1000, renew=False)}
            for other, job in claimed.items():
                if other == job_id:
                    job.fail(error)
                else:
                    job.release()

    def finish(self, *job_ids: int, result: Any = None) -> None:
        """Have jobs run and end well."""
        with self.queue() as queue:
            for job in queue.claim(limit=1000, renew=False):
                if job.id in job_ids:
                    job.done(result)
                else:
                    job.release()
