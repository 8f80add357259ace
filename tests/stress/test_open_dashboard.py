"""An open dashboard costs an idle server next to nothing."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.http.served import Client, lines_of
from tests.stores import here_and_in_proof

LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHANGED = b"event: changed"
PAGES = 2


class Size(NamedTuple):
    """For how long the server is idle, and which share of a core it may use."""

    idle_s: float
    most: float


SIZES = [
    # Garbage collection or the start of a thread is much of three seconds, on a busy machine above all.
    pytest.param(Size(3, 0.25), id="small"),
    pytest.param(Size(60, 0.01), id="full", marks=pytest.mark.proof),
]


@pytest.fixture(params=here_and_in_proof(["sqlite"], ["postgres"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.mark.parametrize("size", SIZES)
def test_an_open_dashboard_costs_next_to_nothing(url: str, size: Size, tell: Callable[[str], None]) -> None:
    """The whole server, with two open pages; the pages are live."""
    with serving(url) as (pid, address), closing(Client(address)) as client:
        for n in range(40):
            client.ok("POST", "/v1/jobs", {"task": f"t{n}"})
        assert client.get("/").status == 200
        pages = [socket.create_connection(address, timeout=60) for _ in range(PAGES)]
        for page in pages:
            page.sendall(LIVE)
            lines_of(page, lambda found: b"retry:" in found)

        used_s, begun_s = cpu_s(pid), time.monotonic()
        # What is measured is the passing of time.
        time.sleep(size.idle_s)
        share = (cpu_s(pid) - used_s) / (time.monotonic() - begun_s)

        client.ok("POST", "/v1/jobs", {"task": "t"})
        for page in pages:
            assert CHANGED in lines_of(page, lambda found: CHANGED in found)
            page.close()
    tell(f"{share:.2%} of a core over {size.idle_s:g} s")
    assert share < size.most


@contextmanager
def serving(url: str) -> Iterator[tuple[int, tuple[str, int]]]:
    """A server process: its id, and its address."""
    command = [sys.executable, "-m", "holdfast", "serve", "--store", url, "--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http on 127.0.0.1:(\d+)", process.stdout.readline())
        assert found
        yield process.pid, ("127.0.0.1", int(found[1]))
    finally:
        process.terminate()
        process.communicate(timeout=60)


def cpu_s(pid: int) -> float:
    """User and system time of a process, all of its threads: by its clock, as /proc counts in 10 ms."""
    # What clock_getcpuclockid(3) returns; Python does not have it.
    return time.clock_gettime(~pid << 3 | 2)
