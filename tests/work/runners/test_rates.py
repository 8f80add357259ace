"""How many jobs a warm context runs in a second, for docs/performance.md; by `make proof`."""

import http.client
import http.server
import socket
import time
from urllib.parse import urlsplit

import pytest

from holdfast.work.runners.isolation import find_isolation
from holdfast.work.runners.runner import HandlerRunner
from holdfast.work.runners.settings import RunnerSettings

from .running import handler, replying, run

ROUNDS = 3
BODIES = {
    "python": ("return data", 2_000),
    "node": ("return data", 2_000),
    "shell": ("read line", 200),
    "perl": ("my $line = <STDIN>;", 200),
}


class _Ok(http.server.BaseHTTPRequestHandler):
    """Replies 200 to each line of a request."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self) -> None:
        lines = self.rfile.read(int(self.headers["Content-Length"])).count(b"\n")
        body = b"200\n" * lines
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def runner():
    """A runner with the walls that work here."""
    runner = HandlerRunner(
        find_isolation(RunnerSettings(interpreters={"perl": ("perl",)}, private_hosts=True))
    )
    yield runner
    runner.close()


def best_rate(runner, what, count):
    """The best of some rounds, in jobs a second, after a batch that starts the context."""
    run(runner, what, [b"1"])
    return max(_rate(lambda: run(runner, what, [b"1"] * count), count) for _ in range(ROUNDS))


def _rate(act, count):
    started_s = time.perf_counter()
    act()
    return count / (time.perf_counter() - started_s)


@pytest.mark.proof
@pytest.mark.parametrize("lang", BODIES)
def test_jobs_of_a_warm_context(runner, tell, lang):
    """One thread, one context."""
    body, count = BODIES[lang]

    rate = best_rate(runner, handler(lang, body, context_jobs=10_000), count)

    tell(f"{rate:,.0f} jobs/s")
    assert rate > 10


@pytest.mark.proof
def test_requests_beside_a_bare_client(runner, tell):
    """Single requests and batches of 10 and 100, beside http.client in a loop on one connection."""
    with replying(_Ok) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        single = handler("http", url, context_jobs=10_000)
        batch = handler("http", url, batch=True, batch_size=100, context_jobs=10_000)
        measures = {
            "bare client": lambda: _rate(lambda: _loop(connection, 1_000), 1_000),
            "single": lambda: _rate(lambda: run(runner, single, [b"1"] * 1_000), 1_000),
            "batches of 10": lambda: _rate(lambda: _run_batches(runner, batch, 10), 1_000),
            "batches of 100": lambda: _rate(lambda: _run_batches(runner, batch, 100), 1_000),
        }
        # In turn, so that what else the machine does concerns all of them.
        found = [{name: measure() for name, measure in measures.items()} for _ in range(2 * ROUNDS)]
        connection.close()

    best = {name: max(one[name] for one in found) for name in measures}
    tell(", ".join(f"{name} {rate:,.0f}/s" for name, rate in best.items()))
    assert best["batches of 100"] > best["single"]


def _loop(connection, count):
    for _ in range(count):
        connection.request("POST", "/", b"1\n")
        connection.getresponse().read()


def _run_batches(runner, what, size):
    for _ in range(1_000 // size):
        run(runner, what, [b"1"] * size)
