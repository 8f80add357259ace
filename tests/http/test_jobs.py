"""Jobs over HTTP: added, looked at, claimed, answered, waited for; pages, many at once, and once only."""

import json
import threading
import time
from http.client import IncompleteRead

import pytest

from holdfast.core import commands as c
from holdfast.core.job import Code
from holdfast.serve.http import jobs
from tests.http.served import lines_of
from tests.queue_suite.tools import until


@pytest.mark.stores
def test_a_job_is_added_claimed_and_finished(client):
    """Ids are text; data and results are JSON; the claim is what its holder answers by."""
    added = client.post("/v1/jobs", {"task": "resize", "data": {"path": "a.png", "n": 1.50}, "priority": 900})
    job_id = added.json["id"]
    assert (added.status, added.headers["location"]) == (201, f"/v1/jobs/{job_id}")

    (one,) = client.ok("POST", "/v1/claims", {"tasks": ["resize"], "lease_ms": 60_000})["jobs"]
    assert one["data"] == {"path": "a.png", "n": 1.5}
    assert (one["job"]["id"], one["job"]["state"], one["job"]["priority"]) == (job_id, "RUNNING", 900)
    hold = {"owner": one["job"]["owner"], "claim": one["job"]["claim"]}
    client.ok("POST", f"/v1/jobs/{job_id}/progress", hold | {"fraction": 0.5, "note": "half"})
    client.ok("POST", f"/v1/jobs/{job_id}/log", hold | {"lines": ["a line"]})
    client.ok("POST", f"/v1/jobs/{job_id}/steps", hold | {"name": "first", "result": {"size": [1, 2.50]}})
    client.ok("POST", f"/v1/jobs/{job_id}/extend", hold | {"lease_ms": 90_000})
    assert client.ok("GET", f"/v1/jobs/{job_id}/steps")["steps"][0]["result"] == {"size": [1, 2.5]}
    done = client.ok("POST", f"/v1/jobs/{job_id}/answer", hold | {"result": {"width": 200}})

    assert done["state"] == "FINISHED"
    ended = client.ok("GET", f"/v1/jobs/{job_id}/result?wait=5")
    assert (ended["result"], ended["job"]["state"]) == ({"width": 200}, "FINISHED")
    assert client.ok("GET", f"/v1/jobs/{job_id}/log")["lines"][0]["text"] == "a line"
    late = client.post(f"/v1/jobs/{job_id}/answer", hold)
    assert (late.status, late.json["code"]) == (409, "LEASE_LOST")


def test_the_error_for_an_unknown_field_tells_the_known_ones(client):
    """A word that is nearly right, one that is not, and one in a query."""
    near = client.post("/v1/jobs", {"task": "a", "prioritty": 5})
    far = client.ask("PUT", "/v1/retention", {"days": 5})
    query = client.get("/v1/jobs?stat=RUNNING")

    assert [one.status for one in (near, far, query)] == [400, 400, 400]
    assert near.json["detail"].endswith("unknown field `prioritty`; did you mean `priority`?")
    assert far.json["detail"].endswith("unknown field `days`; the fields are retention_ms")
    assert query.json["detail"].endswith("unknown field `stat`; did you mean `state`?")


def test_follow_up_jobs_that_are_nested_too_deeply_are_refused(client):
    """As any other request that is wrong."""
    body = '{"task": "t", "data": 1}'
    for _ in range(600):
        body = f'{{"task": "t", "data": 1, "then": {body}}}'

    reply = client.ask("POST", "/v1/jobs", body.encode(), {"Content-Type": "application/json"})

    assert (reply.status, reply.json["code"]) == (400, "BAD_INPUT")


def test_data_is_kept_as_it_was_sent(client):
    """Byte by byte, numbers of any length too; bytes go as base64; null is a value."""
    sent = b'{"task":"t","data":{"n":12345678901234567890.10,"t":"\\u00e4"}}'
    job_id = client.post("/v1/jobs", sent).json["id"]
    assert client.get(f"/v1/jobs/{job_id}/data").body == b'{"n":12345678901234567890.10,"t":"\\u00e4"}'

    job_id = client.post("/v1/jobs", {"task": "t", "data_base64": "AP8="}).json["id"]
    found = client.get(f"/v1/jobs/{job_id}/data")
    assert (found.body, found.headers["content-type"]) == (b"\x00\xff", "application/octet-stream")
    job_id = client.post("/v1/jobs", {"task": "t", "data": None}).json["id"]
    assert client.get(f"/v1/jobs/{job_id}/data").body == b"null"
    claimed = client.ok("POST", "/v1/claims", {"limit": 9})["jobs"]
    assert [one.get("data_base64") for one in claimed] == [None, "AP8=", None]


