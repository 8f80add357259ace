"""FinishJob, RetryJob, FailJob, UpdateJob, CancelJob, DeleteJob, RequeueJobs, QueryJob, Query: the rest."""

import pytest

from tests.queue_suite.tools import MINUTE_MS

NO_JOB = "404 No job with this jobID"
NOT_OUT = "405 Can only retry/finish RUNNING and RUNQUEUED jobs"
NOT_PAUSED = "405 Can only retry/finish child job when parent is PAUSED"
OUTSTANDING = "405 Failed to delete a job with outstanding children"
NO_OBJECT = "402 Data is not a valid JSON Object"
PRIORITY = "402 Invalid priority value"
BY_ID = ("QueryJob", "UpdateJob", "FinishJob", "RetryJob", "FailJob", "CancelJob", "DeleteJob")


def running(client, name="foo", **parameters):
    """A job that was handed out."""
    job_id = client.create(name, **parameters)
    assert client.take(name)["jobID"] == job_id
    return job_id


def shown(client, job_id):
    """What QueryJob tells of a job."""
    return client.ok("QueryJob", jobID=job_id)


@pytest.mark.parametrize("verb", BY_ID)
def test_a_job_is_named_by_its_number(client, verb):
    """In its plain form; one that nobody has is not found."""
    data = {"data": "{}"} if verb == "UpdateJob" else {}

    assert client.status(verb, **data) == "402 Missing jobID"
    for wrong in ("abc", "007", "1.5", "+1", "1e3", "9223372036854775808", "²"):
        assert client.status(verb, jobID=wrong, **data) == "402 Malformed jobID", wrong
    for unknown in ("0", "-1", "12345", "9223372036854775807", "-9223372036854775808"):
        assert client.status(verb, jobID=unknown, **data) == NO_JOB, unknown


def test_a_root_job_that_finished_is_gone(client):
    """Whatever the archive keeps."""
    job_id = running(client)
    client.ok("FinishJob", jobID=job_id, data={"a": 1})

    for verb in BY_ID:
        data = {"data": "{}"} if verb == "UpdateJob" else {}
        assert client.status(verb, jobID=job_id, **data) == NO_JOB, verb


# ── finish ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("repeat", "next_run"),
    [
        ("HOURLY", "2026-11-15 14:45:00"),
        ("daily", "2026-11-16 13:45:00"),
        ("WEEKLY", "2026-11-22 13:45:00"),
        ("SCHEDULED, +1 HOUR", "2026-11-15 14:00:00"),
        ("STARTED, +1 HOUR", "2026-11-15 14:15:00"),
        ("FINISHED, +1 HOUR", "2026-11-15 14:45:00"),
        ("FINISHED, +1 DAY, START OF DAY, +4 HOURS", "2026-11-16 04:00:00"),
        ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2026-11-16 06:00:00"),
    ],
)
def test_a_repeating_job_comes_again(client, clock, repeat, next_run):
    """The documents' example: due at one, started a quarter past, done after half an hour."""
    job_id = client.create(repeat=repeat)
    clock.advance(15 * MINUTE_MS)
    client.take()
    clock.advance(30 * MINUTE_MS)

    client.ok("FinishJob", jobID=job_id, data={"seen": 1})

    found = shown(client, job_id)
    assert (found["state"], found["nextRun"], found["data"]) == ("QUEUED", next_run, {"seen": 1})


@pytest.mark.parametrize(
    "parameters", [{"ignoreRepeat": "TRUE"}, {"ignoreRepeat": "1"}, {"data": {"delete": True}}], ids=str
)
def test_a_repeat_may_be_given_up(client, parameters):
    """By the finish; `ignoreRepeat: 0` does not."""
    job_id = running(client, repeat="HOURLY")
    client.ok("FinishJob", jobID=job_id, ignoreRepeat="0")
    client.ok("RequeueJobs", jobIDs=job_id)
    client.take()

    client.ok("FinishJob", jobID=job_id, **parameters)

    assert client.state(job_id) is None


