"""CreateJob and CreateJobs: every parameter, every refusal, and their order."""

import json

import pytest

from holdfast.core import commands as c

NO_OBJECT = "402 Data is not a valid JSON Object"
PRIORITY = "402 Invalid priority value"
GONE = "404 parentJobID does not exist"
STATE = "405 Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED"
OTHER_PARENT = "404 Trying to create a child that already exists, but it is tied to a different parent"
GRANDCHILD = "405 Cannot create grandchildren"


def shown(client, job_id):
    """What QueryJob tells of a job."""
    return client.ok("QueryJob", jobID=job_id)


def test_a_job_is_as_it_was_asked_for(client):
    """Every parameter is there again."""
    job_id = client.create(
        "www-prod/Task?id=1",
        data={"a": [1, 2.5, None, 'é\n\t\\"/']},
        jobPriority="1000",
        firstRun="2027-01-02 03:04:05",
        repeat="SCHEDULED, +1 DAY, START OF DAY",
    )

    assert shown(client, job_id) == {
        "created": "2026-11-15 13:00:00",
        "jobID": job_id,
        "state": "QUEUED",
        "name": "www-prod/Task?id=1",
        "nextRun": "2027-01-02 03:04:05",
        "lastRun": "",
        "repeat": "SCHEDULED, +1 DAY, START OF DAY",
        "data": {"a": [1, 2.5, None, 'é\n\t\\"/']},
        "retryAfter": "",
        "priority": 1000,
    }


def test_data_are_kept_to_the_letter_also_beside_what_the_port_tells_in_them(client):
    """Numbers that are read and written would be others, in the end."""
    client.create(data='{ "a":1.10, "retryAfterCount":3, "n":123456789012345678901234567890, "s":"\\u00e9" }')

    reply = client.ask("GetJob", name="foo")

    assert b'"data":{"a":1.10,"n":123456789012345678901234567890,"s":"\\u00e9"}' in reply.body


def test_what_is_not_said_is_usual(client, clock):
    """Priority 500, due now to the millisecond, no data, no repeat."""
    clock.advance(250)
    found = shown(client, client.create("123"))

    assert (found["name"], found["priority"], found["data"], found["repeat"]) == ("123", 500, {}, "")
    assert (found["created"], found["nextRun"]) == ("2026-11-15 13:00:00", "2026-11-15 13:00:00.250")


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({}, "402 Missing name"),
        ({"name": ""}, "402 Missing name"),
        ({"name": "x" * 256}, "402 Malformed name"),
        ({"name": "é" * 128}, "402 Malformed name"),
        ({"name": "a\nb"}, "402 Malformed name"),
        ({"name": "x", "jobPriority": "abc"}, PRIORITY),
        ({"name": "x", "jobPriority": "250"}, PRIORITY),
        ({"name": "x", "jobPriority": "0500"}, PRIORITY),
        ({"name": "x", "jobPriority": "-1"}, PRIORITY),
        ({"name": "x", "priority": "7"}, PRIORITY),
        *(
            ({"name": "x", "data": data}, NO_OBJECT)
            for data in ("", "[]", "word", "1", "null", '{"a":1', "{'a':1}", '{"a":1} x', '{"a":NaN}')
        ),
        *(
            ({"name": "x", "retryAfter": text}, "402 Malformed retryAfter")
            for text in (
                "1 DAY",
                "+1 WEEK",
                "HOURLY",
                "START OF HOUR",
                "+1 DAY, +1 HOUR",
                "-1 DAY",
                "+1  DAY",
            )
        ),
        *(
            ({"name": "x", "repeat": text}, "402 Malformed repeat")
            for text in ("FINISHED", "FINISHED , +1 HOUR", "FINISHED, 1 HOUR", "NEVER", "FINISHED, +1 WEEK")
        ),
        *(
            ({"name": "x", "firstRun": text}, "402 Malformed firstRun")
            for text in ("soon", "2026-13-01", "2026-02-30", "2026-1-1", "9999-01-01", "2026-01-01 25:00:00")
        ),
        ({"name": "x", "timeout": "soon"}, "402 Malformed timeout"),
        (
            {"name": "x", "retryAfter": "+1 DAY", "repeat": "HOURLY"},
            "402 retryAfter cannot be combined with repeat",
        ),
        (
            {"name": "x", "retryAfter": "+1 DAY", "unique": "true"},
            "402 retryAfter cannot be combined with unique",
        ),
        ({"name": "x", "parentJobID": "12345"}, GONE),
        ({"name": "x", "parentJobID": "-5"}, GONE),
    ],
    ids=str,
)
def test_what_is_not_right_is_refused(client, parameters, status):
    """In the documents' words, and nothing is made."""
    reply = client.ask("CreateJob", **parameters)

    assert (reply.status, reply.body) == (status, b"")
    assert client.ok("Query", query="select count(*) from jobs") == [[0]]


