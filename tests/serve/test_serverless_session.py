"""The document's session with curl and one command, `holdfast serve --http`: upload, add, read results."""

import http.server
import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import pytest

from tests.programs import or_skip, program
from tests.work.runners.running import replying

PATIENCE_S = 300
BODIES = {
    "python": 'print(f"J: after|{data}")\nprint(f"J: other-after|{data}")\nreturn data * 2',
    "node": "console.log(`seen ${data}`); return data * 2",
    "shell": 'read n; echo "seen $n"; echo $((n * 2)) >&3',
}


class _Double(http.server.BaseHTTPRequestHandler):
    """Replies the double of each request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = str(int(self.rfile.read(int(self.headers["Content-Length"]))) * 2).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def serving(folder):
    """A server of the queue in a folder; its address."""
    command = [sys.executable, "-m", "holdfast", "serve", "--http", "127.0.0.1:0", "--store", "jobs.db"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r"http on (\S+)", process.stdout.readline())
        assert match, (folder / "log").read_text()
        yield f"http://{match[1]}"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def curl(*words, data=None):
    """The JSON that curl gets."""
    tool = or_skip(partial(program, "curl", "curl"), what="the session with curl")
    given = [] if data is None else ["--data-binary", "@-"]
    done = subprocess.run([tool, "-sSf", *given, *words], input=data, capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("count", [3, pytest.param(1_000, marks=pytest.mark.proof)])
def test_curl_uploads_handlers_adds_jobs_and_reads_results(tmp_path, count):
    """Four languages; one adds follow-on jobs, and one of these names another tenant, which it cannot."""
    for name, package in (("node", "nodejs"),):
        or_skip(partial(program, name, package), what="the session with curl")
    lines = "".join(f"{n}\n" for n in range(count)).encode()
    with replying(_Double) as url, serving(tmp_path) as server:
        for task, body in (BODIES | {"http": url}).items():
            curl(f"{server}/acme/handler/add/{task}/add?method={task}", data=body.encode())
        for task in ("after", "other-after"):
            curl(f"{server}/acme/handler/add/{task}/add?method=python", data=b"return data + 1")
        curl(f"{server}/other/handler/add/after/add?method=python", data=b"return 'stolen'")

        ids = {task: curl(f"{server}/acme/job/{task}/add", data=lines)["ids"] for task in (*BODIES, "http")}
        wait_for_counts(server, dict.fromkeys((*ids, "after", "other-after"), count))
        found = {task: [result_of(server, job_id) for job_id in mine] for task, mine in ids.items()}

    doubles = [2 * n for n in range(count)]
    assert {task: len(mine) for task, mine in ids.items()} == dict.fromkeys(ids, count)
    assert [found[task] for task in ("python", "node", "http", "shell")] == [doubles] * 4
    assert "handlers: " in (tmp_path / "log").read_text()


def wait_for_counts(server, wanted):
    """Wait until the jobs of all tasks of `acme` have finished; and none of another tenant was ever added."""
    until = time.monotonic() + PATIENCE_S
    while (found := finished(server, "acme")) != wanted:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    assert finished(server, "other") == {}


def finished(server, tenant):
    """How many jobs of each task have finished."""
    counts = curl(f"{server}/v1/counts?tenant={tenant}")["counts"]
    return {one["of"]["task"]: one["count"] for one in counts if one["of"]["state"] == "FINISHED"}


def result_of(server, job_id):
    """The result of a job."""
    return curl(f"{server}/v1/jobs/{job_id}/result?tenant=acme")["result"]
