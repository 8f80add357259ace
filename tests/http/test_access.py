"""Who may ask what over HTTP: every command and query, from nobody, from too late, from another tenant."""

import json
import re
from http.client import IncompleteRead
from typing import Any

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core import queries as q
from holdfast.core.access import RULES, Scope
from holdfast.core.bounds import DAY_MS
from holdfast.core.defaults import Defaults
from holdfast.core.errors import Unavailable
from holdfast.core.indexed import LogItem
from holdfast.core.job import Code, Place
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.core.token import secret_of
from holdfast.core.worker import Served as Serves
from holdfast.core.worker import Worker
from holdfast.serve.http import jobs
from holdfast.serve.http.api import PLANS, SPECIAL
from holdfast.serve.http.exchange import Exchange
from holdfast.serve.http.forms import form_of
from tests.core.test_access import one_of
from tests.http.served import lines_of
from tests.queue_suite.tools import until

MARK = "of-a-alone"
KINDS = [kind for kind in RULES if kind is not q.FindToken]


def path_of(kind):
    """Where a command or query is asked by its name."""
    return f"/v1/{'commands' if issubclass(kind, c.Command) else 'queries'}/{kind.__name__}"


def body_of(asked):
    """A command or query as a client sends it: without what is at its default."""
    kind: Any = type(asked)
    form = form_of(kind)
    assert form.write is not None
    shown = msgspec.json.decode(msgspec.json.encode(form.write(asked)))
    return {name: value for name, value in shown.items() if value not in (None, [], {})}


@pytest.fixture
def guarded(serve):
    """A server as beyond loopback."""
    return serve(token_always=True)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nobody_asks_anything_without_a_token_that_holds(guarded, kind):
    """None, a wrong, an expired, a revoked one, another scheme: 401, and nothing is done."""
    body = body_of(one_of(kind))
    expired = guarded.token("old", expires_in_ms=1)
    revoked = guarded.token("gone")
    guarded.connection.ask(c.RevokeToken(name="gone"))
    wrong = guarded.token("wrong")[:-1] + "x"
    with guarded.client() as client:
        for secret in (None, "", "x", expired, revoked, wrong, "hf_a_b", "\xff", "hf_old_" + "0" * 48):
            headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
            reply = client.ask("POST", path_of(kind), body, headers)
            assert (reply.status, reply.json["code"]) == (401, "UNAUTHENTICATED"), secret
            assert reply.headers["www-authenticate"] == "Bearer"
        assert client.ask("POST", path_of(kind), body, {"Authorization": f"Basic {wrong}"}).status == 401

    assert guarded.connection.ask(q.CountJobs()) == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_token_allows_what_its_scopes_say(guarded, kind):
    """403 for all else."""
    body, scopes = body_of(one_of(kind)), RULES[kind][0]
    for scope in Scope:
        with guarded.client(guarded.token(f"t-{scope}", scope)) as client:
            reply = client.ask("POST", path_of(kind), body)
            assert reply.status < 500, reply
            if scope not in scopes:
                assert (reply.status, reply.json["code"]) == (403, "FORBIDDEN")
            elif kind is not c.CreateToken:
                assert reply.status not in (401, 403), (scope, reply)


def test_every_path_needs_a_token(guarded):
    """Also those that are no command by its name; but for the health and the description."""
    paths = [(plan.route.method, plan.route.path) for plan in PLANS] + [
        (method, path) for method, path, *_ in SPECIAL
    ]
    with guarded.client() as client:
        for method, path in [*paths, ("GET", "/v1/events")]:
            reply = client.ask(method, re.sub("{[^}]*}", "5", path), {})
            assert reply.status == 401, (method, path, reply)
        assert client.get("/healthz").status == 200
        assert client.get("/v1/openapi.json").status == 200


