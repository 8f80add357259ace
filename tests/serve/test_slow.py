"""Clients of the job-command port whose requests do not become whole."""

import time

import pytest

from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.bounds import PORT_LINES_BYTES
from holdfast.core.token import Token, hash_of, secret_of
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
    monkeypatch.setattr(server, "READ_S", 5.0)
    whole = request("Ping")
    client.send(whole[:3])
    for _ in range(6):
        # Together longer than a request may take, each far from it.
        time.sleep(1)
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


@pytest.mark.parametrize("token", ["", "token: hf_shop_00\n"], ids=["none", "wrong"])
def test_a_long_request_without_a_token_is_refused_after_its_first_64_kb(serve, token):
    """Before the rest of it is sent, and nothing of it is kept."""
    served = serve(has_tokens=True)
    with served.client() as client:
        reply = client.say(f"CreateJob\n{token}name: a\ndata: ".encode() + b"x" * (PORT_LINES_BYTES + 10))

        assert (reply.status, reply.headers["Connection"]) == ("401 Unauthorized", "close")
        assert client.receive() is None
    until(lambda: served.server.buffered == 0)


def test_a_long_request_with_a_token_before_its_data_is_carried_out(serve):
    """Each request of a connection has its own; one that comes later in a long request is not seen."""
    served = serve(has_tokens=True)
    secret = secret_of("shop", bytes(24))
    served.ask(
        c.CreateToken(token=Token(name="shop", scopes=tuple(Scope), hash=hash_of(secret)), expires_in_ms=0)
    )
    data = {"text": "x" * 1_000_000}
    with served.client() as client:
        for _ in range(2):
            assert client.ok("CreateJob", token=secret, name="a", data=data)["jobID"]
        client.send(request("CreateJob", name="a", data=data, token=secret))

        assert client.receive().status == "401 Unauthorized"
