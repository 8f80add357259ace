"""GetJob and GetJobs: which jobs, in which order, and what is told of them."""

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.job import Code, Place
from holdfast.core.token import Scope, Token, hash_of, secret_of
from holdfast.serve.bedrock.port import PortGuard
from holdfast.serve.guard import Guard
from tests.queue_suite.tools import HOUR_MS, until
from tests.serve.clients import request

NOTHING = "404 No job found"


def test_nine_keys_tell_of_a_job(client):
    """As it was before this hand-out."""
    job_id = client.create(data={"a": 1})

    first = client.take()
    client.ok("RetryJob", jobID=job_id)

    assert first == {
        "created": "2026-11-15 13:00:00",
        "data": {"a": 1},
        "jobID": job_id,
        "lastRun": "",
        "name": "foo",
        "nextRun": "2026-11-15 13:00:00",
        "priority": 500,
        "repeat": "",
        "retryAfter": "",
    }
    assert client.take()["lastRun"] == "2026-11-15 13:00:00"


def test_jobs_come_by_priority_then_time_then_age(client):
    """Age never promotes one over a higher priority."""
    made = {
        name: client.create(name, **options)
        for name, options in {
            "late": {"firstRun": "2026-11-15 12:00:00"},
            "low": {"jobPriority": "0", "firstRun": "2020-01-01"},
            "high": {"jobPriority": "1000"},
            "early": {"firstRun": "2026-11-15 11:00:00"},
            "one": {},
            "two": {},
            "not yet": {"firstRun": "2026-11-15 13:00:01"},
        }.items()
    }

    jobs = client.ok("GetJobs", name="*", numResults="10")["jobs"]

    assert [job["name"] for job in jobs] == ["high", "early", "late", "one", "two", "low"]
    assert [job["jobID"] for job in jobs] == [made[job["name"]] for job in jobs]
    assert all(list(job) == sorted(job, key=str.lower) for job in jobs)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("www-prod/*", ["www-prod/a", "www-prod/b?id=1"]),
        ("www-prod/?", ["www-prod/a"]),
        ("www-[ps]*/a", ["www-prod/a", "www-stag/a"]),
        ("www-[^p]*", ["www-stag/a"]),
        ("WWW*", []),
        ("*[?]id=1", ["www-prod/b?id=1"]),
        ("[", []),
        ("www-prod/a", ["www-prod/a"]),
        ("www-prod/a,  with,", ["www-prod/a"]),
        ("with, comma", []),
        ("with*comma", ["with, comma"]),
        ("www-prod/*, www-stag/a", ["www-stag/a"]),
    ],
)
def test_one_name_is_a_pattern_and_several_are_names(client, name, found):
    """Of a list only exact names match; a name with a comma is found by pattern alone."""
    for one in ("www-prod/a", "www-prod/b?id=1", "www-stag/a", "with, comma"):
        client.create(one)

    reply = client.ask("GetJobs", name=name, numResults="9")

    if found:
        assert [job["name"] for job in reply.json["jobs"]] == found
    else:
        assert reply.status == NOTHING