class Neighbour:
    """A store in which tenant `a` has something of everything, all of it marked."""

    def __init__(self, served: Any) -> None:
        self._ask = ask = served.connection.ask
        now_ms = ask(q.GetTime())
        self.ids = ask(
            c.Add(
                jobs=(
                    c.NewJob(task=MARK, tenant="a", data=f'"{MARK}"', domain=MARK.encode(), unique=b"u"),
                    c.NewJob(task=MARK, tenant="a", delay_ms=DAY_MS, data=f'"{MARK}"'),
                )
            )
        )
        self.ids += ask(c.Add(jobs=tuple(c.NewJob(task=f"{MARK}-{n}", tenant="a") for n in range(3))))
        answers: tuple[dict[str, Any], ...] = (
            {"code": Code.OK, "result": f'"{MARK}"'},
            {"code": Code.FAILED, "error": MARK},
        )
        for n, answer in enumerate(answers):
            (one,) = ask(c.Claim(tasks=(f"{MARK}-{n}",), tenant="a", lease_ms=DAY_MS))
            ask(c.Answer(hold=c.hold_of(one.job), **answer))
        (self.running,) = ask(c.Claim(tasks=(f"{MARK}-2",), tenant="a", lease_ms=DAY_MS))
        self.hold = c.hold_of(self.running.job)
        ask(c.WriteLog(hold=self.hold, lines=(MARK,)))
        ask(c.Step(hold=self.hold, name=MARK, result="1"))
        ask(c.SetLimit(domain=MARK.encode(), tenant="a", limit=Limit(concurrency=0)))
        ask(c.SetLimit(domain=f"{MARK}*".encode(), tenant="a", limit=Limit(rate=1.0)))
        ask(c.Pause(tenant="a", task=MARK))
        schedule = Schedule(name=MARK, tenant="a", every_ms=DAY_MS)
        ask(c.SetSchedule(schedule=schedule, job=c.NewJob(task=MARK, tenant="a")))
        ask(c.Publish(tasks=(("a", MARK, Defaults(max_attempts=3)),)))
        serves = (Serves(tenant="a", tasks=(MARK,)),)
        worker = Worker(
            name=MARK, host=MARK, pid=1, started_at=now_ms, serves=serves, until_ms=now_ms + DAY_MS
        )
        ask(c.Enlist(worker=worker))
        ask(c.Append(log=MARK, tenant="a", items=(LogItem(data=f'"{MARK}"', key=MARK.encode()),)))
        ask(c.StartProgress(name=MARK, tenant="a", log=MARK))
        ask(h.SetHandler(handler=h.Handler(task=MARK, tenant="a", lang="shell", body=MARK)))

    def state(self) -> list[Any]:
        """All that tenant `a` has."""
        ask = self._ask
        jobs = [
            ask(q.ListJobs(filter=q.JobFilter(tenant="a", archived=old), limit=99)) for old in (False, True)
        ]
        rest = (
            q.ListLimits(tenant="a"),
            q.ListSchedules(tenant="a"),
            q.ListPauses(tenant="a"),
            q.ListDefaults(tenant="a"),
            q.ListWorkers(tenant="a"),
            q.ListConsumers(tenant="a"),
            q.ReadLog(log=MARK, tenant="a", limit=99),
            q.CountJobs(tenant="a"),
            h.GetHandler(task=MARK, tenant="a"),
            h.ListHandlerVersions(task=MARK, tenant="a"),
            q.ListTokens(),
            q.GetSteps(job_id=self.running.job.id),
            q.GetLog(job_id=self.running.job.id),
        )
        return [jobs, *(ask(query) for query in rest)]

    def asked(self, kind: Any) -> list[dict[str, Any]]:
        """Requests of a kind that are about what tenant `a` has, as those of others."""
        said = body_of(one_of(kind))
        fields = form_of(kind).type.__struct_fields__
        names = {"name": MARK, "log": MARK, "domain": MARK, "task": MARK, "tasks": [MARK], "glob": "*"}
        if kind is c.Publish:
            names.pop("tasks")
        said |= {
            name: value
            for name, value in names.items()
            if name in fields and name in (*said, "task", "tasks")
        }
        if kind is c.SetSchedule:
            said["schedule"]["name"] = MARK
        if kind is h.FindHandlers:
            said["pairs"][0]["task"] = MARK
        if kind is c.Enlist:
            said["worker"]["name"] = MARK
        many = []
        for job_id in self.ids:
            one = json.loads(json.dumps(said))
            if "hold" in one:
                one["hold"] = {"job_id": str(job_id), "owner": self.hold.owner, "claim": self.hold.claim}
            for name in ("job_id", "parent_id"):
                if name in one:
                    one[name] = str(job_id)
            if "job_ids" in one:
                one["job_ids"] = [str(one_id) for one_id in self.ids]
            if kind is c.Add:
                one["jobs"] = [{"task": MARK + "-b", "parent_id": str(job_id), "unique": "u"}]
            if kind is q.SelectJobs:
                one["text"] = "SELECT jobID, name, data FROM jobs"
            if "limit" in fields and kind is not c.SetLimit:
                one["limit"] = 99
            many.append(one)
        return many


