"""The sample session of the documents, as typed there, on every store."""

import json
import re

from tests.queue_suite.tools import MINUTE_MS

# What is typed, and what is printed: status lines as they are, bodies with at least what stands here. The
# number of the job, 1 there, is whichever the first reply tells.
SESSION = [
    (
        'CreateJob\nname: foo\ndata: {"value":1}\nrepeat: finished, +1 minute\n\n',
        "200 OK",
        {"jobID": 1},
    ),
    ("GetJob\nname: foo\n\n", "200 OK", {"data": {"value": 1}, "jobID": 1, "name": "foo"}),
    ('UpdateJob\njobID: 1\ndata: {"value":2}\n\n', "200 OK", None),
    (
        "QueryJob\njobID: 1\n\n",
        "200 OK",
        {"data": {"value": 2}, "jobID": 1, "name": "foo", "state": "RUNNING"},
    ),
    ('FinishJob\njobID: 1\ndata: {"value":3}\n\n', "200 OK", None),
    ("GetJob\nname: foo\n\n", "404 No job found", None),
    (
        "Query\nquery: select * from jobs;\n\n",
        "200 OK",
        [
            [
                "2026-11-15 13:00:00",
                1,
                "QUEUED",
                "foo",
                "2026-11-15 13:01:00",
                "2026-11-15 13:00:00",
                "finished, +1 minute",
                {"value": 3},
            ]
        ],
    ),
]
AFTER_A_MINUTE = (
    "GetJob\nname: foo\n\n",
    "200 OK",
    {"data": {"value": 3}, "jobID": 1, "name": "foo"},
)


def test_the_sample_session_goes_as_the_documents_print_it(client, clock):
    """With what is typed byte for byte, but for the number of the job."""
    job_id = _said(client, *SESSION[0], 1)
    for step in SESSION[1:]:
        _said(client, *step, job_id)

    clock.advance(MINUTE_MS)

    _said(client, *AFTER_A_MINUTE, job_id)


def _said(client, typed, status, printed, job_id):
    reply = client.say(re.sub("jobID: 1$", f"jobID: {job_id}", typed, flags=re.MULTILINE))
    assert reply.status == status
    assert reply.headers["Content-Length"] == str(len(reply.body))
    if printed is None:
        assert reply.body == b""
        return job_id
    found = reply.json
    if typed.startswith("CreateJob"):
        job_id = found["jobID"]
    expected = json.loads(json.dumps(printed))
    if isinstance(expected, list):
        expected[0][1] = job_id
        assert found == expected
    else:
        expected["jobID"] = job_id
        assert {key: found[key] for key in expected} == expected
        assert list(found) == sorted(found, key=str.lower)
    return job_id


def test_the_whole_session_may_be_sent_at_once(client):
    """Requests in one piece are answered one after the other, in order."""
    typed = "".join(step[0] for step in SESSION if "jobID" not in step[0])
    client.send(typed.encode())

    assert [client.receive().status for _ in range(4)] == ["200 OK", "200 OK", "404 No job found", "200 OK"]


def test_a_session_may_come_byte_by_byte(client):
    """However it is cut."""
    for byte in b"CreateJob\r\nname: foo\r\n\r\n":
        client.send(bytes([byte]))

    assert client.receive().status == "200 OK"
