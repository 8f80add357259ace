"""The dashboard over HTTP: pages, actions, sign-in, and everything that must be refused."""

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import AUDIT_LOG, OPERATORS_LOG, Scope
from holdfast.core.bounds import DAY_MS
from holdfast.core.history import NAMED_TASKS
from holdfast.core.indexed import LogItem
from holdfast.core.job import Code, State
from holdfast.core.limits import Limit
from holdfast.core.queries import GetRetention
from holdfast.core.schedule import Schedule
from holdfast.core.worker import Worker
from holdfast.serve.dashboard.app import PAGES
from holdfast.store.common.clock import system_clock
from holdfast.store.memory.store import MemoryStore

NASTY = '<script>alert("x")</script> & \x00\x1b[31m \u202eright\u202c עברית 🐙 </pre>'


def add(served, task="resize", tenant="", **options):
    """The id of a new job."""
    return served.connection.ask(c.Add(jobs=(c.NewJob(task=task, tenant=tenant, **options),)))[0]


def path_of(page, job_id):
    """The address of a page."""
    return page.replace("{job_id}", str(job_id))


def token_of(page):
    """The token that the forms of a page contain."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def send(client, path, csrf, headers=None, /, **fields):
    """Send a form."""
    said = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return client.ask("POST", path, urlencode({"csrf": csrf, **fields}, doseq=True).encode(), said)


def sign_in(client, secret):
    """The cookie of a session."""
    reply = send(client, "/sign-in", "", token=secret)
    assert reply.status == 303, reply
    return reply.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def busy(served):
    """A server whose store has something for every page."""
    ask: Any = served.connection.ask
    ask(c.SetLimit(domain=b"cdn", limit=Limit(concurrency=1)))
    ask(c.SetSchedule(schedule=Schedule(name="nightly", cron="0 2 * * *"), job=c.NewJob(task="report")))
    ask(c.StartProgress(name="mirror", log="events"))
    ask(c.Enlist(worker=Worker(name="w1", host="h", pid=7, started_at=1, until_ms=1 << 42)))
    for _ in range(3):
        add(served, domain=b"cdn")
    return served


@pytest.mark.parametrize("page", [page for page in PAGES if page != "/jobs/{job_id}/data"])
def test_every_page_shows_and_keeps_the_browser_to_its_own_files(busy, page):
    """No inline script or style, no other host: the policy says so, and the page needs none."""
    job_id = add(busy)
    with busy.client() as client:
        reply = client.get(path_of(page, job_id))

    assert reply.status == 200, reply
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = reply.body.decode()
    assert "<script>" not in text
    assert not re.search(r'\bstyle="|\son[a-z]+="|https?://', text)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(NASTY, id="text"),
        pytest.param({"html": NASTY, NASTY: [NASTY]}, id="object"),
        pytest.param(NASTY * 15_000, id="megabyte", marks=pytest.mark.proof),
    ],
)
def test_data_is_shown_as_text_whatever_is_in_it(served, data):
    """Markup, control characters, right-to-left text and a megabyte: nothing of it is HTML."""
    job_id = add(served, data=msgspec.json.encode(data).decode())
    with served.client() as client:
        for path in (f"/jobs/{job_id}", f"/jobs/{job_id}?whole=yes", f"/jobs/{job_id}/edit", "/jobs"):
            reply = client.get(path)

            assert reply.status == 200
            text = reply.body.decode()
            assert "<script>" not in text
            assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)
        whole = unescape(client.get(f"/jobs/{job_id}?whole=yes").body.decode())
    assert "alert(" in whole


def test_names_are_shown_as_text(served):
    """A task, tenant, domain and schedule with markup are text on every page that names them."""
    name = "<b>bold</b>&\u202e"
    job_id = add(served, task=name, tenant=name, domain=name.encode(), unique=name.encode())
    served.connection.ask(c.SetLimit(domain=name.encode(), limit=Limit(rate=1.0)))
    served.connection.ask(
        c.SetSchedule(schedule=Schedule(name=name, every_ms=60_000), job=c.NewJob(task=name))
    )
    with served.client() as client:
        for page in ("/", "/jobs", "/tasks", "/schedules", "/limits", f"/jobs/{job_id}"):
            text = client.get(page).body.decode()

            assert "<b>bold" not in text
            assert "&lt;b&gt;bold" in text


def test_limits_and_schedules_are_told_as_on_the_command_line(serve):
    """A rate in its own unit, and counts with their nouns."""
    now = [system_clock()]
    served = serve(lambda: MemoryStore(clock=lambda: now[0]))
    ask: Any = served.connection.ask
    ask(c.SetLimit(domain=b"api", limit=Limit(rate=1 / 86_400, burst=3)))
    ask(c.SetSchedule(schedule=Schedule(name="often", every_ms=60_000), job=c.NewJob(task="report")))
    now[0] += 60_000
    ask(c.Upkeep())
    with served.client() as client:
        limits, schedules = (client.get(page).body.decode() for page in ("/limits", "/schedules"))

    assert "1/d in bursts of 3" in limits
    assert "1 limit, 0 jobs held back." in limits
    assert "1 schedule, 0 paused." in schedules
    assert ">1 run</a>" in schedules


def test_actions_change_jobs_and_are_written_down(busy):
    """Cancel, retry, edit, pause, limits, schedules, tokens: each does it, and the audit log tells."""
    job_id = add(busy)
    with busy.client() as client:
        token = token_of(client.get("/tasks").body.decode())
        job = f"/jobs/{job_id}"
        for path, fields in (
            (f"{job}/edit", {"data": '{"a": 2}', "priority": "900"}),
            ("/tasks/pause", {"task": "resize", "tenant": "", "on": "yes"}),
            ("/schedules/run", {"name": "nightly"}),
            ("/schedules/pause", {"name": "nightly", "on": "yes"}),
            ("/workers/stop", {"name": "w1"}),
            ("/settings/retention", {"retention": "2d"}),
            ("/limits/set", {"domain": "api", "rate": "5", "burst": "2", "concurrency": "3"}),
            ("/limits/lift", {"domain": "cdn"}),
            ("/schedules/delete", {"name": "nightly"}),
            (f"{job}/cancel", {}),
            ("/settings/purge", {"older": "1h"}),
        ):
            reply = send(client, path, token, **fields)

            assert reply.status == 303, (path, reply)
        made = send(
            client, "/settings/tokens/create", token, name="ops", scope=["read"], tenant="", expires="1d"
        )
        audit = client.get("/settings").body.decode()

    assert b"hf_ops_" in made.body
    ask = busy.connection.ask
    assert ask(q.GetJob(job_id=job_id)).state is State.CANCELLED
    assert ask(q.GetData(job_id=job_id)) == '{"a": 2}'
    assert ask(q.ListPauses()) == [("", "resize", None)]
    assert [one.domain for one in ask(q.ListLimits())] == [b"api"]
    assert ask(q.ListSchedules()) == []
    assert ask(q.ListJobs(filter=q.JobFilter(schedule="nightly"), limit=9))
    assert [one.stopping for one in ask(q.ListWorkers())] == [True]
    assert ask(GetRetention()) == 2 * DAY_MS
    for action in (
        *("edit", "pause", "set limit", "lift limit", "delete schedule", "create token"),
        *("run schedule", "stop worker", "set retention", "purge"),
    ):
        assert action in audit


def test_many_jobs_are_changed_after_a_preview(served):
    """All that match: first a page says how many, and nothing has changed; then they are cancelled."""
    for _ in range(7):
        add(served)
    add(served, task="other")
    with served.client() as client:
        token = token_of(client.get("/jobs").body.decode())
        fields = {"action": "cancel", "q": "task:resize", "all": "yes"}
        preview = send(client, "/jobs/bulk", token, **fields)
        before = served.connection.ask(q.CountJobs())
        done = send(client, "/jobs/bulk", token, **fields, sure="yes")

    assert "Cancel 7 jobs" in preview.body.decode()
    assert {key.state for key, _ in before} == {State.QUEUED}
    assert done.headers["location"].endswith("count=7")
    counts = {(key.task, key.state): n for key, n in served.connection.ask(q.CountJobs())}
    assert counts == {("resize", State.CANCELLED): 7, ("other", State.QUEUED): 1}


def test_a_form_that_no_page_of_the_session_made_is_refused(served):
    """Without the token, with another's, and from a page of another site: 403, and nothing is done."""
    job_id = add(served)
    with served.client() as client:
        token = token_of(client.get(f"/jobs/{job_id}").body.decode())
        path = f"/jobs/{job_id}/delete"
        replies = [
            send(client, path, ""),
            send(client, path, "0" * 64),
            send(client, path, token, {"Origin": "http://evil.example"}),
            send(client, path, token, {"Sec-Fetch-Site": "cross-site"}),
            client.ask("POST", path, {"csrf": token}),
        ]

    assert [reply.status for reply in replies] == [403, 403, 403, 403, 415]
    assert served.connection.ask(q.GetJob(job_id=job_id)).id == job_id


