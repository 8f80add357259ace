"""The metrics of a worker, over a socket: what it ran, how long that took, and who may read them."""

import http.client
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.history import GetHistory
from holdfast.core.job import Code, Job
from holdfast.core.token import Token, hash_of, secret_of
from holdfast.engine.metrics import OTHERS, TASKS, CommitMeter, Histogram, render
from holdfast.work.supervisor.metrics import RunMeter
from tests.work.conftest import PATIENCE_S

DEADLY = 'holdfast_worker_runs_total{task="deadly",outcome="failed"}'
APP = """
import os

import holdfast

queue = holdfast.connect("jobs.db")

@queue.task
def fine() -> None: ...

@queue.task(attempts=1)
def broken() -> None:
    raise ValueError("no")

@queue.task(losses=2)
def deadly() -> None:
    os.abort()
"""


@contextmanager
def worker(folder: Path, address: str) -> Iterator[tuple[str, int]]:
    """A worker with metrics; yields where they are."""
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "holdfast", "worker", "app:queue", "--create", "--metrics", address]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        seen = ""
        while (match := re.search(r"metrics on http://(.+):(\d+)/metrics", seen)) is None:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        yield "127.0.0.1", int(match[2])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


def ask(
    where: tuple[str, int], path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, str]:
    """The status and the body of a reply."""
    connection = http.client.HTTPConnection(*where, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


def read(where: tuple[str, int], **headers: str) -> dict[str, float]:
    """The metrics by name and labels."""
    status, body = ask(where, **headers)
    assert status == 200, body
    lines = [line for line in body.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_a_worker_tells_its_runs_durations_commits_and_lost_leases(tmp_path):
    """On loopback, where no token is needed."""
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue, worker(tmp_path, "127.0.0.1:0") as where:
        jobs = [queue.add("fine") for _ in range(3)] + [queue.add("broken", attempts=1)]
        for job in jobs[:3]:
            job.result(wait=PATIENCE_S)
        jobs.append(queue.add("deadly", losses=2))
        for job in jobs[3:]:
            with pytest.raises(holdfast.JobFailed):
                job.result(wait=PATIENCE_S)
        # The worker counts it when it hears of the commit, as the caller of `result` does.
        until_s = monotonic() + PATIENCE_S
        while DEADLY not in (found := read(where)) and monotonic() < until_s:
            pass
        buckets = queue.connection.ask(GetHistory(task="deadly"))
        (ends,) = (one for bucket in buckets for one in bucket.tasks)
        replies = [
            ask(where, "/")[0],
            ask(where, method="POST")[0],
            ask(where, Host="attacker.example")[0],
            ask(where, Authorization="Bearer wrong")[0],
        ]
        taken = f"127.0.0.1:{where[1]}"
        command = [sys.executable, "-m", "holdfast", "worker", "app:queue", "--metrics", taken]
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)

    assert found['holdfast_worker_runs_total{task="fine",outcome="finished"}'] == 3
    assert found['holdfast_worker_runs_total{task="broken",outcome="failed"}'] == 1
    # As the store counts it: a run that was lost counts if its job ends with it.
    assert found.get(DEADLY) == ends.failed == 1
    assert not any('task="deadly",outcome="retried"' in name for name in found)
    assert found['holdfast_worker_run_seconds_count{task="fine"}'] == 3
    assert found['holdfast_worker_run_seconds_bucket{task="fine",le="+Inf"}'] == 3
    assert found["holdfast_commit_jobs_sum"] >= found["holdfast_commit_jobs_count"] >= 2
    assert found["holdfast_commit_seconds_sum"] > 0
    # Those of the two runs that ended with their process.
    assert found["holdfast_leases_lost_total"] == 2
    assert found["holdfast_worker_executors"] == 1
    assert replies == [404, 405, 403, 401]
    assert second.returncode != 0
    assert f"metrics is '{taken}', and must be an address that is free" in second.stderr


def test_beyond_loopback_a_token_is_needed_that_may_read_everything(tmp_path):
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        secrets = []
        for name, scope, tenant in (
            ("all", Scope.READ, None),
            ("own", Scope.READ, "acme"),
            ("add", Scope.ADD, None),
            ("work", Scope.WORK, None),
        ):
            secret = secret_of(name, random.randbytes(24))
            token = Token(name=name, scopes=(scope,), tenant=tenant, hash=hash_of(secret))
            queue.connection.ask(c.CreateToken(token=token))
            secrets.append(secret)
        with worker(tmp_path, "0.0.0.0:0") as where:
            assert ask(where)[0] == 401
            found = [ask(where, Authorization=f"Bearer {secret}")[0] for secret in secrets]

    assert found == [200, 403, 403, 403]


def test_any_number_of_tasks_has_bounded_series():
    meter = RunMeter()
    for n in range(TASKS + 50):
        meter.note_durations(f"t{n}", [0.1])
        job, hold = Job(id=1, task=f"t{n}"), c.Hold(job_id=1, owner=1)
        meter.note_answers([(c.Answer(hold=hold, code=Code.OK), job)])

    lines = render(meter.families()).decode().splitlines()

    runs = [line for line in lines if line.startswith("holdfast_worker_runs_total{")]
    assert len(runs) == TASKS + 1
    assert f'holdfast_worker_runs_total{{task="{OTHERS}",outcome="finished"}} 50' in runs


def test_a_histogram_counts_values_at_most_each_bound():
    histogram = Histogram((1, 5))
    for value in (0.5, 1, 2, 9):
        histogram.observe(value)

    found = [(end, labels.get("le"), number) for end, labels, number in histogram.series({})]

    assert found == [
        ("_bucket", "1", 2),
        ("_bucket", "5", 3),
        ("_bucket", "+Inf", 4),
        ("_sum", None, 12.5),
        ("_count", None, 4),
    ]


def test_a_lease_that_ended_without_an_answer_is_counted_by_the_process_that_finds_it():
    """With the size of each commit: an add of three jobs counts three."""
    meter = CommitMeter()
    with holdfast.connect("memory://") as queue:
        queue.connection.measure(meter)
        queue.add_many([("work", {})] * 3)
        queue.claim(limit=1, lease=1, renew=False)
        while "holdfast_leases_lost_total 1" not in render(meter.families()).decode():
            queue.claim(["other"], wait=0.2)

    assert 'holdfast_commit_jobs_bucket{le="5"}' in render(meter.families()).decode()
