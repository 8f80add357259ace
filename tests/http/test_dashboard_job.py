"""The page of a job: its family and its runs; forms that keep what was typed; pages that are not there."""

import re
from html import unescape
from typing import Literal

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.job import Code, State
from holdfast.core.limits import Limit
from holdfast.core.worker import Worker
from tests.http.test_dashboard import add, send, token_of


def text_of(page, heading):
    """The text of a card."""
    found = re.search(rf"<section[^>]*><div[^>]*><h2>{heading}</h2>(.*?)</section>", page, re.DOTALL)
    return "" if found is None else " ".join(unescape(re.sub(r"<[^>]+>", " ", found[1])).split())


def claim(served, task):
    """The hold of the next job of a task."""
    (claimed,) = served.connection.ask(c.Claim(tasks=(task,), lease_ms=600_000))
    return c.hold_of(claimed.job)


def test_the_family_of_a_finished_parent_is_a_tree(served, client):
    """Its children are archived with it; each page shows the parent, and all children below it."""
    ask = served.connection.ask
    parent = add(served, "site")
    hold = claim(served, "site")
    new = tuple(c.NewJob(task=task, parent_id=parent) for task in ("page", "image"))
    family = (parent, *ask(c.Add(jobs=new, hold=hold)))
    ask(c.Answer(hold=hold))
    for task in ("page", "image", "site"):
        ask(c.Answer(hold=claim(served, task)))
    assert ask(q.GetJob(job_id=parent)).state is State.FINISHED
    assert ask(q.ListChildren(job_id=parent, limit=9)) == []

    pages = {job_id: client.get(f"/jobs/{job_id}").body.decode() for job_id in family}

    for job_id, page in pages.items():
        tree = re.search(r'<ul class="tree"><li>(.*?)<ul>(.*?)</ul></li></ul>', page, re.DOTALL)
        assert tree is not None
        linked = [int(found) for found in re.findall(r"/jobs/(\d+)", tree[1] + tree[2])]
        assert linked == [one for one in family if one != job_id]
        assert tree[2].count("<li>") == 2
        assert tree[0].count("this job") == 1
        assert "0 pending, 0 failed, 2 ended" in text_of(page, "Family")
    alone = client.get(f"/jobs/{add(served)}").body.decode()
    assert "Family" not in alone


def test_the_page_of_a_job_that_waits_for_a_signal_sends_it(served, client):
    """With what it has done so far; what is no JSON is kept in the form."""
    job_id = add(served, "order")
    hold = claim(served, "order")
    served.connection.ask(
        c.Step(hold=hold, name="charge", result='{"card":"visa","token":"t-1"}', took_ms=1_500)
    )
    waits = c.Suspension(kind="signal", name="approval")
    served.connection.ask(c.Answer(hold=hold, code=Code.SUSPEND, suspend=waits))
    page = client.get(f"/jobs/{job_id}").body.decode()
    assert re.search(r'1 charge , 1.5 s .*"visa".*2 signal approval .* waits', text_of(page, "Steps"))
    assert "t-1" not in page
    assert "waits for 'approval'" in unescape(client.get("/jobs").body.decode())
    served.connection.ask(c.SendSignal(job_id=job_id, name="aproval", data="1"))
    page = client.get(f"/jobs/{job_id}").body.decode()
    assert "Signals not read yet: 'aproval'." in unescape(page)

    wrong = send(client, f"/jobs/{job_id}/signal", token_of(page), name="approval", data="{nope")
    assert (wrong.status, "{nope" in unescape(wrong.body.decode())) == (400, True)
    sent = send(client, f"/jobs/{job_id}/signal", token_of(page), name="approval", data='{"by": "Ann"}')

    assert (sent.status, sent.headers["location"]) == (303, f"/jobs/{job_id}?done=signal")
    assert served.connection.ask(q.GetSteps(job_id=job_id))[1].result == '{"by": "Ann"}'
    assert "The signal is sent." in client.get(f"/jobs/{job_id}?done=signal").body.decode()