def test_a_tenant_sees_and_changes_its_own_jobs_alone(serve):
    """Pages, searches and actions: the jobs of another tenant are not there."""
    served = serve(token_always=True)
    mine, theirs = add(served, task="mine", tenant="a"), add(served, task="theirs", tenant="b")
    secret = served.token("a", Scope.READ, Scope.MANAGE, tenant="a")
    with served.client() as client:
        cookie = sign_in(client, secret)
        token = token_of(client.get(f"/jobs/{mine}", Cookie=cookie).body.decode())
        for page in ("/", "/jobs", "/tasks", "/workers", "/settings"):
            reply = client.get(page, Cookie=cookie)

            assert reply.status == 200, page
            assert "theirs" not in reply.body.decode()
        statuses = [
            client.get(f"/jobs/{theirs}{end}", Cookie=cookie).status for end in ("", "/data", "/edit")
        ]
        statuses += [
            send(client, f"/jobs/{theirs}/{verb}", token, {"Cookie": cookie}).status
            for verb in ("cancel", "delete", "requeue", "edit")
        ]
        named = client.get("/jobs?q=tenant:b", Cookie=cookie)
        live = client.get(f"/live?job={theirs}", Cookie=cookie)

    assert statuses == [404] * 7
    assert named.status == 403
    assert live.status == 404
    assert served.connection.ask(q.GetJob(job_id=theirs)).state is State.QUEUED