@pytest.mark.parametrize(
    "parameters",
    [
        {"name": "x" * 255},
        {"name": "é" * 127},
        {"name": "a,b c"},
        {"data": "{ }"},
        {"data": ' {"a" : {"b":[]}} '},
        {"repeat": "hourly"},
        {"repeat": "finished,+1 second,   weekday 0, start of hour"},
        {"retryAfter": "+99999999 seconds"},
        {"retryAfter": "+0 SECOND"},
        {"retryAfter": "weekday 1"},
        {"firstRun": "2020-01-01"},
        {"firstRun": "1969-01-01"},
        {"firstRun": ""},
        {"jobPriority": ""},
        {"parentJobID": "0"},
        {"parentJobID": "none"},
        {"priority": "1000"},
        {"unique": "false", "retryAfter": "+1 DAY"},
    ],
    ids=str,
)
def test_what_is_right_is_taken(client, parameters):
    """And can be fetched."""
    job_id = client.create(**{"name": "foo", **parameters})

    assert client.ok("GetJob", name="*")["jobID"] == job_id


def test_the_checks_come_in_the_documents_order(client):
    """Each refusal is the first of those that still stand."""
    idle = client.create("idle")
    parent = client.create("parent")
    client.take("parent")
    child = client.create("only", parentJobID=parent)
    other = client.create("other parent")
    client.take("other parent")
    wrong = {
        "jobPriority": "7",
        "data": "[]",
        "retryAfter": "soon",
        "parentJobID": "12345",
        "unique": "true",
        "repeat": "never",
    }

    assert client.status("CreateJob", **wrong) == "402 Missing name"
    wrong["name"] = "only"
    assert client.status("CreateJob", **wrong) == PRIORITY
    wrong["jobPriority"] = "500"
    assert client.status("CreateJob", **wrong) == NO_OBJECT
    wrong["data"] = '{"a":1}'
    assert client.status("CreateJob", **wrong) == "402 Malformed retryAfter"
    wrong["retryAfter"] = ""
    assert client.status("CreateJob", **wrong) == GONE
    wrong["parentJobID"] = str(idle)
    assert client.status("CreateJob", **wrong) == STATE
    wrong["parentJobID"] = str(other)
    assert client.status("CreateJob", **wrong) == OTHER_PARENT
    wrong["parentJobID"] = str(parent)
    assert client.status("CreateJob", **wrong) == "402 Malformed repeat"
    # A unique job that is there with just these data is found before its repeat is looked at.
    wrong["data"] = "{}"
    assert client.ok("CreateJob", **wrong) == {"jobID": child}
    wrong |= {"data": '{"a":1}', "repeat": ""}
    del wrong["jobPriority"]
    assert client.status("CreateJob", **wrong, priority="7") == PRIORITY
    assert client.ok("CreateJob", **wrong) == {"jobID": child}
    client.ok("FinishJob", jobID=parent)
    client.take("only")
    assert client.status("CreateJob", name="x", parentJobID=child, repeat="never") == "402 Malformed repeat"
    assert client.status("CreateJob", name="x", parentJobID=child) == GRANDCHILD


# ── unique ───────────────────────────────────────────────────────────────────────────────────────


def test_a_unique_job_is_made_once_and_brought_up_to_date(client):
    """Data merge; repeat and priority change where they are given, and stay where not."""
    job_id = client.create(unique="true", data={"a": {"b": 1}, "c": 2}, repeat="HOURLY", jobPriority="0")

    assert client.create(unique="true", data={"a": {"d": 3}, "c": None}) == job_id
    found = shown(client, job_id)
    assert (found["data"], found["repeat"], found["priority"]) == ({"a": {"b": 1, "d": 3}}, "HOURLY", 0)
    assert client.create(unique="true", data={"e": 1}, repeat="daily", jobPriority="1000") == job_id
    found = shown(client, job_id)
    assert (found["repeat"], found["priority"], found["data"]["e"]) == ("daily", 1000, 1)