@pytest.mark.parametrize("verb", ["FinishJob", "RetryJob"])
def test_the_checks_of_an_answer_come_in_order(client, verb):
    """There, out, its parent waits, mocked as the job is, and then what a retry has beside."""
    parent = running(client, "parent")
    child = client.create("child", parentJobID=parent)
    wrong = {"data": {"mockRequest": True}, "jobPriority": "7", "delay": "-1"}

    assert client.status(verb, jobID=child, data="[]") == NO_OBJECT
    assert client.status(verb, jobID="12345", **wrong) == NO_JOB
    assert client.status(verb, jobID=child, **wrong) == NOT_OUT
    client.ok("RequeueJobs", jobIDs=child)
    client.take("child")
    assert client.status(verb, jobID=child, **wrong) == NOT_PAUSED
    assert client.status(verb, jobID=child) == NOT_PAUSED
    client.ok("FinishJob", jobID=parent)
    assert client.status(verb, jobID=child, **wrong) == "500 Mock Mismatch"
    if verb == "RetryJob":
        del wrong["data"]
        assert client.status(verb, jobID=child, **wrong) == PRIORITY
        del wrong["jobPriority"]
        assert client.status(verb, jobID=child, **wrong).startswith("402 Must specify a non-negative delay")
    client.ok(verb, jobID=child)


def test_a_parent_is_not_finished_while_a_failed_child_is_there(client):
    """Nothing has changed; deleted, cancelled or requeued it is out of the way."""
    parent = running(client, "parent")
    bad, good = (client.create(name, parentJobID=parent) for name in ("bad", "good"))
    client.ok("FinishJob", jobID=parent)
    client.take("bad")
    client.ok("FailJob", jobID=bad)
    client.take("good")
    client.ok("FinishJob", jobID=good)
    client.take("parent")

    assert client.status("FinishJob", jobID=parent) == OUTSTANDING
    assert client.state(parent) == "RUNNING"
    client.ok("DeleteJob", jobID=bad)
    client.ok("FinishJob", jobID=parent)
    assert client.state(parent) is None


def test_a_repeating_parent_is_not_deleted_so_a_failed_child_is_no_hindrance(client):
    """It goes back to the queue."""
    parent = running(client, "parent", repeat="HOURLY")
    bad, good = (client.create(name, parentJobID=parent) for name in ("bad", "good"))
    client.ok("FinishJob", jobID=parent)
    client.take("bad")
    client.ok("FailJob", jobID=bad)
    client.take("good")
    client.ok("FinishJob", jobID=good)
    client.take("parent")

    client.ok("FinishJob", jobID=parent)

    assert client.state(parent) == "QUEUED"


def test_mocked_jobs_are_answered_in_any_state(client):
    """With data that say so, or without any."""
    mocked = client.create(mockRequest="1")

    assert client.status("FinishJob", jobID=mocked, data={"a": 1}) == "500 Mock Mismatch"
    client.ok("RetryJob", jobID=mocked, data={"a": 1, "mockRequest": True})
    assert shown(client, mocked)["data"] == {"a": 1, "mockRequest": True}
    client.ok("FinishJob", jobID=mocked)
    assert client.state(mocked) is None


@pytest.mark.parametrize("mocked", [True, False])
def test_a_child_is_mocked_as_its_parent_is(client, mocked):
    """Whatever the request says; parents of both kinds at once are refused."""
    extra = {"mockRequest": "1"} if mocked else {}
    parent = client.create("parent", **extra)
    client.take("parent", mockRequest="1")
    other = client.create("other", **({} if mocked else {"mockRequest": "1"}))
    client.take("other", mockRequest="1")

    child = client.create("child", parentJobID=parent, **({} if mocked else {"mockRequest": "1"}))

    assert ("mockRequest" in shown(client, child)["data"]) is mocked
    both = [{"name": "a", "parentJobID": parent}, {"name": "b", "parentJobID": other}]
    assert (
        client.status("CreateJobs", jobs=both)
        == "405 Parent and child jobs must have matching mockRequest setting"
    )


# ── retry ────────────────────────────────────────────────────────────────────────────────────────