def test_steps_that_wait_say_when_they_end(served, client):
    """In words, before and after; the process of a run that is not listed is called so."""
    kinds: tuple[Literal["sleep", "signal"], ...] = ("sleep", "signal")
    ids = {kind: add(served, kind) for kind in kinds}
    for kind in kinds:
        waits = c.Suspension(kind=kind, name="paid" if kind == "signal" else "", delay_ms=86_400_000)
        served.connection.ask(c.Answer(hold=claim(served, kind), code=Code.SUSPEND, suspend=waits))

    pages = {kind: client.get(f"/jobs/{job_id}").body.decode() for kind, job_id in ids.items()}

    assert re.search(r"1 sleep .* ends in (1 d|23 h)", text_of(pages["sleep"], "Steps"))
    assert re.search(r"1 signal paid .* times out in (1 d|23 h)", text_of(pages["signal"], "Steps"))


def test_a_failed_job_goes_back_to_one_of_its_steps(served, client):
    """A button in each row; what comes before it is kept."""
    job_id = add(served, "order")
    hold = claim(served, "order")
    for name in ("charge", "pack"):
        served.connection.ask(c.Step(hold=hold, name=name, result="1"))
    page = client.get(f"/jobs/{job_id}").body.decode()
    assert "From here" not in page
    served.connection.ask(c.Answer(hold=hold, code=Code.FAILED))
    page = client.get(f"/jobs/{job_id}").body.decode()
    assert page.count("From here") == 2

    send(client, f"/jobs/{job_id}/requeue", token_of(page), **{"from": "2"})

    job = served.connection.ask(q.GetJob(job_id=job_id))
    assert (job.state, job.steps) == (State.QUEUED, 1)


def test_each_run_has_its_owner_and_its_duration(served, client):
    """The worker's name while it is registered, for the runs that failed and for the one that did not."""
    ask = served.connection.ask
    ask(c.Enlist(worker=Worker(name="worker-7", host="h", pid=7, started_at=1, until_ms=1 << 42)))
    job_id = add(served)
    for code in (Code.ERROR, Code.OK):
        ask(c.Answer(hold=claim(served, "resize"), code=code, error="bad" * (code is Code.ERROR), delay_ms=0))

    runs = text_of(client.get(f"/jobs/{job_id}").body.decode(), "Runs")

    assert ask(q.GetJob(job_id=job_id)).state is State.FINISHED
    assert runs.count("worker-7") == 2
    assert len(re.findall(r"ran \d+ ms", runs)) == 2


def test_the_page_of_a_lost_job_says_how_its_process_died(served, client):
    """Among its runs, in their order, and in the list of what failed."""
    ask = served.connection.ask
    job_id = add(served, max_losses=1)
    ask(c.Answer(hold=claim(served, "resize"), code=Code.ERROR, error="bad", delay_ms=0))
    hold = claim(served, "resize")
    ask(c.Extend(hold=hold, lease_ms=600_000, ran_ms=0))
    ask(c.Release(hold=hold, lost=True, error="the process of the executor ended with exit code 3"))

    runs = text_of(client.get(f"/jobs/{job_id}").body.decode(), "Runs")

    assert re.search("exit code 3.*bad", runs)
    failed = client.get("/jobs?q=state:failed").body.decode()
    assert "the process of the executor ended with exit code 3" in failed


def test_a_running_job_names_its_worker(served, client):
    """On its page and among the running jobs."""
    served.connection.ask(
        c.Enlist(worker=Worker(name="worker-7", host="h", pid=7, started_at=1, until_ms=1 << 42))
    )
    job_id = add(served)
    claim(served, "resize")

    pages = [client.get(page).body.decode() for page in (f"/jobs/{job_id}", "/workers")]

    assert "worker-7" in text_of(pages[0], "Details")
    assert "worker-7" in text_of(pages[1], "Running jobs")