def test_data_that_is_no_utf_8_is_refused(client):
    """Of one job, and of a line among many."""
    sent = b'{"task":"t","data":"\xff"}'
    many = {"Content-Type": "application/x-ndjson"}
    replies = [
        client.post("/v1/jobs", sent),
        client.ask("POST", "/v1/jobs", b'{"task":"t"}\n' + sent, many),
        client.post("/v1/commands/Add", b'{"jobs":[' + sent + b"]}"),
    ]

    assert [(reply.status, reply.json["code"]) for reply in replies] == [(400, "BAD_INPUT")] * 3
    assert "line 2" in replies[1].json["detail"]


def test_options_that_are_named_are_not_replaced_by_the_tasks_defaults(served, client):
    """Naming one is what counts, also where it is the default."""
    named = client.post("/v1/jobs", {"task": "t", "max_attempts": 10}).json["id"]
    silent = client.post("/v1/jobs", {"task": "t"}).json["id"]

    ask = served.connection.ask
    from holdfast.core.queries import GetJob

    assert ask(GetJob(job_id=int(named))).given == ("attempts",)
    assert ask(GetJob(job_id=int(silent))).given == ()


def test_jobs_that_differ_in_their_data_alone_have_the_same_options(client):
    """The options are read once for all of them, and not taken for those of others."""
    then: dict[str, object] = {"task": "u", "data": [1]}
    options: list[dict[str, object]] = [
        {},
        {"priority": 900},
        {"max_attempts": 10},
        {"delay_ms": 9_000},
        {"domain": "d"},
        {"then": then},
    ]
    lines = [{"task": "t", "data": [n, at], **one} for n in range(3) for at, one in enumerate(options)]
    ids = [client.post("/v1/jobs", line).json["id"] for line in lines]
    again = client.post("/v1/jobs", {"task": "t", "data": 1, "data_base64": "AP8="})
    twice = client.post("/v1/jobs", {"task": "t", "data": 1, "domain": "d", "domain_base64": "AP8="})

    jobs = [client.ok("GET", f"/v1/jobs/{job_id}") for job_id in ids]
    shown = [(job["priority"], job["place"], job["domain"], bool(job["then_id"])) for job in jobs]
    assert shown[:6] == shown[6:12] == shown[12:]
    assert len(set(shown)) == len(options) - 1, "max_attempts is not shown here, the others are"
    data = [json.loads(client.get(f"/v1/jobs/{job_id}/data").body) for job_id in ids]
    assert data == [line["data"] for line in lines]
    assert (again.status, twice.status) == (400, 400)


@pytest.mark.stores
def test_a_claim_waits_for_a_job(client, served):
    """And brings it as soon as it is there."""
    found = []
    with served.client() as waiting:

        def claim() -> None:
            found.append(waiting.ok("POST", "/v1/claims", {"tasks": ["late"], "wait": 50}))

        thread = threading.Thread(target=claim)
        thread.start()
        job_id = client.post("/v1/jobs", {"task": "late"}).json["id"]
        thread.join()

    assert [one["job"]["id"] for one in found[0]["jobs"]] == [job_id]
    begun = time.monotonic()
    assert client.ok("POST", "/v1/claims", {"tasks": ["none"], "wait": 0.2}) == {"jobs": []}
    assert time.monotonic() - begun < 30
    assert client.post("/v1/claims", {"wait": 61}).status == 400


def test_a_claim_that_names_no_lease_has_one(client):
    """A minute; null is one without an end, and so is the plain command without it."""
    for _ in range(3):
        client.post("/v1/jobs", {"task": "t"})
    asked = [("/v1/claims", {}), ("/v1/claims", {"lease_ms": None}), ("/v1/commands/Claim", {})]
    claimed = [client.ok("POST", path, {"tasks": ["t"]} | more) for path, more in asked]

    jobs = [(found.get("jobs") or found["reply"])[0]["job"] for found in claimed]
    assert [bool(job["lease_until"]) for job in jobs] == [True, False, False]
    assert 0 < jobs[0]["lease_until"] - client.ok("GET", "/v1/time")["now_ms"] <= 60_000