@pytest.mark.parametrize(
    ("verb", "parameters", "status"),
    [
        ("GetJob", {}, "402 Missing name"),
        ("GetJob", {"name": ", ,"}, "402 Missing name"),
        ("GetJob", {"name": "x" * 12_751}, "402 Malformed name"),
        ("GetJob", {"name": "x" * 12_750}, NOTHING),
        ("GetJob", {"name": ",".join(f"n{n}" for n in range(2_000))}, NOTHING),
        (
            "GetJob",
            {"name": "x", "numResults": "1", "jobPriority": "7"},
            "402 Cannot use numResults with GetJob; try GetJobs",
        ),
        ("GetJobs", {"name": "x", "jobPriority": "7"}, "402 Missing numResults"),
        ("GetJobs", {"name": "x", "numResults": "1", "jobPriority": "7"}, "402 Invalid priority value"),
        ("GetJob", {"name": "x", "Connection": "wait", "timeout": "soon"}, "402 Malformed timeout"),
        ("GetJob", {"name": "x", "timeout": "soon"}, NOTHING),
        ("GetJob", {"name": "x", "Connection": "wait", "timeout": "0"}, NOTHING),
        ("GetJob", {"name": "x", "Connection": "wait", "timeout": "1"}, NOTHING),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_not_right_is_refused_in_order(client, verb, parameters, status):
    """name, numResults, jobPriority."""
    assert client.status(verb, **parameters) == status


@pytest.mark.parametrize(("number", "count"), [("2", 2), ("0", 1), ("-3", 1), ("many", 1), ("5000", 4)])
def test_as_many_jobs_come_as_were_asked_for(client, number, count):
    """At least one, and those that there are."""
    for _ in range(4):
        client.create()

    assert len(client.ok("GetJobs", name="foo", numResults=number)["jobs"]) == count


def test_one_priority_may_be_asked_for(client):
    """And no other is given."""
    client.create(jobPriority="1000")
    low = client.create(jobPriority="0")

    assert client.take(jobPriority="0")["jobID"] == low
    assert client.status("GetJob", name="foo", jobPriority="0") == NOTHING


def test_mocked_jobs_are_for_those_who_ask_for_them(client):
    """They are shown as such, do not repeat, and have names of their own."""
    mocked = client.create(mockRequest="anything", repeat="HOURLY", data={"a": 1}, unique="true")
    real = client.create(unique="true")
    by_data = client.create("data", data={"mockRequest": True})
    assert real != mocked
    assert client.ok("QueryJob", jobID=mocked)["repeat"] == ""

    assert client.take()["jobID"] == real
    assert client.status("GetJob", name="*") == NOTHING
    found = client.take(getMockedJobs="true")
    assert (found["jobID"], found["data"]) == (mocked, {"a": 1, "mockRequest": True})
    assert client.ok("GetJob", name="*", mockRequest="1")["jobID"] == by_data
    client.ok("UpdateJob", jobID=mocked, data={"b": 1})
    assert client.ok("QueryJob", jobID=mocked)["data"] == {"b": 1, "mockRequest": True}


def test_a_family_is_told_of_itself(client):
    """A child of its parent's data as they are now; a parent of those of its children that ended."""
    parent = client.create("parent", data={"p": 1})
    assert "finishedChildJobs" not in client.take("parent")
    done = client.create("done", parentJobID=parent, data={"c": 1})
    gone = client.create("gone", parentJobID=parent)
    client.ok("UpdateJob", jobID=parent, data={"p": 2})
    client.ok("FinishJob", jobID=parent)

    child = client.take("done")
    assert (child["parentJobID"], child["parentData"]) == (parent, {"p": 2})
    client.ok("FinishJob", jobID=done, data={"c": 2})
    client.ok("CancelJob", jobID=gone)
    resumed = client.take("parent")

    assert resumed["finishedChildJobs"] == [{"jobID": done, "data": {"c": 2}}]
    assert resumed["cancelledChildJobs"] == [{"jobID": gone, "data": {}}]
    assert "parentJobID" not in resumed
    client.ok("FinishJob", jobID=parent)
    assert [client.state(job_id) for job_id in (parent, done, gone)] == [None, None, None]


def test_jobs_of_elsewhere_are_handed_out_here_and_back(client, served):
    """Jobs are jobs, whoever made them and whoever runs them."""
    (theirs,) = served.ask(c.Add(jobs=(c.NewJob(task="theirs", data="[1]", retry_after=90_000),)))
    ours = client.create("ours", data={"a": 1})

    found = client.take("theirs")
    (claimed,) = served.ask(c.Claim(tasks=("ours",), lease_ms=60_000))

    assert (found["jobID"], found["data"], found["retryAfter"]) == (theirs, [1], "+90 SECONDS")
    assert (claimed.job.id, claimed.data) == (ours, '{"a": 1}')
    client.ok("FinishJob", jobID=theirs)
    # Ours is out elsewhere: nobody answers for it here.
    assert client.status("FinishJob", jobID=ours).startswith("405 Can only retry/finish")
    assert client.status("FailJob", jobID=ours).startswith("405 Can only fail")
    hold = c.Hold(job_id=ours, owner=claimed.job.owner, claim=claimed.job.claim)
    served.ask(c.Answer(hold=hold, code=Code.OK))
    assert client.status("FinishJob", jobID=ours) == "404 No job with this jobID"


def test_a_port_is_about_one_tenant(serve):
    """Whatever belongs to another is not there."""
    mine, theirs = serve(tenant="mine"), serve(tenant="theirs")
    with mine.client() as a, theirs.client() as b:
        job_id = a.create()
        assert b.status("GetJob", name="*") == NOTHING
        a.take()
        for verb in ("QueryJob", "FinishJob", "RetryJob", "FailJob", "CancelJob", "DeleteJob"):
            assert b.status(verb, jobID=job_id) == "404 No job with this jobID", verb
        assert b.status("UpdateJob", jobID=job_id, data={}) == "404 No job with this jobID"
        assert b.status("CreateJob", name="x", parentJobID=job_id) == "404 parentJobID does not exist"
        b.ok("RequeueJobs", jobIDs=job_id)
        assert b.ok("Query", query="select * from jobs") == []
        assert a.state(job_id) == "RUNNING"


def test_what_is_due_is_handed_out_from_then_on(client, clock):
    """Not before."""
    job_id = client.create(firstRun="2026-11-15 14:00:00")
    assert client.status("GetJob", name="foo") == NOTHING

    clock.advance(HOUR_MS)

    assert client.take()["jobID"] == job_id


def test_a_token_that_is_revoked_gets_no_job_it_has_waited_for(served):
    """The job is there for others."""
    secret = secret_of("worker", bytes(24))
    served.ask(c.CreateToken(token=Token(name="worker", scopes=(Scope.WORK,), hash=hash_of(secret))))
    guard = Guard(served.committer, always=True)
    served.server.guard = PortGuard(guard, tenant="", loopback=True)
    with served.client() as client:
        client.send(request("GetJob", name="foo", Connection="wait", token=secret))
        until(lambda: bool(served.committer._submitter._waiter._claims))
        served.ask(c.RevokeToken(name="worker"))
        guard._known.clear()
        (job_id,) = served.ask(c.Add(jobs=(c.NewJob(task="foo", data="{}"),)))

        assert client.receive().status == "401 Unauthorized"
    until(lambda: served.ask(q.GetJob(job_id=job_id)).place is Place.READY)