@pytest.mark.parametrize(
    ("path", "fields", "kept"),
    [
        ("/limits/set", {"domain": "api", "rate": "fast", "burst": "3"}, ["api", "fast", "3"]),
        ("/limits/set", {"domain": "api"}, ["api"]),
        (
            "/settings/tokens/create",
            {"name": "two words", "tenant": "acme", "expires": "1d"},
            ["two words", "acme"],
        ),
        ("/settings/tokens/create", {"name": "ops", "scope": "read", "expires": "soon"}, ["ops", "soon"]),
        ("/settings/retention", {"retention": "long"}, ["long"]),
        ("/settings/purge", {"older": "ages"}, ["ages"]),
        ("/jobs/{job_id}/edit", {"data": '{"a": ', "priority": "7"}, ['{"a":', "7"]),
        (
            "/handlers/set",
            {"task": "t", "lang": "shell", "body": "ls", "cpu": "soon"},
            ["shell", "ls", "soon"],
        ),
        ("/handlers/set", {"task": "t", "lang": "python", "body": "x", "memory_mb": "lots"}, ["x", "lots"]),
    ],
)
def test_a_form_that_is_refused_keeps_what_was_typed(served, client, path, fields, kept):
    """The page of the form comes back with the reason, and nothing has changed."""
    path = path.replace("{job_id}", str(add(served)))
    csrf = token_of(client.get("/limits").body.decode())

    reply = send(client, path, csrf, **fields)
    page = reply.body.decode()

    assert reply.status == 400
    assert 'class="problem"' in page
    values = re.findall(r'value="([^"]*)"', page) + re.findall(r"<textarea[^>]*>([^<]*)</textarea>", page)
    assert [one for one in kept if one not in [unescape(value).strip() for value in values]] == []
    assert served.connection.ask(q.ListLimits()) == []


def test_an_edit_of_a_limit_keeps_what_was_not_changed(served, client):
    """The form of the limit has its values; another form for its domain changes only what it says."""
    served.connection.ask(c.SetLimit(domain=b"api", limit=Limit(rate=5.0, burst=3, concurrency=2)))
    link = unescape(re.findall(r'href="([^"]*edit=api[^"]*)"', client.get("/limits").body.decode())[0])
    form = client.get(link).body.decode()
    csrf = token_of(form)

    def limit():
        return served.connection.ask(q.ListLimits())[0].limit

    send(client, "/limits/set", csrf, domain="api", rate="7")
    merged = limit()
    send(client, "/limits/set", csrf, domain="api", edits="api", rate="", burst="1", concurrency="4")

    assert all(f'name="{name}" value="{value}"' in _sorted(form) for name, value in _values().items())
    assert merged == Limit(rate=7.0, burst=3, concurrency=2)
    assert limit() == Limit(concurrency=4)


def _sorted(form):
    """Fields with name and value beside each other."""
    fields = re.findall(r"<input [^>]*>", form)
    pairs = [(re.search(r'name="([^"]*)"', one), re.search(r'value="([^"]*)"', one)) for one in fields]
    return " ".join(f'name="{name[1]}" value="{value[1]}"' for name, value in pairs if name and value)


def _values():
    return {"domain": "api", "edits": "api", "rate": "5", "burst": "3", "concurrency": "2"}


def test_a_page_that_is_not_there_is_a_page(served, client):
    """With the navigation, for browsers; programs get a problem in JSON."""
    page = client.get("/nope", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    problem = client.get("/nope", Accept="application/json")

    assert (page.status, problem.status) == (404, 404)
    assert page.headers["content-type"].startswith("text/html")
    assert '<nav aria-label="Pages">' in page.body.decode()
    assert "content-security-policy" in page.headers
    assert problem.headers["content-type"] == "application/problem+json"


def test_a_page_that_is_not_there_needs_a_sign_in(serve):
    """A client without a token learns nothing."""
    served = serve(token_always=True)
    with served.client() as client:
        reply = client.get("/nope", Accept="text/html")

    assert (reply.status, reply.headers["location"]) == (303, "/sign-in?next=%2Fnope")


def test_the_filter_of_a_list_survives_an_action(served, client):
    """Of selected jobs, and of all that match after the preview."""
    jobs = [add(served) for _ in range(2)]
    link = "/jobs?q=task%3Aresize"
    page = client.get(link).body.decode()
    back = unescape(re.findall(r'name="back" value="([^"]*)"', page)[0])
    csrf = token_of(page)

    one = send(client, "/jobs/bulk", csrf, action="cancel", id=str(jobs[0]), back=back, q="task:resize")
    preview = send(client, "/jobs/bulk", csrf, action="cancel", all="yes", back=back, q="task:resize")
    kept = unescape(re.findall(r'name="back" value="([^"]*)"', preview.body.decode())[0])
    many = send(
        client, "/jobs/bulk", csrf, action="cancel", all="yes", sure="yes", back=kept, q="task:resize"
    )

    assert one.headers["location"] == f"{link}&done=bulk&count=1"
    assert many.headers["location"] == f"{link}&done=bulk&count=1"