def test_who_waits_is_answered_when_the_server_closes(served):
    """With nothing, at once, and with a whole reply."""
    found = []
    with served.client() as waiting:
        thread = threading.Thread(
            target=lambda: found.append(waiting.ok("POST", "/v1/claims", {"tasks": ["t"], "wait": 50}))
        )
        thread.start()
        while not served.connection._submitter._waiter._claims:
            time.sleep(0.01)
        served.drain()
        thread.join()

    assert found == [{"jobs": []}]


@pytest.mark.stores
def test_many_jobs_are_added_and_listed_by_line(client):
    """NDJSON in, NDJSON out; a bad line is named, and then none is added."""
    lines = "".join(json.dumps({"task": "t", "data": n}) + "\n" for n in range(2_500))
    ndjson = {"Content-Type": "application/x-ndjson"}
    added = client.ask("POST", "/v1/jobs", lines.encode(), ndjson)
    assert added.status == 201
    ids = [one["id"] for one in added.lines]

    listed = client.ask("GET", "/v1/jobs", headers={"Accept": "application/x-ndjson"})
    assert [one["id"] for one in listed.lines] == ids == sorted(set(ids), key=int)

    bad = client.ask("POST", "/v1/jobs", b'{"task":"t"}\n\n{"task":""}\n', ndjson)
    assert bad.status == 400
    bad = client.ask("POST", "/v1/jobs", b'{"task":"t"}\n\n{"tusk":1}\n', ndjson)
    assert "line 3: " in bad.json["detail"]
    assert len(client.ask("GET", "/v1/jobs", headers={"Accept": "application/x-ndjson"}).lines) == 2_500


@pytest.mark.stores
def test_a_list_of_all_jobs_is_cut_off_when_the_server_closes(served, monkeypatch):
    """Not ended as if it were whole."""
    monkeypatch.setattr(jobs, "STREAMED", 1)
    served.connection.ask(c.Add(jobs=tuple(c.NewJob(task="t") for _ in range(3))))
    with served.client() as client:
        assert client.get("/healthz").status == 200
        monkeypatch.setattr(served.service._exchange.draining, "is_set", lambda: True)
        with pytest.raises(IncompleteRead):
            client.get("/v1/jobs", Accept="application/x-ndjson")


def test_pages_lead_to_each_other(client):
    """By a cursor, until there is none."""
    ids = [client.post("/v1/jobs", {"task": "t" if n % 2 else "u"}).json["id"] for n in range(10)]
    found, cursor = [], ""
    for _ in range(4):
        page = client.ok("GET", f"/v1/jobs?limit=2&task=t{cursor}")
        found += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"

    assert found == ids[1::2]
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=x", "state=LOST", "unknown=1"):
        assert client.get(f"/v1/jobs?{query}").status == 400, query
    assert len(client.ok("GET", "/v1/jobs?place=READY&state=QUEUED&tenant=&archived=false")["jobs"]) == 10


def test_an_add_whose_unique_key_is_taken_is_no_creation(client):
    """Its status says so; the id is that of the job with the key."""
    first, again = (client.ask("POST", "/v1/jobs", {"task": "t", "unique": "u"}) for _ in range(2))

    assert (first.status, again.status, again.json) == (201, 200, first.json)


@pytest.mark.stores
def test_a_request_with_a_key_is_done_once(served, client):
    """The same again brings the same ids, also after the jobs are gone; another body is refused."""
    body, key = {"task": "t", "unique": "u"}, {"Idempotency-Key": "order 17"}
    first = client.ask("POST", "/v1/jobs", body, key)
    again = client.ask("POST", "/v1/jobs", body, key)

    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert len(client.ok("GET", "/v1/jobs")["jobs"]) == 1
    client.ok("POST", f"/v1/jobs/{first.json['id']}/cancel")
    client.ok("DELETE", f"/v1/jobs/{first.json['id']}")
    assert client.ask("POST", "/v1/jobs", body, key).json == first.json
    assert client.ok("GET", "/v1/jobs")["jobs"] == []
    other = client.ask("POST", "/v1/jobs", {"task": "u"}, key)
    assert (other.status, other.json["code"]) == (422, "KEY_REUSED")
    assert client.ask("POST", "/v1/jobs", body, {"Idempotency-Key": "x" * 256}).status == 400


