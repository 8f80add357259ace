"""What a worker logs, where and in which form; how it ends when it cannot begin."""

import json
import logging
import os
import pty
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import holdfast
from holdfast.core import commands as c
from tests.doubles import engine_of
from tests.work.conftest import PATIENCE_S, Bench

APP = """
import logging
import holdfast

queue = holdfast.connect("jobs.db")
log = logging.getLogger("app.mail")

@queue.task(attempts=1)
def broken(n):
    log.warning("about to divide")
    return n / 0

@queue.task
def fine():
    log.info("all is well")
"""


def without_settings() -> dict[str, str]:
    """The environment without what Holdfast reads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


class Project:
    """A folder with an application in it, and workers that are started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(APP)

    def write(self, text: str, name: str = "app.py") -> None:
        """Put a module there."""
        (self.folder / name).write_text(text)

    def add(self, *jobs: tuple[str, object]) -> None:
        """Add jobs, each with one attempt."""
        with holdfast.connect(str(self.folder / "jobs.db")) as queue:
            for task, data in jobs:
                queue.add(task, data, attempts=1)

    def run(
        self, *words: str, program: str = "", log_format: str = "text"
    ) -> subprocess.CompletedProcess[str]:
        """Run a worker, or a program, to its end; without a `log_format` it decides itself."""
        command = ["-c", program] if program else ["-m", "holdfast", *words]
        plain = without_settings() | ({"HOLDFAST_LOG_FORMAT": log_format} if log_format else {})
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=plain,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def work(self, *words: str, name: str = "app:queue") -> list[str]:
        """Have a worker do all there is to do; the lines that it logged."""
        done = self.run("worker", name, "--until-empty", *words)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr.splitlines()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An application of its own."""
    return Project(tmp_path)


def test_a_worker_whose_jobs_fail_says_why_without_any_option(project):
    """One line for the failure, with the handler's own frames below it; each line has its time in UTC."""
    # As Django does, in the executor alone.
    project.write(APP + "import os, time\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()\n")
    project.add(("broken", {"n": 1}), ("fine", None))

    ready, own, failed, *trace, done = project.work()

    for line in (ready, own, failed, done):
        age = datetime.now(UTC) - datetime.fromisoformat(line.split()[0])
        assert timedelta() < age < timedelta(minutes=10)
    assert "INFO worker ready: 2 tasks on " in ready
    assert f"{project.folder}/jobs.db" in ready
    assert "WARNING app.mail [job " in own
    assert own.endswith("]: about to divide")
    assert " ERROR job " in failed
    assert "(broken) failed: attempt 1 of 1 ended after " in failed
    assert failed.endswith(" ms: ZeroDivisionError: division by zero")
    assert [line for line in trace if line.startswith("  File")] == [
        f'  File "{project.folder}/app.py", line 11, in broken'
    ]
    assert done.endswith("INFO worker done: 2 jobs, 1 failed")


@pytest.mark.parametrize(
    ("words", "levels", "events"),
    [
        pytest.param(["-q"], {"ERROR"}, ["failed"], marks=pytest.mark.proof),
        pytest.param([], {"INFO", "WARNING", "ERROR"}, ["failed"], marks=pytest.mark.proof),
        pytest.param(["-v"], {"INFO", "WARNING", "ERROR"}, ["failed", "finished"], marks=pytest.mark.proof),
        (["-vv"], {"DEBUG", "INFO", "WARNING", "ERROR"}, ["failed", "finished", "started", "started"]),
    ],
)
def test_verbosity_says_which_lines_there_are(project, words, levels, events):
    """The handler's own among them."""
    project.add(("broken", {"n": 1}), ("fine", None))

    lines = [json.loads(line) for line in project.work("--log-format", "json", *words)]

    assert {line["level"] for line in lines} == levels
    assert sorted(line["event"] for line in lines if "event" in line) == events
    assert any(line["message"] == "all is well" for line in lines) == ("-v" in words or "-vv" in words)


@pytest.mark.parametrize(
    "words", [pytest.param(["--json", "worker"], marks=pytest.mark.proof), ["worker", "--json"]]
)
def test_json_is_one_object_for_each_line_with_the_same_fields_everywhere(project, words):
    """In the supervisor, in executors, and of what handlers log; `--json` may stand anywhere."""
    project.add(("broken", {"n": 41_267}))

    done = project.run(*words, "app:queue", "--until-empty")
    ready, own, failed, ended = (json.loads(line) for line in done.stderr.splitlines())

    assert (ready["logger"], ended["logger"]) == ("holdfast.worker", "holdfast.worker")
    assert ended["message"] == "done: 1 job, 1 failed"
    assert (own["logger"], own["job_id"], own["task"]) == ("app.mail", failed["job_id"], "broken")
    assert (failed["event"], failed["attempt"]) == ("failed", 1)
    assert failed["error"] == "ZeroDivisionError: division by zero"
    assert failed["traceback"].startswith("Traceback")
    assert failed["duration_ms"] >= 0
    assert "41267" not in done.stderr


