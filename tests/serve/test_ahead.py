"""Requests that are sent ahead: answered in order, and those that are alike committed together."""

import threading

import pytest

from holdfast.serve.bedrock.server import PortConnection
from tests.queue_suite.tools import until
from tests.serve.clients import Client, request
from tests.serve.test_server import NOTHING


def commits(served):
    """A list that grows by the number of commands of each commit."""
    found, execute = [], served.committer.engine.execute

    def counted(commands, done=None):
        found.append(len(commands))
        return execute(commands, done)

    served.committer.engine.execute = counted
    return found


@pytest.mark.one_shard
def test_like_requests_that_were_sent_ahead_share_a_commit(served, client):
    """And are done, and answered, in order, as if each had waited for the one before."""
    sizes = commits(served)
    client.send(b"".join(request("CreateJob", name=f"foo/{n}") for n in range(50)))
    made = [client.receive().json["jobID"] for _ in range(50)]
    assert made == sorted(made)
    assert len(sizes) < 10

    client.send(request("GetJob", name="foo/*") * 51)
    taken = [client.receive() for _ in range(51)]
    assert [(reply.json["jobID"], reply.json["name"]) for reply in taken[:50]] == [
        (number, f"foo/{n}") for n, number in enumerate(made)
    ]
    assert taken[50].status == NOTHING

    client.send(b"".join(request("FinishJob", jobID=number) for number in [*made[:25], *made]))
    told = [client.receive().status for _ in range(75)]
    assert told == ["200 OK"] * 25 + ["404 No job with this jobID"] * 25 + ["200 OK"] * 25
    assert len(sizes) < 30


def test_one_that_is_refused_among_them_is_refused_alone(client):
    """In its place."""
    names = ["foo", "", "foo", "x" * 256, "foo"]
    client.send(b"".join(request("CreateJob", name=name) for name in names))

    told = [client.receive().status for _ in names]

    assert told == ["200 OK", "402 Missing name", "200 OK", "402 Malformed name", "200 OK"]


def test_requests_that_depend_on_the_one_before_see_what_it_did(client):
    """Sent ahead or not: a child of the job that was just handed out, data that were just changed."""
    job_id = client.create()
    client.send(
        request("GetJob", name="foo")
        + request("CreateJob", name="child", parentJobID=job_id)
        + request("CreateJob", name="child", parentJobID=job_id)
        + request("UpdateJob", jobID=job_id, data='{"a":1}')
        + request("QueryJob", jobID=job_id)
        + request("FinishJob", jobID=job_id)
        + request("GetJob", name="child")
        + request("GetJob", name="child")
    )
    replies = [client.receive() for _ in range(8)]

    assert {reply.status for reply in replies} == {"200 OK"}
    assert replies[4].json["data"] == {"a": 1}
    assert [reply.json["parentData"] for reply in replies[6:]] == [{"a": 1}] * 2


def test_what_follows_a_close_is_not_done_though_it_was_sent_ahead(served, client):
    """Nor is what follows it in the same run."""
    with served.client() as other:
        first = request("CreateJob", name="foo")
        other.send(first + request("CreateJob", name="foo", Connection="close") + first)
        assert [other.receive().status for _ in range(2)] == ["200 OK"] * 2
        assert other.receive() is None

    assert len(client.ok("GetJobs", name="foo", numResults="9")["jobs"]) == 2


@pytest.mark.parametrize("go", [Client.vanish, Client.close], ids=["vanish", "close"])
def test_jobs_of_a_run_that_was_not_delivered_are_back_at_once(served, client, go):
    """All of them, however far the run had come."""
    ids = client.ok("CreateJobs", jobs=[{"name": "foo"}] * 20)["jobIDs"]
    for _ in range(10):
        other = Client(served.address)
        other.send(request("GetJob", name="foo") * 20)
        go(other)
        until(lambda: len(served.server.connections) == 1)
        until(lambda: {client.state(job_id) for job_id in ids} == {"QUEUED"})


def test_a_job_is_back_at_once_if_its_client_has_gone_while_the_reply_was_written(
    served, client, monkeypatch
):
    """The server is told that the client has ended, not that the reply was refused."""
    job_id = client.ok("CreateJob", name="foo")["jobID"]
    other, writing, gone = Client(served.address), threading.Event(), threading.Event()
    flush = PortConnection._flush

    def late(connection):
        writing.set()
        assert gone.wait(60)
        flush(connection)

    with monkeypatch.context() as patched:
        patched.setattr(PortConnection, "_flush", late)
        other.send(request("GetJob", name="foo"))
        assert writing.wait(60)
        other.close()
        gone.set()
        until(lambda: len(served.server.connections) == 1)

    until(lambda: client.state(job_id) == "QUEUED")