@pytest.mark.stores
def test_a_request_whose_server_died_between_the_steps_is_finished_by_the_next(served, client, monkeypatch):
    """The ids were noted, the jobs not yet added; or added, and not yet noted as done."""
    from holdfast.engine.commands.requests import NoteRequest

    asking = served.service._exchange.asking
    ask = asking.ask_async
    lost: list[NoteRequest] = []

    async def dies(asked, **how):
        reply = await ask(asked, **how)
        if isinstance(asked, NoteRequest) and asked.note.is_done == (len(lost) == 1) and len(lost) < 2:
            lost.append(asked)
            raise RuntimeError("killed")
        return reply

    body, key = (
        b'{"task":"t"}\n{"task":"u"}\n',
        {"Idempotency-Key": "k", "Content-Type": "application/x-ndjson"},
    )
    monkeypatch.setattr(asking, "ask_async", dies)
    assert client.ask("POST", "/v1/jobs", body, key).status == 500
    assert client.ok("GET", "/v1/jobs")["jobs"] == []
    assert client.ask("POST", "/v1/jobs", body, key).status == 500
    third = client.ask("POST", "/v1/jobs", body, key)

    assert third.status == 201
    assert [job["id"] for job in client.ok("GET", "/v1/jobs")["jobs"]] == sorted(
        (one["id"] for one in third.lines), key=int
    )


@pytest.mark.stores
def test_what_governs_jobs_can_be_said(client):
    """Limits, pauses, schedules, consumers and logs, by their own paths."""
    assert client.ask("PUT", "/v1/limits/cdn/eu", {"limit": {"concurrency": 2}}).status == 204
    (limit,) = client.ok("GET", "/v1/limits")["limits"]
    assert (limit["domain"], limit["limit"]["concurrency"]) == ("cdn/eu", 2)
    for empty in ({}, {"limit": None}):
        assert client.ask("PUT", "/v1/limits/cdn/eu", empty).status == 400, "to remove it is another method"
    assert client.ok("GET", "/v1/limits")["limits"] == [limit]
    assert client.ask("DELETE", "/v1/limits/cdn/eu").status == 204
    assert client.ok("GET", "/v1/limits")["limits"] == []

    client.ok("POST", "/v1/pauses", {"task": "t", "tenant": ""})
    assert client.ok("GET", "/v1/pauses")["pauses"] == [{"tenant": "", "task": "t", "domain": None}]
    client.ok("POST", "/v1/pauses", {"task": "t", "tenant": "", "on": False})
    client.ok("POST", "/v1/pauses", {"task": "u", "tenant": ""})
    client.ok("DELETE", "/v1/pauses?task=u&tenant=")

    made = client.ok("PUT", "/v1/schedules/nightly", {"cron": "0 3 * * *", "job": {"task": "night"}})
    assert (made["name"], made["cron"]) == ("nightly", "0 3 * * *")
    assert client.ok("POST", "/v1/schedules/nightly/pause")["paused"] is True
    assert client.ok("POST", "/v1/schedules/nightly/resume")["paused"] is False
    assert [one["task"] for one in client.ok("GET", "/v1/schedules")["schedules"]] == ["night"]
    assert client.ask("DELETE", "/v1/schedules/nightly").status == 204
    assert client.ask("DELETE", "/v1/schedules/nightly").status == 404

    items = [{"data": {"n": 1}}, {"data": 2, "key": "k"}, {"data": 2, "key": "k"}]
    appended = client.ok("POST", "/v1/logs/orders", {"items": items})["appended"]
    assert [(one["index"], one["is_new"]) for one in appended] == [(1, True), (2, True), (2, False)]
    page = client.ok("GET", "/v1/logs/orders?limit=9")
    assert [(one["at"], one["body"]) for one in page["items"]] == [(1, {"n": 1}), (2, 2)]
    client.ok("POST", "/v1/commands/StartProgress", {"name": "c", "log": "orders"})
    assert client.ok("PUT", "/v1/consumers/c", {"to": 1})["processed"] == 1
    assert client.ok("GET", "/v1/consumers")["consumers"]["c"]["head"] == 2