def test_a_reader_sees_no_buttons_and_may_do_nothing(serve):
    """A token with `read` alone: pages without forms, and each action is refused."""
    served = serve(token_always=True)
    job_id = add(served)
    secret = served.token("reader", Scope.READ)
    other = served.token("all")
    with served.client() as client:
        cookie = sign_in(client, secret)
        pages = [
            client.get(p, Cookie=cookie).body.decode()
            for p in (f"/jobs/{job_id}", "/jobs", "/tasks", "/limits")
        ]
        token = token_of(pages[0])
        refused = [
            send(client, path, token, {"Cookie": cookie}, **fields).status
            for path, fields in (
                (f"/jobs/{job_id}/cancel", {}),
                (f"/jobs/{job_id}/delete", {}),
                ("/tasks/pause", {"task": "resize", "on": "yes"}),
                ("/settings/tokens/create", {"name": "x", "scope": "read"}),
                ("/settings/retention", {"retention": "1d"}),
                ("/schedules/run", {"name": "nightly"}),
                ("/workers/stop", {"name": "w1"}),
            )
        ]
        assert sign_in(client, other)
    # The one form is the one that signs out.
    assert all(page.count('method="post"') == 1 for page in pages)
    assert refused == [403] * 7


@pytest.mark.parametrize("log", [AUDIT_LOG, OPERATORS_LOG])
def test_no_client_writes_to_the_audit_log(served, log):
    """Not with all scopes either: what stands there was done."""
    with served.client() as client:
        reply = client.post(f"/v1/logs/{log}", {"items": [{"data": {}}]})

    assert reply.status == 403
    served.connection.ask(c.Append(log=log, items=(LogItem(data="{}"),)))


def test_actions_of_operators_are_not_for_tenants(serve):
    """Not for the one that is used when none is named either; operators see both."""
    served = serve(token_always=True)
    operator, own = served.token("operator"), served.token("own", tenant="")
    with served.client() as client:
        for secret, task in ((operator, "of-operator"), (own, "of-tenant")):
            cookie = sign_in(client, secret)
            token = token_of(client.get("/tasks", Cookie=cookie).body.decode())
            assert send(client, "/tasks/pause", token, {"Cookie": cookie}, task=task).status == 303
    with served.client(own) as tenant, served.client(operator) as all_tenants:
        logs = [tenant.get(f"/v1/logs/{log}?limit=10") for log in (AUDIT_LOG, OPERATORS_LOG)]
        shown = [one.get("/settings").body for one in (tenant, all_tenants)]

    assert [one.status for one in logs] == [200, 403]
    assert b"of-operator" not in logs[0].body + shown[0]
    assert all(b"of-tenant" in page for page in shown)
    assert b"of-operator" in shown[1]


