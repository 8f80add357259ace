"""Tenants in the dashboard: rows act on their own tenant, one can be chosen, and pages say whose they are."""

import re
from html import unescape

import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.limits import Limit
from tests.http.test_dashboard import add, send, token_of


def rows_of(page):
    """The rows of tables, each as its text and its hidden fields."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL):
        fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', row))
        found.append((" ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()), fields, row))
    return found


def row_of(page, tenant):
    """The row of a tenant's task."""
    return next(one for one in rows_of(page) if one[1].get("tenant") == tenant)


@pytest.fixture
def shared(served):
    """A server whose task has jobs of three tenants, one of them the one without a name."""
    for tenant in ("acme", "globex", ""):
        add(served, tenant=tenant)
    return served


@pytest.mark.parametrize("tenant", ["acme", ""])
def test_a_row_pauses_and_resumes_its_tenant_alone(shared, client, tenant):
    """Jobs of the same task of other tenants go on, and the other rows say so."""
    _, fields, _ = row_of(client.get("/tasks").body.decode(), tenant)
    paused = send(client, "/tasks/pause", fields.pop("csrf"), **fields)
    between = shared.connection.ask(q.ListPauses())
    page = client.get("/tasks").body.decode()
    others = [row_of(page, other)[0] for other in ("acme", "globex", "") if other != tenant]
    text, fields, _ = row_of(page, tenant)
    resumed = send(client, "/tasks/pause", fields.pop("csrf"), **fields)

    assert (paused.status, resumed.status) == (303, 303)
    assert between == [(tenant, "resize", None)]
    assert "paused" in text
    assert "Resume" in text
    assert not any("paused" in other or "Resume" in other for other in others)
    assert shared.connection.ask(q.ListPauses()) == []


def test_a_pause_for_all_tenants_is_named_and_ended_as_one(shared, client):
    """Each row says that all tenants are paused; the button says that it resumes them all."""
    shared.connection.ask(c.Pause(task="resize"))

    rows = [row for row in rows_of(client.get("/tasks").body.decode()) if "resize" in row[0]]
    text, _, row = rows[0]
    resume = next(form for form in re.findall(r"<form.*?</form>", row, re.DOTALL) if "all tenants" in form)
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', resume))
    send(client, "/tasks/pause", fields.pop("csrf"), **fields)

    assert all("paused for all tenants" in row[0] for row in rows)
    assert "Resume for all tenants" in text
    assert shared.connection.ask(q.ListPauses()) == []


def test_the_pause_of_a_tenant_marks_that_tenant_alone(shared, client):
    """Rows of other tenants with the same task are not paused."""
    shared.connection.ask(c.Pause(tenant="acme", task="resize"))

    texts = [text for text, _, _ in rows_of(client.get("/tasks").body.decode()) if text.startswith("resize")]

    assert sorted(text.partition(" chart")[0] for text in texts) == [
        "resize",
        "resize acme paused",
        "resize globex",
    ]


def test_the_link_of_a_task_leads_to_the_jobs_of_its_tenant(shared, client):
    """Of the row's tenant, not of all."""
    _, _, row = row_of(client.get("/tasks").body.decode(), "acme")
    link = unescape(re.findall(r'href="(/jobs[^"]*)"', row)[0])

    text = client.get(link).body.decode()

    assert "tenant=acme" in link
    assert text.count('name="id"') == 1


def test_a_tenant_is_chosen_in_the_navigation_and_stays(shared, client):
    """Every link keeps it, the page and the footer name it; a link leads back to all."""
    everywhere = client.get("/jobs").body.decode()
    link = unescape(next(one for one in re.findall(r'href="([^"]*)"', everywhere) if "tenant=acme" in one))
    chosen = client.get(link).body.decode()
    links = re.findall(r'<nav aria-label="Pages">(.*?)</nav>', chosen, re.DOTALL)[0]

    assert link == "/jobs?tenant=acme"
    assert all("tenant=acme" in one for one in re.findall(r'href="([^"]*)"', links))
    assert "Tenant <bdi>acme</bdi>" in re.findall(r"<main.*?</main>", chosen, re.DOTALL)[0]
    assert "tenant acme" in re.findall(r"<footer.*?</footer>", chosen, re.DOTALL)[0]
    assert "<title>Jobs · acme · Holdfast</title>" in chosen
    assert 'href="/jobs">All tenants</a>' in chosen
    assert 'href="/jobs?tenant=">no tenant</a>' in chosen
    assert chosen.count('name="id"') == 1


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("/limits", "No limits"),
        ("/schedules", "No schedules"),
        ("/handlers", "No stored handlers"),
        ("/consumers", "No consumers"),
    ],
)
def test_a_page_that_shows_nothing_says_of_whom(shared, client, page, text):
    """What belongs to one tenant is shown for jobs without a tenant until one is chosen: the page says so."""
    shared.connection.ask(c.SetLimit(domain=b"cdn", tenant="globex", limit=Limit(rate=1.0)))

    everyone, acme = (client.get(page + end).body.decode() for end in ("", "?tenant=acme"))

    assert f"{text} without a tenant" in everyone
    assert "Choose a tenant" in everyone
    assert f"{text} of tenant acme" in acme
    assert f"{text} of tenant globex" not in client.get("/limits?tenant=globex").body.decode()


def test_where_no_job_has_a_tenant_none_is_mentioned(served, client):
    """Most stores have no tenants."""
    add(served)

    pages = [client.get(page).body.decode() for page in ("/limits", "/schedules", "/handlers", "/tasks")]

    assert not any("without a tenant" in page or "Choose a tenant" in page for page in pages)
    assert 'href="/jobs?q=task%3Aresize"' in pages[-1]


def test_an_unknown_tenant_is_called_so(shared, client):
    """A misspelt name is no tenant without jobs; one that has only a limit is known."""
    shared.connection.ask(c.SetLimit(domain=b"cdn", tenant="early", limit=Limit(rate=1.0)))

    pages = {name: client.get(f"/jobs?tenant={name}").body.decode() for name in ("acmee", "acme", "early")}

    assert "Nothing in this store belongs to tenant <bdi>acmee</bdi>" in pages["acmee"]
    assert not any("Nothing in this store belongs" in pages[name] for name in ("acme", "early"))


def test_a_pause_without_a_tenant_is_ended_by_a_resume_without_one(served, client):
    """Whatever made it: Python and the command line pause jobs without a tenant, HTTP those of all."""
    for pause in (c.Pause(task="resize"), c.Pause(task="resize", tenant="")):
        served.connection.ask(pause)
        served.connection.ask(c.Pause(task="resize", tenant="acme"))

        reply = client.post("/v1/pauses", {"task": "resize", "on": False})

        assert reply.status == 204
        assert served.connection.ask(q.ListPauses()) == [("acme", "resize", None)]


def test_many_tenants_do_not_fill_the_navigation(served, client):
    """The first hundred are listed; others are typed."""
    new = tuple(c.NewJob(task="resize", tenant=f"t{number:03}") for number in range(150))
    served.connection.ask(c.Add(jobs=new))

    page = client.get("/settings").body.decode()

    assert page.count("/settings?tenant=t") == 99
    assert "More: type the name" in page
    assert 'name="tenant"' in page


def test_a_limit_is_set_for_the_tenant_that_is_shown(shared, client):
    """And for no other."""
    page = client.get("/limits?tenant=acme").body.decode()

    send(client, "/limits/set?tenant=acme", token_of(page), domain="api", rate="5")

    assert [one.domain for one in shared.connection.ask(q.ListLimits(tenant="acme"))] == [b"api"]
    assert shared.connection.ask(q.ListLimits()) == []