@pytest.mark.stores
def test_jobs_are_managed_by_their_ids(client):
    """Updated, cancelled, requeued, explained, deleted."""
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]

    assert client.ok("PATCH", f"/v1/jobs/{job_id}", {"priority": 7, "data": {"x": 1}})["priority"] == 7
    assert client.get(f"/v1/jobs/{job_id}/data").json == {"x": 1}
    assert "No live worker knows the task" in client.ok("GET", f"/v1/jobs/{job_id}/why")["why"]
    assert client.ok("POST", f"/v1/jobs/{job_id}/cancel", {"force": True})["state"] == "CANCELLED"
    assert client.post(f"/v1/jobs/{job_id}/requeue").status == 409
    assert client.ask("DELETE", f"/v1/jobs/{job_id}").status == 204
    assert client.get(f"/v1/jobs/{job_id}").status == 404
    assert client.get(f"/v1/jobs/{job_id}/result").status == 404


@pytest.mark.stores
def test_a_result_that_is_not_there_yet_is_202(served, client):
    """And is waited for as long as was said."""
    job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
    found = client.get(f"/v1/jobs/{job_id}/result?wait=0.1")
    assert (found.status, found.json) == (202, None)

    (one,) = served.connection.ask(c.Claim(tasks=("t",)))
    results = []
    with served.client() as waiting:
        thread = threading.Thread(
            target=lambda: results.append(waiting.get(f"/v1/jobs/{job_id}/result?wait=50"))
        )
        thread.start()
        served.connection.ask(c.Answer(hold=c.hold_of(one.job), code=Code.OK, result='{"a":1}'))
        thread.join()
    assert results[0].json["result"] == {"a": 1}


@pytest.mark.stores
def test_changes_come_as_events(served, client):
    """Counts whenever they change, a job until it has ended."""
    with served.raw() as counts, served.raw() as job:
        job_id = client.post("/v1/jobs", {"task": "t"}).json["id"]
        counts.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b'{"t":{"WAITING":1}}' in lines_of(counts, lambda found: b"WAITING" in found)
        job.sendall(b"GET /v1/jobs/%s/events HTTP/1.1\r\nHost: localhost\r\n\r\n" % job_id.encode())
        assert b"text/event-stream" in lines_of(job, lambda found: b"event: job" in found)

        client.ok("POST", f"/v1/jobs/{job_id}/cancel")

        assert b"CANCELLED" in lines_of(counts, lambda found: b"CANCELLED" in found)
        # The stream ends with the job.
        assert b'"state":"CANCELLED"' in lines_of(job, lambda found: found.endswith(b"0\r\n\r\n"))


@pytest.mark.parametrize("path", ["/v1/jobs/1/events", "/v1/jobs/x/events"])
def test_events_of_no_job_are_a_problem(client, path):
    """Not a stream that says nothing."""
    assert client.get(path).status in (400, 404)


def test_requests_that_come_together_are_submitted_together(served, client, monkeypatch):
    """64 clients add a job each while the server is busy with something else: the committer is woken once.

    Jobs that differ in their data alone are one command. Each client gets the id of its own job.
    """
    committer = served.connection._submitter
    submit_all, sizes = committer.submit_all, []

    def counted(tickets):
        sizes.append([ticket.command.count for ticket in tickets])
        submit_all(tickets)

    monkeypatch.setattr(committer, "submit_all", counted)
    clients = [served.raw() for _ in range(64)]
    until(lambda: len(served.service._state.connections) == 64)
    sent = threading.Event()
    served._loop.call_soon_threadsafe(sent.wait, 30)
    for n, sock in enumerate(clients):
        body = b'{"task":"%s","data":%d}' % (b"odd" if n == 30 else b"t", n)
        sock.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        sock.sendall(body)
    sent.set()
    replies = [lines_of(sock, lambda found: found.endswith(b"}")) for sock in clients]
    for sock in clients:
        sock.close()

    assert all(reply.startswith(b"HTTP/1.1 201") for reply in replies)
    assert sum(map(sum, sizes)) == 64
    assert len(sizes) <= 4
    assert sum(map(len, sizes)) <= 3 * len(sizes)
    ids = [json.loads(reply.partition(b"\r\n\r\n")[2])["id"] for reply in replies]
    assert [client.ok("GET", f"/v1/jobs/{job_id}/data") for job_id in ids] == [*range(64)]
    assert client.ok("GET", f"/v1/jobs/{ids[30]}")["task"] == "odd"