def test_logging_that_the_application_sets_up_is_left_as_it_is(project):
    """Failures go where it sends them."""
    project.write('import logging\nlogging.basicConfig(filename="mine.log", format="%(message)s")\n' + APP)
    project.add(("broken", {"n": 1}))

    lines = project.work("-v", "--log-format", "json")

    assert [json.loads(line)["logger"] for line in lines] == ["holdfast.worker"] * 2
    mine = (project.folder / "mine.log").read_text()
    assert mine.startswith("about to divide\njob ")
    assert "ZeroDivisionError" in mine


@pytest.mark.proof
def test_a_logging_configuration_that_disables_all_loggers_does_not_hide_failures(project):
    """As `dictConfig` does, unless told otherwise, to those that exist."""
    setting = '{"version": 1, "loggers": {"app": {"level": "ERROR"}}}'
    project.write(
        "import holdfast.work.executor.executor\nimport logging.config\n"
        f"logging.config.dictConfig({setting})\n" + APP
    )
    project.add(("broken", {"n": 1}))

    assert "ZeroDivisionError: division by zero" in project.work()


def test_work_logs_failures_where_nothing_was_set_up(project):
    """Python writes warnings and errors to stderr then."""
    project.add(("broken", {"n": 1}))

    done = project.run(program="import app, holdfast; print(holdfast.work(app.queue, until_empty=True))")

    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "(broken) failed: attempt 1 of 1" in done.stderr
    assert "Traceback" in done.stderr
    assert "running.py" not in done.stderr


def test_work_async_logs_failures_too(project):
    """The same lines."""
    project.write("""
import asyncio
import holdfast

async def main():
    async with holdfast.connect_async("jobs.db") as queue:

        @queue.task(attempts=1)
        async def broken():
            raise ValueError("no good")

        await broken.add()
        await holdfast.work_async(queue, until_empty=True)

asyncio.run(main())
""")

    done = project.run(program="import app")

    assert "(broken) failed: attempt 1 of 1" in done.stderr
    assert "in broken" in done.stderr
    assert "running.py" not in done.stderr


def test_done_counts_jobs_and_not_runs(project):
    """One job that is tried three times is one job."""
    project.write("""
import holdfast

queue = holdfast.connect("jobs.db")

@queue.task(attempts=3, backoff="1ms")
def flaky(ctx: holdfast.Context):
    if ctx.attempt < 3:
        raise ValueError("not yet")
""")
    with holdfast.connect(str(project.folder / "jobs.db")) as queue:
        queue.add("flaky", attempts=3, backoff="1ms")

    lines = project.work()

    assert sum("runs again in about" in line for line in lines) == 2
    assert lines[-1].endswith("worker done: 1 job")
    assert "ready: 1 task on" in lines[0]


def test_jobs_that_kill_their_executors_are_logged_as_lost_and_quarantined(bench: Bench):
    """By the supervisor, who is left."""
    job = bench.queue.add("poison", losses=2)

    said = bench.work("--log-format", "json")

    lines = [json.loads(line) for line in said.splitlines()]
    ends = [(line["event"], line["level"]) for line in lines if line.get("job_id") == str(job.id)]
    assert ends[-1] == ("quarantined", "ERROR")
    assert {("lost", "WARNING")} == set(ends[:-1])
    assert lines[-1]["message"] == "done: 1 job, 1 failed", "it has ended, though no handler reported it"


def test_a_job_past_its_limit_is_logged_by_the_supervisor(bench: Bench):
    """As a failure like any other, but for the traceback."""
    job = bench.queue.add("stuck", timeout="1s", attempts=1)

    said = bench.work("--log-format", "json")

    (failed,) = [line for line in map(json.loads, said.splitlines()) if "event" in line]
    assert (failed["event"], failed["job_id"]) == ("failed", str(job.id))
    assert failed["error"] == "still running after its limit of 1 s"


# ── how it ends when it cannot begin ─────────────────────────────────────────────────────────────


def test_an_application_that_fails_on_import_ends_the_worker_with_its_traceback(project):
    """The exit code is 1, and no frame is Holdfast's."""
    project.write("from helper import queue")
    project.write("def make():\n    raise OSError('no such printer')\n\nqueue = make()", "helper.py")

    done = project.run("worker", "app:queue")

    assert done.returncode == 1
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File")]
    assert [frame.rsplit("/", 1)[1] for frame in frames] == [
        'app.py", line 1, in <module>',
        'helper.py", line 4, in <module>',
        'helper.py", line 2, in make',
    ]
    assert done.stderr.endswith("holdfast: a worker cannot run app:queue: OSError: no such printer\n")