@pytest.fixture
def neighbour(guarded):
    """What tenant `a` has."""
    return Neighbour(guarded)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_tenant_neither_sees_nor_touches_what_another_has(guarded, neighbour, kind):
    """Whatever it names: ids, names, claims of the other; with its own tenant said, the other's, or none."""
    secret = guarded.token("b", tenant="b")
    before = neighbour.state()

    with guarded.client(secret) as client:
        for body in neighbour.asked(kind):
            for tenant in (None, "b", "a"):
                said = dict(body) if tenant is None else body | {"tenant": tenant}
                if "tenant" not in form_of(kind).type.__struct_fields__:
                    said.pop("tenant", None)
                reply = client.ask("POST", path_of(kind), said)
                text = reply.body.decode()
                assert reply.status < 500, reply
                if reply.status < 300:
                    # What it made itself a moment ago may bear the name that it asked for.
                    told = text.replace(MARK + "-b", "")
                    if kind not in (c.SetSchedule, q.ListSchedules, c.StartProgress, c.SetProgress):
                        assert MARK not in told, (said, text)
                    assert not any(str(job_id) in text for job_id in neighbour.ids), (said, text)

    assert neighbour.state() == before


def test_the_paths_of_a_job_are_closed_to_other_tenants(guarded, neighbour):
    """As if the job were not there; and so are lists, events and results."""
    secret = guarded.token("b", tenant="b")
    before = neighbour.state()
    hold = {"owner": neighbour.hold.owner, "claim": neighbour.hold.claim}
    bodies: dict[str, Any] = {
        "extend": {"lease_ms": 5},
        "progress": {"fraction": 0.1},
        "steps": {"name": "s", "result": "1"},
    }
    with guarded.client(secret) as client:
        for job_id in neighbour.ids:
            path = f"/v1/jobs/{job_id}"
            for rest in ("", "/data", "/steps", "/log", "/why", "/result", "/events"):
                assert client.get(path + rest).status == 404, rest
            for rest in ("answer", "release", "extend", "progress", "steps", "log"):
                body = hold | bodies.get(rest, {}) | ({"lines": ["x"]} if rest == "log" else {})
                assert client.post(f"{path}/{rest}", body).status in (404, 409), rest
            for rest in ("cancel", "requeue"):
                assert client.post(f"{path}/{rest}").status == 404
            assert client.ask("PATCH", path, {"priority": 1}).status == 404
            assert client.ask("DELETE", path).status == 404
            assert client.ask("DELETE", f"/schedule/{job_id}").status == 404
            assert client.ask("PUT", f"/schedule/{job_id}", {"payload": 1}).status == 404
            assert client.get(f"{path}/children").json == {"jobs": [], "cursor": None}
        assert client.get("/v1/jobs").json["jobs"] == []
        assert client.get("/v1/jobs?tenant=a").status == 403
        assert client.ask("GET", "/v1/jobs", headers={"Accept": "application/x-ndjson"}).body == b""
        for path in (
            "counts",
            "overview",
            "workers",
            "limits",
            "pauses",
            "schedules",
            "consumers",
            f"logs/{MARK}",
        ):
            assert MARK not in client.get(f"/v1/{path}").body.decode(), path

    assert neighbour.state() == before


def test_idempotency_keys_are_each_tenants_own(guarded):
    """The same key of another tenant is another key."""
    body, key = {"task": "t"}, {"Idempotency-Key": "k"}
    with (
        guarded.client(guarded.token("a", tenant="a")) as a,
        guarded.client(guarded.token("b", tenant="b")) as b,
    ):
        first, other = a.ask("POST", "/v1/jobs", body, key), b.ask("POST", "/v1/jobs", {"task": "u"}, key)

    assert (first.status, other.status) == (201, 201)
    assert first.json != other.json


def test_where_the_store_is_is_told_to_no_client_without_a_token(guarded, monkeypatch):
    """Whether it is asked by a probe, a client with a wrong token, or somebody who signs in."""
    secret = secret_of("unknown", bytes(24))

    async def away(_asked, **_options):
        raise Unavailable("postgresql://alice@10.0.0.5/prod cannot be reached")

    monkeypatch.setattr(guarded.connection, "ask_async", away)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with guarded.client() as client, guarded.client(secret) as guessing:
        replies = [client.get("/readyz"), guessing.get("/v1/jobs"), guessing.get("/")]
        replies.append(client.ask("POST", "/sign-in", f"token={secret}".encode(), form))

    assert [reply.status for reply in replies] == [503] * 4
    assert not [reply for reply in replies if b"alice" in reply.body]


