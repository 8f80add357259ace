"""The paths of the documents: Jobber's example word by word, and Walrus's schedule."""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import NotFound, Unavailable
from holdfast.core.ids import MAX_ID
from holdfast.core.queries import GetData, GetJob
from holdfast.serve.http.documents import id_of, uuid_of

ROOT = Path(__file__).parents[2]


@pytest.mark.stores
def test_the_documents_example_is_served_word_by_word(served, client):
    """A type and a free-form payload: 201, and a uuid that leads back to the job."""
    body = b'{\n    "type": "job-type",\n    "payload": { "free": ["form", {"json": null}] }\n}'

    reply = client.post("/jobber/queue", body)

    assert (reply.status, reply.headers["content-type"]) == (201, "application/json")
    assert reply.json.keys() == {"job-id"}
    job_id = id_of(reply.json["job-id"])
    assert uuid.UUID(reply.json["job-id"]).version == 8
    job = served.connection.ask(GetJob(job_id=job_id))
    assert job.task == "job-type"
    assert served.connection.ask(GetData(job_id=job_id)) == '{"free":["form",{"json":null}]}'


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (b'{"type":"  mail \\t","payload":{"a":1}}', '{"a":1}'),
        (b'{"type":"mail"}', "null"),
        (b'{"type":"mail","payload":null}', "null"),
        (b'{"type":"mail","payload":"text"}', '"text"'),
        (b'{"type":"mail","payload":[1,2.5,true]}', "[1,2.5,true]"),
        (b'{"type":"mail","payload":1,"more":2}', "1"),
    ],
)
def test_any_json_is_a_payload(served, client, body, data):
    """A missing one is null; the type is trimmed of blanks; jobs are taken in their order."""
    first, second = client.post("/jobber/queue", body), client.post("/jobber/queue", body)

    found = served.connection.ask(c.Claim(tasks=("mail",), limit=9))
    assert [one.data for one in found] == [data, data]
    assert [uuid_of(one.job.id) for one in found] == [first.json["job-id"], second.json["job-id"]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{}",
        b'{"type":""}',
        b'{"type":" "}',
        b'{"type":5}',
        b'{"payload":{}}',
        b"\xff",
    ],
)
def test_a_body_that_is_wrong_is_told_so(client, body):
    """In the original's words."""
    reply = client.post("/jobber/queue", body)

    assert (reply.status, reply.json["detail"]) == (400, "body not in the right format")


def test_a_store_that_fails_is_a_500_without_its_address(served, client, monkeypatch, caplog):
    """The status of the original; the cause is in the log, by the number of the incident."""

    def away(_commands, _done):
        raise Unavailable("cannot reach redis://10.9.8.7/0")

    monkeypatch.setattr(served.connection.engine, "execute", away)
    reply = client.post("/jobber/queue", {"type": "t"})

    assert reply.status == 500
    assert "the store is unavailable; try again (incident " in reply.json["detail"]
    assert "10.9.8.7" not in reply.body.decode()
    assert "10.9.8.7" in caplog.text


@pytest.mark.parametrize("job_id", [1, 5, (1 << 62) - 1, 1 << 62, MAX_ID])
def test_a_uuid_is_an_id_in_another_form(job_id):
    """There and back, for every id."""
    assert id_of(uuid_of(job_id)) == job_id
    assert id_of(str(job_id)) == job_id
    assert uuid.UUID(uuid_of(job_id)).variant == uuid.RFC_4122


@pytest.mark.parametrize(
    "text", ["", "x", str(uuid.UUID(int=5)), str(uuid.UUID(int=(1 << 128) - 1)), "9" * 30, "-1"]
)
def test_other_uuids_are_no_jobs(text):
    """Also those of other makers."""
    with pytest.raises(NotFound):
        id_of(text)


@pytest.mark.stores
def test_a_job_is_scheduled_changed_and_removed(served, client):
    """Walrus's paths; a change and a removal are done, where the original left them without effect."""
    made = client.post("/schedule/", {"job_type": "mail", "payload": {"a": 1}, "run_after_secs": 60})
    job_id = int(made.json["job_id"])
    job = served.connection.ask(GetJob(job_id=job_id))

    assert made.status == 201
    assert job.run_at - job.created_at == 60_000
    assert client.ask("PUT", f"/schedule/{job_id}", {"payload": {"a": 2}}).status == 204
    assert served.connection.ask(GetData(job_id=job_id)) == '{"a":2}'
    assert client.ask("DELETE", f"/schedule/{job_id}").status == 204
    assert client.ask("DELETE", f"/schedule/{job_id}").status == 404
    assert client.ask("PUT", f"/schedule/{job_id}", {"payload": 1}).status == 404

    now = int(client.post("/schedule/", {"job_type": "mail"}).json["job_id"])
    (claimed,) = served.connection.ask(c.Claim(tasks=("mail",)))
    assert (claimed.job.id, claimed.data) == (now, "null")


def test_a_schedule_without_a_type_is_refused_as_in_the_original(client):
    """With its status and its words; a time that is none is the client's mistake."""
    for body in ({}, {"job_type": ""}, {"job_type": " "}, {"payload": 1}):
        reply = client.post("/schedule/", body)
        assert (reply.status, reply.json["detail"]) == (500, "JobType cannot be empty")
    for after in (-1, "soon", None, True, 1e300):
        assert client.post("/schedule/", {"job_type": "t", "run_after_secs": after}).status == 400


def test_the_walk_with_curl_runs(tmp_path):
    """examples/http.sh, as the README shows it: a server, and nothing but curl."""
    if shutil.which("curl") is None:
        pytest.skip("NOT TRIED WITH CURL: it is not installed")
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    }
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "http.sh")],
        cwd=tmp_path,
        env=environment | {"PORT": "18081"},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert re.search(r'"job-id":"[0-9a-f-]{36}"', said)
    assert '"result":{"width": 200}' in said
    assert '"state":"FINISHED"' in said


def test_the_example_of_the_readme_runs(served):
    """Its lines of curl as they stand there, with the ids that the replies bring."""
    if shutil.which("curl") is None:
        pytest.skip("NOT TRIED WITH CURL: it is not installed")
    block = re.search(
        r"```sh\nholdfast serve --http [^\n]*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block
    known = {"localhost:8080": f"localhost:{served.address[1]}"}
    replies = []
    for line in block[1].splitlines():
        for word, value in known.items():
            line = line.replace(word, value)  # noqa: PLW2901 - the line, filled in
        done = subprocess.run(["sh", "-c", f"{line} -sS"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        replies.append(json.loads(done.stdout))
        if "jobs" in replies[-1]:
            job = replies[-1]["jobs"][0]["job"]
            known |= {"ID": job["id"], "OWNER": str(job["owner"]), "CLAIM": str(job["claim"])}

    assert [sorted(reply) for reply in replies[:2]] == [["id"], ["jobs"]]
    assert replies[2]["state"] == "FINISHED"
    assert replies[3]["result"] == "200 x 133"