def test_a_unique_job_with_the_same_data_is_left_alone(client):
    """Not even its priority changes; with other data that change nothing in it, that does."""
    job_id = client.create(unique="true", data={"a": 1, "b": 2})

    client.create(unique="true", data={"b": 2, "a": 1}, jobPriority="1000")
    assert shown(client, job_id)["priority"] == 500
    client.create(unique="true", data={"a": 1}, jobPriority="1000")
    assert (shown(client, job_id)["priority"], shown(client, job_id)["data"]) == (1000, {"a": 1, "b": 2})


def test_a_unique_job_is_not_overwritten_where_told_so(client):
    """Its number is told all the same."""
    job_id = client.create(unique="true", data={"a": 1})

    assert client.create(unique="true", data={"a": 2}, overwrite="false") == job_id
    assert shown(client, job_id)["data"] == {"a": 1}
    assert client.create(unique="true", data={"a": 2}, overwrite="true") == job_id
    assert shown(client, job_id)["data"] == {"a": 2}


@pytest.mark.parametrize("state", ["QUEUED", "SCHEDULED", "RUNNING", "FAILED"])
def test_a_unique_job_is_any_job_of_that_name(client, state):
    """Made as unique or not, in whichever state; only what is over is not there any more."""
    job_id = client.create(**({"firstRun": "2027-01-01"} if state == "SCHEDULED" else {}))
    if state in ("RUNNING", "FAILED"):
        client.take()
    if state == "FAILED":
        client.ok("FailJob", jobID=job_id)

    assert client.create(unique="true", data={"a": 1}) == job_id
    if state == "RUNNING":
        client.ok("FinishJob", jobID=job_id)
    else:
        client.ok("DeleteJob", jobID=job_id)
    assert client.create(unique="true") != job_id


def test_a_job_added_elsewhere_is_the_one_of_its_name(client, served):
    """And its number, here a number and elsewhere text, is the same."""
    (job_id,) = served.ask(c.Add(jobs=(c.NewJob(task="foo", data='{"a":1}'),)))

    assert client.create(unique="true", data={"b": 2}) == job_id
    assert client.take()["data"] == {"a": 1, "b": 2}


# ── many ─────────────────────────────────────────────────────────────────────────────────────────


def test_many_jobs_are_made_in_order(client):
    """Keys in any case; data as an object or as text; two of one unique name are one."""
    jobs = [
        {"name": "a", "data": {"n": 1}},
        {"NAME": "b", "Data": '{"n":2}', "jobPriority": 1000},
        {"name": "u", "unique": True},
        {"name": "u", "unique": "true"},
        {"name": "p"},
        {"name": "p", "unique": True},
    ]

    ids = client.ok("CreateJobs", jobs=jobs)["jobIDs"]

    assert len(ids) == 6
    assert (ids[2], ids[4]) == (ids[3], ids[5])
    assert [shown(client, job_id)["name"] for job_id in ids] == ["a", "b", "u", "u", "p", "p"]
    assert [shown(client, job_id)["data"] for job_id in ids[:2]] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    ("jobs", "status"),
    [
        (None, "401 Invalid JSON"),
        ("", "401 Invalid JSON"),
        ("{}", "401 Invalid JSON"),
        ("[]", "401 Invalid JSON"),
        ("[{}]", "401 Invalid JSON"),
        ("[1]", "401 Invalid JSON"),
        ('[{"name":"x"}] x', "401 Invalid JSON"),
        ('[{"name":"x"}, {"rename":1}]', "402 Missing name"),
        ('[{"name":"x"}, {"name":null}]', "402 Missing name"),
        ('[{"name":"x"}, {"name":"y", "data":null}]', NO_OBJECT),
        ('[{"name":"x"}, {"name":"y", "data":[]}]', NO_OBJECT),
        ('[{"name":"x"}, {"name":"y", "data":{"a":1e400}}]', NO_OBJECT),
        ('[{"name":"x"}, {"name":"y", "jobPriority":null}]', PRIORITY),
        ('[{"name":"x"}, {"name":"y", "repeat":null}]', "402 Malformed repeat"),
        ('[{"name":"x"}, {"name":"y", "retryAfter":null}]', "402 Malformed retryAfter"),
        ('[{"name":"x"}, {"name":"y", "firstRun":null}]', "402 Malformed firstRun"),
        ('[{"name":"x"}, {"name":"y", "parentJobID":12345}]', GONE),
        (json.dumps([{"name": "x"}, {"name": "y" * 256}]), "402 Malformed name"),
    ],
    ids=str,
)
def test_many_jobs_are_made_all_or_none(client, jobs, status):
    """One that is wrong takes the others with it."""
    assert client.status("CreateJobs", **({} if jobs is None else {"jobs": jobs})) == status
    assert client.ok("Query", query="select count(*) from jobs") == [[0]]