@pytest.mark.parametrize(
    "data",
    ['{"user": {"password": "hunter2", "name": "ann"}}', '{"password": "hunter2", "huge": 1e999}'],
    ids=("plain", "beyond numbers"),
)
def test_secrets_in_data_are_hidden_from_readers(serve, data):
    """The value of `password` is sent only to a client that may manage jobs, and only when it asks."""
    served = serve(token_always=True)
    job_id = add(served, data=data)
    (claimed,) = served.connection.ask(c.Claim(tasks=("resize",)))
    hold = c.hold_of(claimed.job)
    served.connection.ask(c.Step(hold=hold, name="sign in", result='{"password": "hunter3"}'))
    served.connection.ask(c.Step(hold=hold, name="api_key", result='"hunter3"'))
    served.connection.ask(c.Release(hold=hold))
    pages = (f"/jobs/{job_id}", f"/jobs/{job_id}?reveal=yes", f"/jobs/{job_id}/edit", f"/jobs/{job_id}/data")
    with served.client() as client:
        reader = sign_in(client, served.token("reader", Scope.READ))
        manager = sign_in(client, served.token("manager", Scope.READ, Scope.MANAGE))
        shown = [client.get(path, Cookie=cookie) for cookie in (reader, manager) for path in pages]

    assert ["hunter2" in page.body.decode() for page in shown] == [False] * 5 + [True] * 3
    assert ["hunter3" in page.body.decode() for page in shown] == [False] * 5 + [True] + [False] * 2
    assert [page.status for page in shown] == [200, 200, 403, 403, 200, 200, 200, 200]
    assert all("sign in" in page.body.decode() for page in (*shown[:2], *shown[4:6]))


def test_data_without_secrets_can_be_downloaded_by_readers(serve):
    """As it is kept."""
    served = serve(token_always=True)
    job_id = add(served, data='{"name":  "ann"}')

    with served.client(served.token("reader", Scope.READ)) as client:
        reply = client.get(f"/jobs/{job_id}/data")

    assert (reply.status, reply.body) == (200, b'{"name":  "ann"}')


def test_data_that_is_nested_very_deeply_is_shown(served, client):
    """Its page is there for those who want to cancel the job; what may be a secret down there is hidden."""
    job_id = add(served, data='[{"name": "ann"},' + "[" * 700 + '{"password": "hunter2"}' + "]" * 700 + "]")

    shown, whole = client.get(f"/jobs/{job_id}"), client.get(f"/jobs/{job_id}?reveal=yes&whole=yes")

    assert (shown.status, whole.status) == (200, 200)
    assert [b"ann" in page.body for page in (shown, whole)] == [True, True]
    assert [b"hunter2" in page.body for page in (shown, whole)] == [False, True]


def test_a_task_has_a_chart_and_percentiles_and_long_charts_have_dates(served):
    """The list links to it; a month shows days, an hour the time of day."""
    job_id = add(served)
    (claimed,) = served.connection.ask(c.Claim(tasks=("resize",)))
    served.connection.ask(c.Answer(hold=c.hold_of(claimed.job), code=Code.OK))
    with served.client() as client:
        tasks = client.get("/tasks").body.decode()
        hour = client.get("/task?task=resize").body.decode()
        month = client.get("/task?task=resize&span=month").body.decode()
        every = client.get("/task").body.decode()

    assert claimed.job.id == job_id
    assert 'href="/task?task=resize"' in tasks
    assert "Run p50 / p95 / p99" in tasks
    assert "1 finished" in hour
    assert "p99" in hour
    assert re.search(r'class="tick"[^>]*>\d\d-\d\d<', month)
    assert re.search(r'class="tick"[^>]*>\d\d:\d\d<', hour)
    assert "All tasks" in every


def test_what_is_not_known_is_not_shown_as_zero(served, client):
    """How the runs of tasks ended that the history does not list; what a worker ran, when it said so."""
    for n in range(NAMED_TASKS + 5):
        for _ in range(2 if n < 3 else 1):
            add(served, f"t{n:03}")
            (claimed,) = served.connection.ask(c.Claim(tasks=(f"t{n:03}",)))
            served.connection.ask(c.Answer(hold=c.hold_of(claimed.job)))
    served.connection.ask(c.Upkeep())
    served.connection.ask(
        c.Enlist(
            worker=Worker(name="w", host="h", pid=7, started_at=1, running=1, said_at=1, until_ms=1 << 42)
        )
    )

    tasks = ""
    path: str | None = "/tasks"
    while path:
        page = client.get(path).body.decode()
        tasks += page
        link = re.search(r'href="([^"]*)" rel="next"', page)
        path = unescape(link[1]) if link else None
    ended = re.findall(r'data-label="Ended/h">([^<]*)<', tasks)

    assert ended.count("not known") == 5
    assert ended.count("≥ 2") == 3
    assert "0" not in ended
    assert "5 runs of tasks that were not among the busiest: of which tasks is not known." in tasks
    workers = client.get("/workers").body.decode()
    assert re.search(r'data-label="As of"><time', workers)
