"""Clients of the job-command port whose requests do not become whole."""

import time

import pytest

from holdfast.serve.bedrock import server
from tests.queue_suite.tools import until
from tests.serve.clients import request

TOO_SLOW = "408 Request too slow"


@pytest.fixture
def soon(monkeypatch):
    """A shorter time for a request to arrive."""
    monkeypatch.setattr(server, "READ_S", 0.3)


@pytest.mark.parametrize(
    "part",
    [b"CreateJ", b"CreateJob\nname: a\ndata: {", b"X\nTransfer-Encoding: chunked\n\n5\r\nab"],
    ids=("verb", "value", "chunk"),
)
def test_a_request_that_does_not_become_whole_is_refused(soon, served, client, part):
    """And what was kept of it is let go; others are answered meanwhile."""
    with served.client() as slow:
        reply = slow.say(part)

        assert (reply.status, reply.headers["Connection"]) == (TOO_SLOW, "close")
        assert slow.receive() is None
    until(lambda: served.server.buffered == 0)
    assert client.status("Ping") == "200 OK"


def test_a_request_that_comes_in_pieces_has_its_time_from_its_own_beginning(monkeypatch, client):
    """Not from that of the requests before it, with whose last bytes it began."""
    monkeypatch.setattr(server, "READ_S", 2.0)
    whole = request("Ping")
    client.send(whole[:3])
    for _ in range(6):
        time.sleep(0.5)
        client.send(whole[3:] + whole[:3])
        assert client.receive().status == "200 OK"
    client.send(whole[3:])

    assert client.receive().status == "200 OK"


def test_a_connection_without_a_request_stays_open(soon, client):
    """Also after blank lines, which belong to none."""
    client.send(b"\n\r\n\n")
    time.sleep(0.6)

    assert client.status("Ping") == "200 OK"


def test_a_claim_that_waits_is_answered_before_a_slow_request_behind_it(soon, served, client):
    """In the order in which they came."""
    with served.client() as slow:
        slow.send(request("GetJob", name="foo", Connection="wait", timeout="60000") + b"Pi")
        time.sleep(0.8)
        job_id = client.create("foo")

        assert slow.receive().json["jobID"] == job_id
        assert slow.receive().status == TOO_SLOW
