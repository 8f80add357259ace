"""Clients that disconnect while they claim: no job stays leased to them."""

import asyncio
import random
import re
import threading
import time

import pytest

from holdfast.core import commands as c
from holdfast.serve.http.exchange import Exchange, _gone
from tests.queue_suite.tools import LONG_S, until


@pytest.mark.stores
def test_a_client_that_goes_away_while_it_waits_claims_nothing(served, client):
    """What comes after it has gone is there for the next."""
    with served.raw() as gone:
        body = b'{"tasks":["t"],"wait":30}'
        gone.sendall(
            b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        until(lambda: bool(served.connection._submitter._waiter._claims))
    until(lambda: all(ticket.abandoned for ticket in list(served.connection._submitter._waiter._claims)))

    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
    (one,) = client.ok("POST", "/v1/claims", {"tasks": ["t"], "wait": 50})["jobs"]
    assert one["job"]["id"] == job_id


def test_a_job_that_comes_as_the_client_goes_is_released(served, client, monkeypatch):
    """The claim has its jobs before the server looks whether the client is there."""
    found, leave = [], threading.Event()
    wait = Exchange._wait

    async def wait_and_see_it_go(exchange, request, work, otherwise):
        found.extend(jobs := await wait(exchange, request, work, otherwise))
        leave.set()
        await _gone(request)
        return jobs

    monkeypatch.setattr(Exchange, "_wait", wait_and_see_it_go)
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
    with served.raw() as gone:
        body = b'{"tasks":["t"],"wait":30}'
        gone.sendall(
            b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert leave.wait(LONG_S)

    assert [str(one.job.id) for one in found] == [job_id]
    until(lambda: client.ok("GET", f"/v1/jobs/{job_id}")["place"] == "READY")


def test_a_job_claimed_without_a_wait_for_a_client_that_goes_is_released(served, client, monkeypatch):
    """The client disconnects while its claim is committed."""
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
    claimed = threading.Event()
    ask, connections = Exchange.ask, served.service._state.connections

    async def claim_and_see_it_go(exchange, grant, asked, **options):
        found = await ask(exchange, grant, asked, **options)
        if isinstance(asked, c.Claim):
            claimed.set()
            await asyncio.to_thread(until, lambda: len(connections) == 1)
        return found

    monkeypatch.setattr(Exchange, "ask", claim_and_see_it_go)
    with served.raw() as gone:
        body = b'{"tasks":["t"],"lease_ms":null}'
        gone.sendall(
            b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        assert claimed.wait(LONG_S)

    until(lambda: client.ok("GET", f"/v1/jobs/{job_id}")["place"] == "READY")


def claims_left(served, moments: int) -> list[str]:
    """The jobs that stay leased after as many clients went at random moments, and that none of them got.

    Each sends a claim and hangs up some time later; a reply that it has read by then it has got. What it has
    not read the kernel tells the server by a reset.
    """
    rng, body = random.Random(12), b'{"tasks":["t"]}'
    head = b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with served.client() as client:
        ids = {client.post("/v1/jobs", {"task": "t"}).json["id"] for _ in range(moments)}
        got: set[str] = set()
        for n in range(moments):
            with served.raw() as gone:
                gone.sendall(head + body)
                if n % 3:
                    time.sleep(rng.random() * rng.choice((0.001, 0.01)))
                    gone.setblocking(False)
                try:
                    found = b"" if not n % 7 else gone.recv(65536)
                except BlockingIOError:
                    found = b""
            got |= set(re.findall(r'"id":"(\d+)"', found.partition(b"\r\n\r\n")[2].decode()))
        until(lambda: len(served.service._state.connections) == 1)
        left: list[str] = []

        def look() -> bool:
            left[:] = [
                one for one in sorted(ids - got) if client.ok("GET", f"/v1/jobs/{one}")["place"] == "RUNNING"
            ]
            return not left

        until(look)
        return left


def test_jobs_of_clients_that_go_at_random_moments_come_back(served):
    """Before the claim, while it is committed, before, while and after the reply is sent."""
    assert claims_left(served, 20) == []


@pytest.mark.proof
def test_jobs_of_a_thousand_clients_that_go_at_random_moments_come_back(served):
    """None stays hidden until its lease ends."""
    assert claims_left(served, 1_000) == []
