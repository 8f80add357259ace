"""`holdfast worker --handlers`: jobs of handlers in the store, in contexts of their tenants."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.ids import FIRST_JOURNAL_SYSID, unpack
from holdfast.journal.status import read_status
from holdfast.queue.queue import ClaimedJob
from holdfast.work.executor.stored_handlers import StoredHandlers
from holdfast.work.runners.isolation import find_isolation
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings


def start(bench, *words, name=""):
    """Start a worker of handlers."""
    return bench.start("--handlers", "--store", bench.store, *words, name=name)


def work(bench, *words, name=""):
    """Have a worker of handlers do all there is to do; what it said."""
    return bench.work("--handlers", "--store", bench.store, *words, name=name)


@pytest.fixture
def other(bench):
    """The queue of another tenant in the same store."""
    queue = holdfast.connect(bench.store, tenant="other")
    yield queue
    queue.close()


def test_jobs_of_all_tenants_run_with_their_results_logs_and_new_jobs(bench, other):
    """New jobs are of the same tenant, whatever a handler writes. A module's tasks run in the same worker."""
    body = "print('log of', data)\nprint(f'J: next|{data}')\nreturn data * 2"
    for queue in (bench.queue, other):
        queue.handlers.set("twice", body, lang="python")
        queue.handlers.set("next", "cat >&3", lang="shell")
    ours = bench.queue.add_many([("twice", n) for n in range(30)])
    theirs = other.add_many([("twice", n) for n in range(30)])
    plain, waiting = bench.queue.add("double", {"n": 4}), bench.queue.add("without-handler", 1)
    codes = add_exit_codes(bench.queue)

    said = work(bench, "-vv", name="tests.work.app:queue")

    assert [job.result() for job in ours + theirs] == [2 * n for n in range(30)] * 2
    assert [line.text for line in bench.queue.log(ours[7])] == ["log of 7"]
    for queue in (bench.queue, other):
        found = [queue.result(job.id) for job in queue.jobs(task="next", archived=True)]
        assert sorted(found) == list(range(30))
    outcome = ours[7].get().outcome
    assert 0 < outcome.cpu_ms < 10_000
    assert 0 < outcome.wall_ms < 10_000
    assert plain.result() == 8
    assert (waiting.get().state, waiting.get().attempts) == ("QUEUED", 0)
    assert "handlers: http, node, python, shell" in said
    assert said.count("(twice) started") == said.count("(twice) finished") == 30
    assert said.count("(next) of tenant other added") == 30
    check_exit_codes(codes)
    (inside,) = bench.queue.jobs(task="inside")
    assert inside.outcome.error.startswith("FORBIDDEN_ADDRESS: 127.0.0.1 has no public address")


def add_exit_codes(queue):
    """A job for each kind of exit code, and one that raises."""
    queue.handlers.set("exit", "return exitcode(data, 'b')", lang="node")
    queue.handlers.set("raise", "raise ValueError('no good')", lang="python")
    queue.handlers.set("inside", "http://127.0.0.1:1/", lang="http")
    jobs = {code: queue.add("exit", code, attempts=2, backoff="1ms") for code in (102, 201, 404, 503)}
    queue.add("inside", attempts=1)
    return jobs | {500: queue.add("raise", attempts=1)}


def check_exit_codes(jobs):
    """2xx and 4xx end a job; 1xx and 5xx run again, until its attempts are used up."""
    found = {code: job.get() for code, job in jobs.items()}
    assert {code: job.outcome.exit_code for code, job in found.items()} == {code: code for code in jobs}
    assert {code: job.attempts for code, job in found.items()} == {102: 2, 201: 0, 404: 0, 503: 2, 500: 1}
    assert [code for code, job in found.items() if job.state == "FINISHED"] == [201]
    assert jobs[201].result() == "b"
    with pytest.raises(holdfast.JobFailed, match="no good"):
        jobs[500].result()
    assert 'File "body", line 1' in found[500].outcome.traceback


def test_a_running_worker_follows_changes_and_its_contexts_end_with_it(bench):
    """A new version, a deleted handler, a cancelled job; then SIGKILL to the supervisor."""
    bench.queue.handlers.set("task", "return 1", lang="python")
    worker = start(bench)
    assert bench.queue.add("task").result(wait=100) == 1

    bench.queue.handlers.set("task", "return 2", lang="python")
    assert bench.queue.add("task").result(wait=100) == 2

    bench.queue.handlers.delete("task")
    waiting = bench.queue.add("task")
    mark = f"4{os.getpid()}"
    bench.queue.handlers.set("sleep", f"sleep {mark} & sleep {mark}", lang="shell")
    cancelled = bench.queue.add("sleep")
    bench.wait_for(lambda: len(commands_with(mark)) == 2)
    bench.queue.cancel(cancelled)
    bench.wait_for(lambda: cancelled.get().state == "CANCELLED" and not commands_with(mark))
    assert (waiting.get().state, waiting.get().attempts) == ("QUEUED", 0)

    bench.queue.add("sleep")
    bench.wait_for(lambda: len(commands_with(mark)) == 2)
    worker.kill()
    bench.wait_for(lambda: not commands_with(mark))


def test_a_job_whose_handler_is_gone_waits_for_another():
    """It was deleted between the claim and the run: no attempt is counted, and the worker goes on."""
    made = HandlerRunner(find_isolation(RunnerSettings()))
    with holdfast.connect("memory://") as queue, closing(made) as runner:
        queue.handlers.set("task", "cat >&3", lang="shell")
        queue.add("task", 5)
        claimed = queue.connection.ask(c.Claim(handled=True, lease_ms=60_000))
        queue.handlers.delete("task")
        answers: list[c.Answer | None] = []

        StoredHandlers(queue, 0, runner).run(
            claimed,
            lambda _key: ClaimedJob(queue, claimed[0], 60_000, renew=False),
            lambda _key, answer, _ran_s: answers.append(answer),
        )

        (answer,) = answers
        assert answer is not None
        assert (answer.code, answer.counts, answer.error) == (
            "retry",
            False,
            "there is no handler for this task",
        )


def commands_with(mark):
    """The processes `sleep MARK`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path] if path.read_bytes() == f"sleep\0{mark}\0".encode() else []
        except OSError:
            pass
    return found


@pytest.mark.proof
def test_a_worker_drains_its_contexts(bench):
    """SIGTERM: the job that runs in a context ends, and its answer is committed."""
    bench.queue.handlers.set("slow", "import time\ntime.sleep(1)\nreturn 5", lang="python")
    worker = start(bench)
    job = bench.queue.add("slow")
    bench.wait_for(lambda: job.get().state == "RUNNING")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(60) == 0
    assert job.get().state in ("FINISHED", "QUEUED")


def test_new_jobs_of_handlers_go_through_the_journal(bench, tmp_path):
    """They are durable when their handler's job ends, and run before the worker ends."""
    bench.queue.handlers.set("first", "print(f'J: next|{data}')", lang="python")
    bench.queue.handlers.set("next", "cat >&3", lang="shell")
    bench.queue.add_many([("first", n) for n in range(5)])

    work(bench, "--journal", str(tmp_path / "j"))

    found = bench.queue.jobs(task="next", archived=True)
    assert sorted(bench.queue.result(job.id) for job in found) == list(range(5))
    assert {unpack(job.id).sysid >= FIRST_JOURNAL_SYSID for job in found} == {True}
    assert read_status(str(tmp_path / "j")).waiting == 0
