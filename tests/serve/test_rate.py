"""Requests a second, beside the same server answering Ping: figures for people, nothing is asserted of them.

A client says the next thing when it has heard the reply, or fifty at once and then listens. The server is a
process of its own on a fresh file; what it computes is measured beside the clock.
"""

import asyncio
import re
import time
from pathlib import Path

import pytest

from tests.serve.clients import request
from tests.serve.test_process import server

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

REQUESTS = 5_000
CLOCK_TICKS = 100
_HEAD = re.compile(rb"(\d+ [^\r]*)\r\n(?:[^\r]+\r\n)*?Content-Length: (\d+)\r\n\r\n")


def _cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


async def _replies(reader, count):
    """So many bodies, of replies that are all 200 OK."""
    heard, at = b"", 0
    bodies: list[bytes] = []
    while len(bodies) < count:
        head = _HEAD.match(heard, at)
        if head is None or len(heard) < head.end() + int(head[2]):
            more = await reader.read(1 << 16)
            assert more, heard[at:]
            heard, at = heard[at:] + more, 0
            continue
        assert head[1] == b"200 OK", head[1]
        at = head.end() + int(head[2])
        bodies.append(heard[head.end() : at])
    return bodies


async def _said(address, requests, at_once):
    reader, writer = await asyncio.open_connection(*address)
    bodies = []
    for start in range(0, len(requests), at_once):
        lot = requests[start : start + at_once]
        writer.write(b"".join(lot))
        bodies += await _replies(reader, len(lot))
    writer.close()
    return bodies


async def _all_said(address, requests, clients, at_once):
    lots = [requests[n::clients] for n in range(clients)]
    bodies = await asyncio.gather(*(_said(address, lot, at_once) for lot in lots))
    return [body for some in bodies for body in some]


def _number(body):
    return body.split(b'"jobID":')[1].split(b",")[0].rstrip(b"}").decode()


@pytest.mark.parametrize(("clients", "at_once"), [(1, 1), (1, 50), (50, 1), (50, 50)])
def test_requests_a_second_beside_ping(tmp_path, record_property, clients, at_once):
    """Of each command alone: a thousand are made, handed out and finished, and so on."""
    with server(tmp_path) as (process, address):

        def measured(name, requests):
            started, cpu_s = time.perf_counter(), _cpu_s(process.pid)
            bodies = asyncio.run(_all_said(address, requests, clients, at_once))
            took_s, cpu_s = time.perf_counter() - started, _cpu_s(process.pid) - cpu_s
            cost_us = cpu_s / len(requests) * 1_000_000
            text = f"{len(requests) / took_s:,.0f}/s, {cost_us:.0f} µs of the server's computing each"
            record_property(f"{name}, {clients} clients, {at_once} at once", text)
            print(f"{name}, {clients} clients, {at_once} at once: {text}")  # noqa: T201
            return bodies

        measured("Ping", [request("Ping")] * REQUESTS)
        measured("CreateJob", [request("CreateJob", name="foo", data='{"a":1}')] * REQUESTS)
        bodies = measured("GetJob", [request("GetJob", name="foo")] * REQUESTS)
        numbers = [_number(body) for body in bodies]
        assert len(set(numbers)) == REQUESTS
        measured("FinishJob", [request("FinishJob", jobID=number) for number in numbers])