def test_a_syntax_error_is_shown_as_python_shows_it(project):
    """The file, the line and the place in it, and no frame of what imports it."""
    project.write("def task(:\n    pass")

    done = project.run("worker", "app:queue")

    lines = done.stderr.splitlines()
    assert lines[0].endswith('app.py", line 1')
    assert lines[1].strip() == "def task(:"
    assert (
        lines[-1] == "holdfast: a worker cannot run app:queue: SyntaxError: invalid syntax (app.py, line 1)"
    )
    assert len(lines) == 5


# Each in a module of its own, so that one process can try all of them.
NO_QUEUES = {
    "nowhere:queue": ("", "ModuleNotFoundError: No module named 'nowhere'"),
    "other:jobs": ("import holdfast", "there is no jobs in other"),
    "number:queue": ("queue = 5", "number:queue is 'int', and must be a queue made by holdfast.connect"),
    "bare:queue": (
        "import holdfast\nqueue = holdfast.connect('jobs.db')",
        "there are no tasks; import your task modules in the module that the worker is given",
    ),
}
EACH = """
import contextlib, io, json, sys
from holdfast.cli import main
ends = []
for words in {commands!r}:
    sys.argv[1:], said = words, io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            ends.append((end.code, said.getvalue()))
print(json.dumps(ends))
"""


def test_what_is_no_queue_with_tasks_ends_the_worker_with_one_line(project):
    """None of the user's code was at fault there, so there is no traceback; programs get a code."""
    for name, (text, _) in NO_QUEUES.items():
        if text:
            project.write(text, f"{name.partition(':')[0]}.py")
    commands = [["worker", name] for name in NO_QUEUES]
    commands += [["worker", "app:jobs", "--json"], ["worker", "app:queue", "-q", "-v"]]

    done = project.run(program=EACH.format(commands=commands))
    *ends, (code, told), (misused, why) = json.loads(done.stdout)

    assert ends == [
        [1, f"holdfast: a worker cannot run {name}: {reason}\n"] for name, (_, reason) in NO_QUEUES.items()
    ]
    assert (code, json.loads(told)["error"]["code"]) == (1, "APP")
    assert misused == 2
    assert "-q or -v" in why


@pytest.mark.proof
def test_store_and_tenant_may_stand_before_the_command(project):
    """As with every other command."""
    with holdfast.connect(str(project.folder / "other.db"), tenant="acme") as queue:
        job = queue.add("fine")

    done = project.run("--store", "other.db", "--tenant", "acme", "worker", "app:queue", "--until-empty")

    assert done.returncode == 0, done.stderr
    assert f"ready: 2 tasks on {project.folder}/other.db" in done.stderr
    with holdfast.connect(str(project.folder / "other.db"), tenant="acme") as queue:
        assert queue.get(job.id).state == "FINISHED"


def test_jobs_that_are_written_before_the_end_of_a_transaction_are_logged(caplog):
    """Those of a domain are; so are those that are added in one commit with a claim."""
    caplog.set_level(logging.DEBUG, "holdfast.job")
    with holdfast.connect("memory://") as queue:
        limited = queue.add("limited", domain="d")
        done = engine_of(queue.connection).execute(
            [c.Add(jobs=(c.NewJob(task="a"),)), c.Claim(lease_ms=1_000)]
        )

    added = [record.job_id for record in caplog.records if record.event == "added"]
    assert added == [limited.id, *done.replies[0]]


def test_logs_are_json_by_themselves_where_no_terminal_is(project: Project) -> None:
    """Of the worker, of its executors and of the handler, without an option."""
    project.add(("broken", [1]))

    done = project.run("worker", "app:queue", "--until-empty", log_format="")

    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"holdfast.worker", "holdfast.job", "app.mail"} <= {line["logger"] for line in found}


@pytest.mark.parametrize(
    "plain", [pytest.param(False, id="colours"), pytest.param(True, id="NO_COLOR", marks=pytest.mark.proof)]
)
def test_logs_on_a_terminal_are_text_in_colours(project: Project, plain: bool) -> None:
    """In executors too; without colours if NO_COLOR is set."""
    project.add(("broken", [1]))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", "worker", "app:queue", "--until-empty"]
    environment = without_settings() | {"NO_COLOR": "1" if plain else ""}
    process = subprocess.Popen(
        command, cwd=project.folder, env=environment, stdin=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    text = b""
    # Linux ends the reads of a terminal that all have closed with an error.
    with suppress(OSError):
        while part := os.read(ours, 65536):
            text += part
    os.close(ours)
    assert process.wait(PATIENCE_S) == 0

    found = text.decode()
    assert ("\x1b[32mINFO\x1b[0m worker ready" in found) is not plain
    assert ("\x1b[33mWARNING\x1b[0m app.mail" in found) is not plain
    assert ("\x1b[31mERROR\x1b[0m job" in found) is not plain
    assert ("\x1b" in found) is not plain
    assert "INFO" in found
