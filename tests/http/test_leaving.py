"""Clients that disconnect while they claim: no job stays leased to them."""

import asyncio
import threading

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
