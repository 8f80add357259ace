"""Requests a second, beside the same server answering Ping: figures for people, nothing is asserted."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.serve.clients import request
from tests.serve.test_process import server
from tests.serve.test_server import _hear, _speak

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

REQUESTS = 4_000
CLOCK_TICKS = 100


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def _rate(address, pid, clients, lines):
    """Requests a second by the clock and by the server's computing, where each client says these in turn."""

    async def speak():
        reader, writer = await _speak(address, b"")
        told = b"{}"
        for number in range(REQUESTS // clients):
            line = lines[number % len(lines)]
            writer.write(line(told))
            status, told = await _hear(reader)
            assert status == "200 OK", status
        writer.close()

    started, cpu_s = time.perf_counter(), _cpu_s(pid)
    await asyncio.gather(*(speak() for _ in range(clients)))
    return REQUESTS / (time.perf_counter() - started), REQUESTS / max(_cpu_s(pid) - cpu_s, 0.01)


def _ping(_told):
    return request("Ping")


def _create(_told):
    return request("CreateJob", name="foo", data='{"a":1}')


def _get(_told):
    return request("GetJob", name="foo")


def _finish(told):
    number = told.split(b'"jobID":')[1].split(b",")[0].decode()
    return request("FinishJob", jobID=number)


def test_requests_a_second_beside_ping(tmp_path, record_property):
    """One client, and fifty."""
    with server(tmp_path) as (process, address):
        for clients in (1, 50):
            for name, lines in (
                ("Ping", [_ping]),
                ("CreateJob", [_create]),
                ("GetJob+FinishJob", [_get, _finish]),
            ):
                wall, cpu = asyncio.run(_rate(address, process.pid, clients, lines))
                text = f"{wall:,.0f}/s, {cpu:,.0f} for each second that the server computes"
                record_property(f"{name}, {clients} clients", text)
                print(f"{name}, {clients} clients: {text}")  # noqa: T201