def test_a_retried_job_is_back_in_the_queue(client):
    """At once, after a delay, or at a moment, which beats the delay; renamed and re-prioritised."""
    job_id = running(client)
    client.ok("RetryJob", jobID=job_id)
    client.take()
    client.ok("RetryJob", jobID=job_id, delay="90", data={"n": 1}, name="bar", jobPriority="1000")
    found = shown(client, job_id)
    assert (found["name"], found["priority"], found["data"]) == ("bar", 1000, {"n": 1})
    assert (found["state"], found["nextRun"]) == ("QUEUED", "2026-11-15 13:01:30")
    client.ok("RequeueJobs", jobIDs=job_id)
    client.take("bar")
    client.ok("RetryJob", jobID=job_id, delay="soon", nextRun="2026-12-24")
    assert shown(client, job_id)["nextRun"] == "2026-12-24 00:00:00"


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"delay": "-1"}, "402 Must specify a non-negative delay when retrying"),
        ({"delay": "123456789"}, "402 Malformed delay"),
        ({"delay": "soon"}, "402 Malformed delay"),
        ({"nextRun": "soon"}, "402 Malformed nextRun"),
        ({"jobPriority": "abc"}, PRIORITY),
        ({"name": "x" * 256}, "402 Malformed name"),
        ({"data": "[]"}, NO_OBJECT),
    ],
    ids=str,
)
def test_a_retry_that_is_not_right_is_refused(client, parameters, status):
    """And the job is out as it was."""
    job_id = running(client)

    assert client.status("RetryJob", jobID=job_id, **parameters) == status
    assert client.state(job_id) == "RUNNING"


def test_a_repeat_beats_the_time_of_a_retry(client):
    """Right or wrong; unless it is to be ignored."""
    job_id = running(client, repeat="FINISHED, +1 HOUR")
    client.ok("RetryJob", jobID=job_id, nextRun="2027-01-01", delay="-5")
    assert shown(client, job_id)["nextRun"] == "2026-11-15 14:00:00"
    client.ok("RequeueJobs", jobIDs=job_id)
    client.take()

    client.ok("RetryJob", jobID=job_id, delay="60", ignoreRepeat="true")

    assert shown(client, job_id)["nextRun"] == "2026-11-15 13:01:00"