@pytest.mark.parametrize(("tenant", "body"), [("a", b"\n"), ("a", b'{"task":"t","tenant":"b"}\n')])
def test_a_request_that_is_not_allowed_uses_up_no_idempotency_key(guarded, tenant, body):
    """Not even one without jobs: the key is for clients that may add them."""
    lines = {"Idempotency-Key": "k", "Content-Type": "application/x-ndjson"}
    scopes = (Scope.READ,) if body == b"\n" else tuple(Scope)
    with (
        guarded.client(guarded.token("other", *scopes, tenant=tenant)) as other,
        guarded.client(guarded.token("adder", Scope.ADD, tenant=tenant)) as adder,
    ):
        refused = other.ask("POST", "/v1/jobs", body, lines)
        added = adder.ask("POST", "/v1/jobs", {"task": "t"}, {"Idempotency-Key": "k"})

    assert (refused.status, added.status) == (403, 201)


def test_a_web_page_cannot_ask_in_the_name_of_who_looks_at_it(client, serve):
    """On loopback nothing is asked for, so the host and the origin must be ours."""
    for headers in (
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "localhost.evil.example:8080"},
        # A page may add a header that holds no token.
        {"Host": "evil.example", "Authorization": "Basic eDp5"},
        {"Origin": "http://evil.example", "Authorization": "Bearer "},
    ):
        assert client.ask("POST", "/v1/jobs", {"task": "t"}, headers).status == 403, headers
    assert client.get("/v1/counts").json == {"counts": []}
    assert client.ask("GET", "/v1/counts", headers={"Host": "localhost"}).status == 200


def test_a_client_that_asks_too_often_is_told_when_to_go_on(serve):
    """By its token; others are not held up."""
    served = serve(rate=5.0)
    with served.client(served.token("fast")) as fast, served.client(served.token("other")) as other:
        found = [fast.get("/v1/time") for _ in range(8)]
        assert [one.status for one in found[:5]] == [200] * 5
        late = [one for one in found if one.status == 429]
        assert late
        assert late[0].headers["retry-after"] == "1"
        assert other.get("/v1/time").status == 200


def test_the_forms_of_needed_fields_are_known():
    """What the tests send is decoded as what they mean."""
    for kind in KINDS:
        asked = one_of(kind)
        form = form_of(kind)
        assert form.read is not None
        there = form.read(msgspec.json.decode(json.dumps(body_of(asked)).encode(), type=form.type))
        assert there == asked or kind in (c.Add, c.SetSchedule), kind


