"""The paths of the serverless document, and handlers under /v1."""

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands.handler import set_handler
from holdfast.core import commands as c
from holdfast.core.access import Scope
from holdfast.core.handler import RunnerOptions
from holdfast.core.queries import GetData, GetJob
from holdfast.queue.handlers import new_handler


def test_the_documents_paths_are_served_as_written(served, client):
    """A handler is added, read and deleted; jobs are added by the line, and their ids come back in order."""
    body = b"function(payload, done) { done() }\n"
    made = client.post("/acme/handler/add/resize/add?method=node", body)

    assert made.status == 201, made
    assert made.json["type"] == "resize"
    assert (made.json["lang"], made.json["body"], made.json["version"]) == ("node", body.decode(), 1)
    assert client.get("/acme/handler/get/resize").json == made.json
    assert made.json.keys() >= {
        "id",
        "type",
        "dt",
        "lang",
        "eid",
        "before",
        "beforeEach",
        "body",
        "afterEach",
    }

    added = client.post("/acme/job/resize/add", b'{"a": 1}\nplain | text, with commas\n\n"last"')

    assert added.status == 201
    ids = [int(one) for one in added.json["ids"]]
    jobs = [served.connection.ask(GetJob(job_id=one)) for one in ids]
    assert [(job.tenant, job.task) for job in jobs] == [("acme", "resize")] * 3
    data = [served.connection.ask(GetData(job_id=one)) for one in ids]
    assert data == ['{"a": 1}', b"plain | text, with commas", '"last"']

    for method in ("POST", "DELETE"):
        assert client.ask(method, "/acme/handler/del/resize/delete").status == 204
        assert client.get("/acme/handler/get/resize").status == 404
        assert client.ask(method, "/acme/handler/del/resize/delete").status == 404
        client.post("/acme/handler/add/resize/add?method=node", body)


def test_all_parts_of_a_handler_go_in_the_query(client):
    """Under the document's names, as in the reply."""
    path = "/acme/handler/add/t/add?method=http&eid=e&before=x&beforeEach=y&afterEach=z"

    made = client.post(f"{path}&batch=true&batchSize=20&timeoutMs=5000", b"http://localhost/").json

    assert (made["eid"], made["before"], made["beforeEach"], made["afterEach"]) == ("e", "x", "y", "z")
    assert made["options"] == {"batch": True, "batchSize": 20, "timeoutMs": 5000}


def test_every_door_takes_the_options_of_a_handler_by_the_names_in_the_documentation(client):
    """Those of the table of limits: in Python, on the command line, and over HTTP."""
    page = (Path(__file__).parents[2] / "docs/serverless.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE)
    values: Any = {name: True if name == "batch" else 1 for name, *_ in rows}
    text, body = {ours: values[name] for name, ours, _ in rows}, "http://localhost/"

    made = new_handler("t", body, "http", values, tenant="")
    kept = client.ok("PUT", "/v1/handlers/t", {"lang": "http", "body": body, "options": text})
    path = "&".join(f"{theirs}={str(values[name]).lower()}" for name, _, theirs in rows)
    shown = client.post(f"/acme/handler/add/t/add?method=http&{path}", body.encode()).json

    assert len(rows) == len(RunnerOptions.__struct_fields__)
    assert all(getattr(made.options, ours) for _, ours, _ in rows)
    assert kept["options"] == text
    assert shown["options"] == {theirs: values[name] for name, _, theirs in rows}
    assert values.keys() <= {one.name for one in set_handler.params}


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/acme/handler/add/t/add", b"x", "lang and body required"),
        ("/acme/handler/add/t/add?method=node", b"", "lang and body required"),
        ("/acme/handler/add/t/add?method=node", b"\xff", "UTF-8"),
        ("/acme/handler/add/t/add?method=node&speed=1", b"x", "speed"),
        ("/acme/handler/add/t/add?method=node&batchSize=many", b"x", "options"),
        ("/a-b/job/t/add", b"x", "without - , | and newline"),
        ("/acme/job/a,b/add", b"x", "without , | and newline"),
        ("/acme/job/a%7Cb/add", b"x", "without , | and newline"),
        ("/acme/job/a%0Ab/add", b"x", "control characters"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(client, path, body, text):
    """400, and the detail names it."""
    reply = client.post(path, body)

    assert (reply.status, reply.json["code"]) == (400, "BAD_INPUT")
    assert text in reply.json["detail"]


def test_a_token_is_kept_to_its_tenant_and_scope(serve):
    """To upload code needs the scope for it, to add jobs another; neither leads to another tenant."""
    guarded = serve(token_always=True)
    with (
        guarded.client(guarded.token("code", Scope.HANDLERS, tenant="acme")) as code,
        guarded.client(guarded.token("jobs", Scope.ADD, tenant="acme")) as jobs,
        guarded.client(guarded.token("look", Scope.READ, tenant="acme")) as look,
    ):
        add, put = "/{}/job/t/add", "/{}/handler/add/t/add?method=shell"
        assert code.post(put.format("acme"), b"true").status == 201
        assert jobs.post(add.format("acme"), b"1").status == 201
        for client, path in ((jobs, put), (code, add)):
            assert client.post(path.format("acme"), b"true").status == 403
        for client, path in ((code, put), (jobs, add)):
            assert client.post(path.format("other"), b"true").status == 403
        assert jobs.get("/acme/handler/get/t").status == 403
        assert look.get("/acme/handler/get/t").status == 403
        (listed,) = look.get("/v1/handlers").json["handlers"]
        assert (listed["task"], listed["body"]) == ("t", "")


def test_handlers_under_v1(client):
    """Set, read, listed with their versions, rolled back and deleted."""
    path = "/v1/handlers/resize"
    first = client.ask("PUT", f"{path}", {"tenant": "a", "lang": "python", "body": "one"})
    second = client.ask(
        "PUT", path, {"tenant": "a", "lang": "python", "body": "two", "options": {"cpu_ms": 50}}
    )

    assert (first.status, second.status) == (200, 200)
    assert (first.json["version"], second.json["version"]) == (1, 2)
    assert client.get(f"{path}?tenant=a").json == second.json
    assert client.get(f"{path}?tenant=a&version=1").json == first.json
    assert client.get(path).status == 404
    found = client.get(f"{path}/versions?tenant=a").json["versions"]
    assert [(one["version"], one["body"]) for one in found] == [(2, ""), (1, "")]
    back = client.post(f"{path}/rollback", {"tenant": "a"}).json
    assert (back["version"], back["restores"], back["body"]) == (3, 1, "one")
    assert [one["task"] for one in client.get("/v1/handlers?tenant=a").json["handlers"]] == ["resize"]
    assert client.ask("DELETE", f"{path}?tenant=a").status == 204
    assert client.get("/v1/handlers?tenant=a").json == {"handlers": []}
    assert client.ask("PUT", path, {"lang": "python"}).status == 400


def test_jobs_of_a_posted_body_are_one_batch(served, client):
    """Thousands of lines are added at once, in their order."""
    ids = client.post("/acme/job/t/add", b"\n".join(b"%d" % n for n in range(3_000))).json["ids"]

    found = served.connection.ask(c.Claim(tasks=("t",), limit=1_000, lease_ms=60_000))
    assert [one.data for one in found] == [str(n) for n in range(1_000)]
    assert [str(one.job.id) for one in found] == ids[:1_000]