# ── update, fail, requeue ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({}, "402 Missing data"),
        ({"data": ""}, "402 Missing data"),
        ({"data": "x" * (1024 * 1024 + 1)}, "402 Malformed data"),
        ({"data": "[]", "repeat": "never"}, NO_OBJECT),
        ({"data": "{}", "repeat": "never", "jobPriority": "7"}, "402 Malformed repeat"),
        ({"data": "{}", "jobPriority": "7", "nextRun": "soon"}, PRIORITY),
        ({"data": "{}", "nextRun": "soon"}, "402 Malformed nextRun"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_update_that_is_not_right_is_refused_in_order(client, parameters, status):
    """Before it is looked whether there is such a job."""
    assert client.status("UpdateJob", jobID="12345", **parameters) == status


def test_an_update_changes_what_it_names(client):
    """Data are replaced; the state stays."""
    job_id = client.create(data={"a": 1, "b": 2}, repeat="HOURLY")

    client.ok("UpdateJob", jobID=job_id, data={"c": 3}, jobPriority="0", nextRun="2027-01-01 00:00:00")
    found = shown(client, job_id)
    assert (found["data"], found["priority"], found["repeat"]) == ({"c": 3}, 0, "HOURLY")
    assert (found["nextRun"], found["state"]) == ("2027-01-01 00:00:00", "QUEUED")
    client.ok("UpdateJob", jobID=job_id, data={}, repeat="SCHEDULED, +1 DAY")
    found = shown(client, job_id)
    assert (found["nextRun"], found["repeat"]) == ("2027-01-02 00:00:00", "SCHEDULED, +1 DAY")
    client.ok("UpdateJob", jobID=job_id, data={}, repeat="DAILY", shouldClearRepeat="true")
    assert shown(client, job_id)["repeat"] == "DAILY"
    client.ok("UpdateJob", jobID=job_id, data={}, repeat="DAILY", shouldClearRepeat="1")
    assert shown(client, job_id)["repeat"] == ""


def test_an_update_moves_the_moment_of_a_job_that_is_out(client, clock):
    """Of one with a retryAfter, when it is handed out again."""
    job_id = running(client, retryAfter="+1 MINUTE")
    client.ok("UpdateJob", jobID=job_id, data={}, nextRun="2026-11-15 13:05:00")
    assert shown(client, job_id)["nextRun"] == "2026-11-15 13:05:00"
    clock.advance(4 * MINUTE_MS)
    assert client.status("GetJob", name="foo") == "404 No job found"

    clock.advance(MINUTE_MS)

    assert client.take()["jobID"] == job_id


def test_a_failed_job_has_the_data_of_its_failure(client):
    """And stays until somebody deals with it."""
    job_id = running(client)
    assert client.status("FailJob", jobID=job_id, data="word") == NO_OBJECT

    client.ok("FailJob", jobID=job_id, data={"why": "x"})

    assert (client.state(job_id), shown(client, job_id)["data"]) == ("FAILED", {"why": "x"})


# ── Query, and what is no command ────────────────────────────────────────────────────────────────


def test_query_answers_sql_over_the_jobs(client):
    """The documents' columns; others for who asks."""
    first = client.create("a", jobPriority="1000", retryAfter="+1 DAY", data={"n": 1})
    second = client.create("b", repeat="daily", data={"n": 2})
    client.take("a")

    def rows(query):
        return client.ok("Query", query=query)

    assert rows("select name, state, repeat from jobs order by name;") == [
        ["a", "RUNQUEUED", ""],
        ["b", "QUEUED", "daily"],
    ]
    assert rows("select * from jobs where name = 'b'")[0][1::6] == [second, {"n": 2}]
    assert rows("select name, priority, parentJobID, retryAfter from jobs where state = 'RUNQUEUED'") == [
        ["a", 1000, 0, "+1 DAY"]
    ]
    assert rows(f"select data from jobs where jobID = {first}") == [[{"n": 1, "retryAfterCount": 1}]]
    assert rows("select count(*), sum(data ->> 'n'), max(name) from jobs") == [[2, 3, "b"]]
    assert rows(
        "select a.name, b.name from jobs a join jobs b on a.jobID = b.jobID where b.name like 'A'"
    ) == [["a", "a"]]
    assert rows("select name from jobs where jobID = 'x' or name = 'nobody' or state = 'BAD'") == []
    # As SQLite compares: an id with text, and the other columns by the collation that is asked for.
    for value in (f"'{first}'", f"' {first} '", f"'{second}', '{first}', '', null, x'31'"):
        assert rows(f"select name from jobs where name <> 'b' and jobID in ({value})") == [["a"]]
    assert rows("select name from jobs where name = 'B' collate nocase") == [["b"]]
    assert rows("select count(*) from jobs where state = 'runqueued' collate nocase") == [[1]]
    assert rows("select 1, 2.5, null, 'x'") == [[1, 2.5, None, "x"]]


@pytest.mark.parametrize(
    "query",
    [
        "select * from sqlite_master",
        "delete from jobs",
        "create table t (x)",
        "attach 'other.db' as other",
        "pragma database_list",
        "select * from pragma_database_list",
        "select load_extension('x')",
        "select randomblob(1000000000)",
        "with recursive n(x) as (select 1 union all select x + 1 from n) select count(*) from n",
        "select * from nowhere",
        "not sql",
        "select '" + "x" * 2_000_000,
    ],
    ids=lambda query: query[:30],
)
def test_query_reaches_nothing_else(client, query):
    """It says why, and goes on."""
    reply = client.ask("Query", query=query)

    if len(query) > 1_000_000:
        assert reply.status == "402 Malformed query"
    else:
        assert (reply.status, reply.headers["error"] != "") == ("502 Query failed", True)
    assert client.ok("Query", query="select count(*) from jobs") == [[0]]


def test_query_needs_a_query(client):
    """An empty one is none."""
    assert client.status("Query") == "402 Missing query"
    assert client.ok("Query", query=";") == []


def test_the_other_commands(client):
    """Any case; a suffix as of HTTP; and what nobody knows."""
    assert client.say("ping\n\n").status == "200 OK"
    assert client.say("PING / HTTP/1.1\r\nHost: x\r\n\r\n").status == "200 OK"
    assert client.ok("Status")["state"] == "LEADING"
    assert client.say("CREATEJOB /x HTTP/1.0\nNAME: foo\n\n").status == "200 OK"
    assert client.say("CancelJob / HTTP/1.1\njobID: 12345\n\n").status == NO_JOB
    assert client.status("MakeCoffee") == "430 Unrecognized command"