def test_a_token_that_is_revoked_gets_nothing_more_of_what_it_waits_for(guarded):
    """Neither events nor the jobs of a claim that has waited since before; these are released."""
    secret = guarded.token("b", tenant="b")
    head = f"Host: localhost\r\nAuthorization: Bearer {secret}\r\n".encode()
    body = b'{"tasks":["t"],"wait":60}'
    (own,) = guarded.connection.ask(c.Add(jobs=(c.NewJob(task="own", tenant="b"),)))
    with guarded.raw() as events, guarded.raw() as of_job, guarded.raw() as claims:
        events.sendall(b"GET /v1/events HTTP/1.1\r\n" + head + b"\r\n")
        of_job.sendall(b"GET /v1/jobs/%d/events HTTP/1.1\r\n" % own + head + b"\r\n")
        claims.sendall(
            b"POST /v1/claims HTTP/1.1\r\n" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        lines_of(events, lambda found: b"event: counts" in found)
        lines_of(of_job, lambda found: b"event: job" in found)
        guarded.connection.ask(c.RevokeToken(name="b"))
        # A server reads a token at most once a second.
        with guarded.client(secret) as client:
            until(lambda: client.get("/v1/time").status == 401)
        (job_id,) = guarded.connection.ask(c.Add(jobs=(c.NewJob(task="t", tenant="b"),)))
        guarded.connection.ask(c.Update(job_id=own, priority=900))

        for stream in (events, of_job):
            told = lines_of(stream, lambda found: found.endswith(b"0\r\n\r\n"))
            assert b"UNAUTHENTICATED" in told
            assert b'"t"' not in told
            assert b"900" not in told
        assert claims.recv(65536).startswith(b"HTTP/1.1 401 ")
    until(lambda: guarded.connection.ask(q.GetJob(job_id=job_id)).place is Place.READY)


def test_a_list_of_all_jobs_is_cut_off_when_its_token_is_revoked(guarded, monkeypatch):
    """Between two parts of it, so that the client notices."""
    monkeypatch.setattr(jobs, "STREAMED", 1)
    guarded.connection.ask(c.Add(jobs=tuple(c.NewJob(task="t", tenant="b") for _ in range(3))))
    readmit = Exchange.readmit

    async def revoke_first(exchange, request):
        await exchange.connection.ask_async(c.RevokeToken(name="b"))
        exchange.guard._known.clear()
        await readmit(exchange, request)

    monkeypatch.setattr(Exchange, "readmit", revoke_first)
    with guarded.client(guarded.token("b", tenant="b")) as client, pytest.raises(IncompleteRead) as cut:
        client.get("/v1/jobs", Accept="application/x-ndjson")

    assert len(cut.value.partial.splitlines()) == 1


def test_a_new_token_is_for_one_tenant_unless_it_is_asked_to_be_for_all(guarded):
    """As on the command line; null is all tenants."""
    wanted: dict[str, dict[str, object]] = {"a": {}, "b": {"tenant": "acme"}, "c": {"tenant": None}}

    with guarded.client(guarded.token("admin")) as admin:
        bodies = [{"name": name, "scopes": ["read"]} | more for name, more in wanted.items()]
        made = [admin.post("/v1/tokens", body).json["tenant"] for body in bodies]

    assert made == ["", "acme", None]


@pytest.mark.parametrize("path", ["/v1/counts", "/v1/jobs/5", "/", "/readyz", "/metrics"])
def test_errors_of_the_store_do_not_tell_where_it_is(served, client, monkeypatch, caplog, path):
    """The client gets a number; the log has the address."""
    where = "10.9.8.7"

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable(f"cannot reach redis://{where}/0 for {path}")

    monkeypatch.setattr(served.connection, "ask_async", fail)

    reply = client.get(path)

    assert reply.status == 503
    assert where not in repr(reply.headers) + reply.body.decode()
    if path != "/readyz":
        assert b"(incident " in reply.body
        assert where in caplog.text


def test_without_scope_data_a_client_gets_no_secrets(serve):
    """Not as data, result or step, and not by a search or by SQL; with the scope it gets all of it."""
    served = serve(token_always=True)
    ask = served.connection.ask
    (job_id,) = ask(c.Add(jobs=(c.NewJob(task="t", data='{"api_key":"k1","user":"u"}'),)))
    (claimed,) = ask(c.Claim(tasks=("t",)))
    hold = c.hold_of(claimed.job)
    ask(c.Step(hold=hold, name="auth", result='"k2"'))
    search = {"filter": {"archived": True}, "data": [{"path": "api_key", "value": "k1"}]}
    tokens = {"reader": (Scope.READ,), "auditor": (Scope.READ, Scope.DATA)}
    secrets = {name: served.token(name, *scopes) for name, scopes in tokens.items()}
    steps = {}
    for name, secret in secrets.items():
        with served.client(secret) as client:
            steps[name] = client.get(f"/v1/jobs/{job_id}/steps").body.decode()
    ask(c.Answer(hold=hold, code=Code.OK, result='{"token":"k3","max_tokens":9}'))

    found = {}
    for name, secret in secrets.items():
        with served.client(secret) as client:
            data, result = (
                client.get(f"/v1/jobs/{job_id}/{part}").body.decode() for part in ("data", "result")
            )
            texts = [data, steps[name], result]
            page = client.post("/v1/queries/SearchJobs", search | {"redacted": False})
            user = client.post("/v1/queries/SearchJobs", search | {"data": [{"path": "user", "value": "u"}]})
            sql = client.post("/v1/queries/SelectJobs", {"text": "SELECT data FROM jobs"}).status
            found[name] = (
                [f"k{n}" in text for n, text in enumerate(texts, 1)],
                len(page.json["reply"]["jobs"]),
                sql,
            )
            assert len(user.json["reply"]["jobs"]) == 1
            assert "hidden" in texts[0] or name == "auditor"
            assert '"max_tokens":9' in texts[2]

    assert found == {"reader": ([False] * 3, 0, 403), "auditor": ([True] * 3, 1, 200)}
