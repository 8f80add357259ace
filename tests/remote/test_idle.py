"""Many clients that say nothing: they are held, and others are served meanwhile."""

import resource
import socket
from pathlib import Path

import pytest

from holdfast.queue.connect import connect
from holdfast.store.common.clock import monotonic_s
from tests.remote.processes import ServerProcess

IDLE, PROOF_IDLE = 500, 10_000
# What HTTP/2 begins with: the preface, and an empty frame of settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
# Of a connection that is held, in the server.
MOST_BYTES = 100_000


def memory_of(pid: int) -> int:
    """The bytes of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def hold(folder: Path, count: int, tell: object) -> None:
    """Hold so many connections, and use a queue beside them."""
    with ServerProcess(str(folder / "jobs.db"), folder) as server, connect(server.url) as queue:
        queue.add("before")
        before, idle = memory_of(server.pid), list[socket.socket]()
        try:
            for _ in range(count):
                idle.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                idle[-1].sendall(GREETING)
            # Each has heard the server's own settings: it is a connection of HTTP/2.
            assert all(one.recv(9) for one in idle)
            start_s = monotonic_s()
            queue.add_many([("work", n) for n in range(1_000)])
            took_s, grown = monotonic_s() - start_s, memory_of(server.pid) - before
        finally:
            for one in idle:
                one.close()
        assert queue.counts()["work"] == {"QUEUED": 1_000}
    tell(f"{count:,} connections, {grown / count:,.0f} bytes each, 1,000 jobs in {took_s:.2f} s")  # type: ignore[operator]
    assert grown < count * MOST_BYTES


def test_hundreds_of_idle_connections_are_held(tmp_path, tell):
    """And cost little."""
    hold(tmp_path, IDLE, tell)


@pytest.mark.proof
def test_ten_thousand_idle_connections_are_held(tmp_path, tell):
    """The server and this process need as many open files each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < PROOF_IDLE + 1_000:
        pytest.skip(f"NOT TESTED 10,000 connections: a process may open {most:,} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    hold(tmp_path, PROOF_IDLE, tell)
