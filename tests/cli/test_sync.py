"""`holdfast sync`: what modules declare is written without a worker."""

import os
import subprocess
import sys

import pytest

import holdfast
from holdfast.core.commands import SetLimit
from holdfast.core.limits import Limit
from holdfast.queue.publishing import Publisher

APP = """
import holdfast
queue = holdfast.connect("jobs.db")
queue.limit("api", rate="10/s")

@queue.task(cron="@daily")
def sweep() -> None: ...
"""


def sync(folder, *words):
    command = [sys.executable, "-m", "holdfast", "sync", *words]
    env = {**os.environ, "HOLDFAST_STORE": "other.db"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=env)


def test_sync_writes_what_modules_declare(tmp_path):
    """To the store of their queue, whatever HOLDFAST_STORE says."""
    (tmp_path / "app.py").write_text(APP)

    done = sync(tmp_path, "app:queue", "--json")

    assert done.stdout == '{"tasks": 1, "schedules": 1, "limits": 1}\n', done.stderr
    with holdfast.connect(tmp_path / "jobs.db", create=False) as queue:
        assert [one.name for one in queue.schedules()] == ["sweep"]
        assert [*queue.limits()] == [b"api"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nothing:queue"], "nothing:queue is broken (ModuleNotFoundError"),
        (["app:other"], "there is no other in app"),
        (["app:queue", "--store", "x.db"], "must be absent: a queue has its own store"),
    ],
)
def test_a_queue_that_cannot_be_had_is_told(tmp_path, words, reason):
    (tmp_path / "app.py").write_text(APP)

    done = sync(tmp_path, *words)

    assert reason in done.stderr
    assert not (tmp_path / "jobs.db").exists()


def test_a_declared_limit_replaces_that_of_an_operator_and_a_log_line_says_so(caplog):
    """Once: what is in force already is not told."""
    caplog.set_level("INFO", "holdfast.worker")
    declared = {"api": SetLimit(domain=b"api", limit=Limit(rate=12.0))}
    with holdfast.connect("memory://") as queue:
        Publisher().publish(queue.connection, {}, declared)
        queue.limit("api", rate="1/h", concurrency=2)

        for _ in range(2):
            Publisher().publish(queue.connection, {}, declared)

        assert queue.limits() == {b"api": Limit(rate=12.0)}
    assert caplog.messages == ["the limit of api is 12/s, as declared; it was 1/h, 2 at once"]
