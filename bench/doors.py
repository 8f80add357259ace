"""What an add costs over HTTP and over gRPC, beside a no-op of the same server. 64 clients add one by one.

    python bench/doors.py [--store URL] [--seconds 3] [--rounds 7]

The no-op of HTTP is `POST /v1/jobs` with NDJSON of no lines: the client is admitted and the body is read, but
the store is not asked. That of gRPC is `Check` of the health service. Each round starts a server and measures
all four; the medians of the rounds are printed, and all ratios. The processor time is the server's, for one
request.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic

CLIENTS = 64
# Before the clock starts: connections are made.
WARM_S = 0.5
JOB = b'{"task": "resize", "data": {"path": "a.png", "width": 200}}'
Request = Callable[[], Awaitable[None]]


def http_request(body: bytes, kind: str) -> bytes:
    """An add, as bytes."""
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


HTTP = {"no-op": http_request(b"", "application/x-ndjson"), "add": http_request(JOB, "application/json")}


class HttpClient(asyncio.Protocol):
    """Sends a request as soon as the last one is answered."""

    def __init__(self, request: bytes) -> None:
        self._request, self._came = request, b""
        self.count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the reply once it is whole."""
        self._came += data
        head, end, body = self._came.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not end or length is None or len(body) < int(length[1]):
            return
        assert head.startswith(b"HTTP/1.1 201"), head
        self.count, self._came = self.count + 1, b""
        self._transport.write(self._request)


async def load_http(port: int, name: str, seconds: float) -> float:
    """Requests a second over HTTP."""
    loop = asyncio.get_running_loop()
    clients = [HttpClient(HTTP[name]) for _ in range(CLIENTS)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    return await _rate(lambda: sum(client.count for client in clients), seconds)


async def load_grpc(port: int, name: str, seconds: float) -> float:
    """Calls a second over gRPC."""
    import grpc
    from grpc_health.v1 import health_pb2

    from holdfast.core.commands import Add, NewJob
    from holdfast.proto.conversion import VERBS

    verb = VERBS[Add]
    add = verb.request(**verb.encode(Add(jobs=(NewJob(task="resize", data=JOB[27:-1].decode()),))))
    methods = {
        "no-op": ("/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest().SerializeToString()),
        "add": ("/holdfast.v1.Queue/Add", add.SerializeToString()),
    }
    path, request = methods[name]
    done = [0]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(path)

        async def client() -> None:
            while True:
                await call(request)
                done[0] += 1

        tasks = [asyncio.create_task(client()) for _ in range(CLIENTS)]
        rate = await _rate(lambda: done[0], seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return rate


LOADS = {"http": load_http, "grpc": load_grpc}


async def _rate(count: Callable[[], int], seconds: float) -> float:
    await asyncio.sleep(WARM_S)
    first, start_s = count(), monotonic()
    await asyncio.sleep(seconds)
    return (count() - first) / (monotonic() - start_s)


class Server:
    """A `holdfast serve` with both doors."""

    def __init__(self, store: str) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "--store", store]
        command += ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.ports = {
            name: int(port) for name, port in re.findall(r"(http|grpc) on 127\.0\.0\.1:(\d+)", line)
        }

    def cpu_s(self) -> float:
        """The processor time that it has taken."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, door: str, name: str, seconds: float) -> tuple[float, float]:
        """Requests a second, and µs of the server's processor for each."""
        command = [sys.executable, __file__, "--client", door, name, str(self.ports[door])]
        begun_s = self.cpu_s()
        said = subprocess.run(
            [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=True
        )
        rate = float(said.stdout)
        return rate, (self.cpu_s() - begun_s) / (rate * (seconds + WARM_S)) * 1e6

    def stop(self) -> None:
        """Have it drain."""
        self._process.terminate()
        self._process.wait(60)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.client:
        door, name, port = said.client
        print(asyncio.run(LOADS[door](int(port), name, said.seconds)))
        return
    found: dict[str, list[tuple[float, ...]]] = {door: [] for door in LOADS}
    for _ in range(said.rounds):
        for door, figures in measure(said.store, said.seconds).items():
            found[door].append(figures)
    for door, rounds in found.items():
        noop, noop_us, add, add_us, ratio = (statistics.median(x) for x in zip(*rounds, strict=True))
        print(
            f"{door}: no-op {noop:,.0f}/s, {noop_us:.0f} µs; add {add:,.0f}/s, {add_us:.0f} µs; "
            f"add of no-op {ratio:.2f} ({', '.join(f'{one[-1]:.2f}' for one in sorted(rounds))})"
        )


def measure(store: str | None, seconds: float) -> dict[str, tuple[float, ...]]:
    """One server: for each door the no-op and the add, both with their processor time, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(store or f"{folder}/jobs.db")
        try:
            found = {door: [server.measure(door, name, seconds) for name in HTTP] for door in LOADS}
        finally:
            server.stop()
    return {door: (*noop, *add, add[0] / noop[0]) for door, (noop, add) in found.items()}


if __name__ == "__main__":
    main()
