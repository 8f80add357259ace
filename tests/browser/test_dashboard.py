"""The dashboard in a real browser: every page and action, live, dark, narrow, by keyboard."""

from pathlib import Path

import msgspec
import pytest

from holdfast.core import commands as c
from holdfast.core import queries as q
from holdfast.core.access import Scope
from holdfast.core.bounds import DAY_MS
from holdfast.core.job import State
from holdfast.core.limits import Limit
from holdfast.core.queries import GetRetention
from holdfast.core.worker import Worker
from holdfast.journal.connection import JournalConnection, JournalMaker
from holdfast.journal.folder import RefusedLine
from holdfast.queue.connect import store_maker
from holdfast.serve.dashboard.layout import asset
from holdfast.serve.http.events import LOOK_S
from holdfast.store.memory.store import MemoryStore
from tests.browser.accessibility import findings
from tests.browser.conftest import fill
from tests.browser.webdriver import Browser
from tests.http.served import Served
from tests.queue_suite.tools import until

pytestmark = pytest.mark.long

PAGES = (
    "/",
    "/jobs",
    "/tasks",
    "/schedules",
    "/limits",
    "/workers",
    "/handlers",
    "/handler",
    "/handler?task=add",
    "/consumers",
    "/journal",
    "/settings",
    "/settings?report=yes",
    "/sign-in",
)
NASTY = '<img src=x onerror="document.title=1">\x00 \u202egnirts עברית 🐙'


def test_every_page_is_clean_in_every_look(browser: Browser, served: Served, address: str) -> None:
    """Light and dark, wide and narrow: no error, no other host, and no finding about accessibility."""
    jobs = fill(served)
    served.connection.ask(c.Add(jobs=(c.NewJob(task="resize", tenant="acme"),)))
    pages = [
        *PAGES,
        "/jobs?q=state:failed",
        "/limits?edit=cdn",
        "/nope",
        "/tasks?tenant=nobody",
        *(f"/jobs/{job_id}" for job_id in jobs.values()),
    ]
    pages.append(f"/jobs/{jobs['failed']}/edit")
    found = []
    for page in pages:
        browser.open(address + page)
        found += [(page, finding) for finding in findings(browser)]
    assert found == []
    # The browser tells of the page that is not there.
    assert [one for one in browser.complaints() if "/nope" not in one] == []
    strangers = [
        url for url in browser.requests() if not url.startswith((address, "about:", "data:", "chrome:"))
    ]
    assert strangers == []


def test_the_journal_is_shown(browser: Browser, tmp_path: Path) -> None:
    """Of a server that has one: what waits, and what the store refused."""
    served = Served(JournalMaker(store_maker(str(tmp_path / "jobs.db")), tmp_path / "j"))
    connection = served.connection
    assert isinstance(connection, JournalConnection)
    try:
        connection.ask(c.Add(jobs=(c.NewJob(task="kept"),)))
        until(lambda: connection.journal.is_empty)
        refused = RefusedLine(at_ms=1, id="7", tenant="", task=NASTY, code="REFUSED", error=NASTY, job=b"")
        connection.journal.folder.keep_refused([refused])
        browser.open(f"http://127.0.0.1:{served.address[1]}/journal")
        browser.wait_text("All jobs are in the store.")
        assert "<img src=x" in browser.text("#live table")
        assert findings(browser) == []
        assert browser.complaints() == []
    finally:
        browser.open("about:blank")
        served.close()


def test_a_page_shows_changes_without_a_reload(browser: Browser, served: Served, address: str) -> None:
    """Counts, the progress of a job, and nothing while it is paused."""
    jobs = fill(served)
    browser.open(f"{address}/jobs")
    browser.run("window.marked = true")
    browser.wait_text("Live", "#live-state")
    served.connection.ask(c.Add(jobs=(c.NewJob(task="brandnew"),)))
    browser.wait_text("brandnew", "#live")
    assert browser.run("return window.marked")

    browser.click("#live-toggle")
    browser.wait_text("Paused", "#live-state")
    updates = int(browser.run("return document.body.dataset.updates"))
    served.connection.ask(c.Add(jobs=(c.NewJob(task="unseen"),)))
    browser.click("#live-toggle")
    browser.wait_text("unseen", "#live")
    assert int(browser.run("return document.body.dataset.updates")) > updates

    browser.open(f"{address}/jobs/{jobs['running']}")
    job = served.connection.ask(q.GetJob(job_id=jobs["running"]))
    browser.wait_text("Live", "#live-state")
    served.connection.ask(c.Report(hold=c.hold_of(job), fraction=0.9, note="nearly there"))
    browser.wait_text("nearly there", "#live")
    assert browser.complaints() == []


def test_what_is_set_elsewhere_is_shown(browser: Browser, served: Served, address: str) -> None:
    """A pause, a limit and a schedule that other programs set: pages are told, and read again."""
    fill(served)
    for page, command, text in (
        ("/tasks", c.Pause(task="report"), "paused for all tenants"),
        ("/limits", c.SetLimit(domain=b"elsewhere", limit=Limit(rate=2.0)), "elsewhere"),
        ("/limits", c.SetLimit(domain=b"elsewhere", limit=Limit(rate=3.0)), "3/s"),
        ("/schedules", c.PauseSchedule(name="nightly"), "paused"),
    ):
        browser.open(address + page)
        browser.wait_text("Live", "#live-state")
        served.connection.ask(command)
        browser.wait_text(text, "#live table")
    # The server looks once a second, and a page waits a second at most between two reads.
    assert LOOK_S <= 1
    assert "LEAST_MS = 1000" in asset("app.js")[0].decode()


def test_a_notice_vanishes_and_is_told_once(browser: Browser, served: Served, address: str) -> None:
    """It leaves the address, so that neither a reload nor a live update tells it again."""
    jobs = fill(served)
    browser.open(f"{address}/jobs/{jobs['waiting']}")
    browser.click_text("button", "Cancel")
    browser.wait_text("Cancelled, or asked to stop.", ".notice")
    assert browser.run("return location.search") == ""
    browser.wait("return !document.querySelector('.notice')")


def test_a_log_follows_its_end(browser: Browser, served: Served, address: str) -> None:
    """Until the reader scrolls up."""
    jobs, ask = fill(served), served.connection.ask
    hold = c.hold_of(ask(q.GetJob(job_id=jobs["running"])))
    ask(c.WriteLog(hold=hold, lines=tuple(f"line {number}" for number in range(120))))
    browser.open(f"{address}/jobs/{jobs['running']}")
    at_end = (
        "const b = document.querySelector('.log'); return b.scrollHeight - b.scrollTop - b.clientHeight < 8"
    )
    browser.wait(f"{at_end} && b.scrollHeight > b.clientHeight")
    browser.wait_text("Live", "#live-state")
    ask(c.WriteLog(hold=hold, lines=("a new line",)))
    browser.wait_text("a new line", ".log")
    browser.wait(at_end)
    browser.run("document.querySelector('.log').scrollTop = 0")
    browser.wait("return document.querySelector('.log').scrollTop === 0")
    ask(c.WriteLog(hold=hold, lines=("another line",)))
    browser.wait_text("another line", ".log")
    assert browser.run("return document.querySelector('.log').scrollTop") == 0


def test_long_names_and_many_jobs_keep_their_shape(browser: Browser, served: Served, address: str) -> None:
    """A long host name breaks within its cell; fifty jobs on a phone are a few screens."""
    long = "ip-10-0-0-1.eu-central-1.compute.internal." * 5
    worker = Worker(name=long, host=long, pid=7, started_at=1, until_ms=1 << 42)
    served.connection.ask(c.Enlist(worker=worker))
    served.connection.ask(c.Add(jobs=tuple(c.NewJob(task="resize") for _ in range(50))))
    browser.open(f"{address}/workers")
    assert browser.run("const t = document.querySelector('.scroll'); return t.scrollWidth <= t.clientWidth")
    assert findings(browser) == []
    browser.resize(390, 844)
    browser.open(f"{address}/jobs")
    assert browser.count("input[name=id]") == 50
    assert browser.run("return document.documentElement.scrollHeight") < 4_000


def test_actions_by_their_buttons(browser: Browser, served: Served, address: str) -> None:
    """Retry, edit, cancel, delete; pause a task; limits; schedules; tokens; many jobs at once."""
    jobs, ask = fill(served), served.connection.ask
    browser.open(f"{address}/jobs/{jobs['failed']}")
    browser.click_text("button", "Retry")
    browser.wait_text("Put back in the queue")
    browser.click_text("a", "Edit")
    browser.type("#data", '{"path": "b.png"}')
    browser.click_text("button", "Save")
    browser.wait_text("Saved")
    assert ask(q.GetData(job_id=jobs["failed"])) == '{"path": "b.png"}'
    browser.click_text("button", "Cancel")
    browser.wait_text("Cancelled")
    browser.click_text("button", "Delete")
    browser.accept()
    browser.wait_text("Deleted")
    browser.open(f"{address}/tasks")
    browser.click("button[aria-label='Pause report']")
    browser.wait_text("Paused.")
    browser.click("button[aria-label='Resume report']")
    browser.wait_text("Resumed.")
    assert ask(q.ListPauses()) == []
    browser.open(f"{address}/limits")
    browser.type("#domain", "api")
    browser.type("#rate", "2.5")
    browser.click_text("button", "Set limit")
    browser.wait_text("2.5/s")
    browser.click("button[aria-label='Lift the limit of api']")
    browser.accept()
    browser.wait_text("The limit is lifted")
    browser.open(f"{address}/schedules")
    browser.click("button[aria-label='Run now: nightly']")
    browser.wait_text("A job was added.")
    assert ask(q.ListJobs(filter=q.JobFilter(schedule="nightly"), limit=9))
    browser.click("button[aria-label='Pause nightly']")
    browser.wait_text("Paused.")
    browser.click("button[aria-label='Delete nightly']")
    browser.accept()
    browser.wait_text("No schedules")
    browser.open(f"{address}/workers")
    browser.click("button[aria-label='Stop w1']")
    browser.accept()
    browser.wait_text("The worker was asked to stop.")
    assert [one.stopping for one in ask(q.ListWorkers())] == [True]
    change_settings(browser, served, address)
    change_handlers(browser, address)
    browser.open(f"{address}/jobs?q=task%3Areport")
    browser.click("#all-matching")
    browser.click_text("button", "Cancel")
    browser.wait_text("Cancel 2 jobs that match now?")
    browser.click_text("button", "Cancel")
    browser.wait_text("Done. 2 jobs.")
    assert ask(q.GetJob(job_id=jobs["waiting"])).state is State.CANCELLED
    browser.open(f"{address}/jobs?q=task%3Alater")
    browser.click(f"input[name=id][value='{jobs['later']}']")
    browser.click("button[value=cancel]")
    browser.wait_text("Done. 1 job.")
    assert ask(q.GetJob(job_id=jobs["later"])).state is State.CANCELLED
    assert browser.complaints() == []


def change_settings(browser: Browser, served: Served, address: str) -> None:
    """Create and revoke a token, set the retention, delete old jobs; the audit log tells of it."""
    browser.open(f"{address}/settings")
    browser.click("main summary")
    browser.type("#token-name", "ops")
    browser.click_text("button", "Create token")
    browser.wait_text("hf_ops_")
    browser.open(f"{address}/settings")
    browser.wait_text("edit")
    browser.click("button[aria-label='Revoke ops']")
    browser.accept()
    browser.wait_text("The token is revoked")
    browser.type("#retention", "2d")
    browser.click_text("button", "Set retention")
    browser.accept()
    browser.wait_text("The retention is set.")
    assert served.connection.ask(GetRetention()) == 2 * DAY_MS
    browser.type("#older", "1h")
    browser.click("form[action$='/settings/purge'] button")
    browser.accept()
    browser.wait_text("Old jobs are deleted.")


def change_handlers(browser: Browser, address: str) -> None:
    """Edit a handler, try it, roll it back and delete it."""
    browser.open(f"{address}/handlers")
    browser.click_text("a", "add")
    browser.type("#body", "print('hello')\nreturn data['a'] * 10")
    browser.type("#sample", '{"a": 7}')
    browser.click_text("button", "Try")
    browser.wait_text("70", "#trial")
    assert "hello" in browser.text("#trial")
    browser.click_text("button", "Save")
    browser.wait_text("The stored handler is saved.")
    browser.click("button[aria-label='Roll back to version 1']")
    browser.accept()
    browser.wait_text("python, version 4, as version 1")
    browser.click_text("button", "Delete")
    browser.accept()
    browser.wait_text("No stored handlers")


def test_it_is_used_by_keyboard_alone(browser: Browser, served: Served, address: str) -> None:
    """Tab reaches everything with a visible focus, keys open pages, Enter follows a link."""
    fill(served)
    browser.open(f"{address}/")
    browser.press("Tab")
    assert browser.run("return document.activeElement.innerText") == "Skip to content"
    seen = set()
    for _ in range(60):
        browser.press("Tab")
        label, outline = browser.run(
            "const e = document.activeElement; return [e.innerText || e.getAttribute('aria-label') || e.name,"
            " getComputedStyle(e).outlineStyle]"
        )
        seen.add(label)
        assert outline != "none", label
        if "All" in seen and "day" in seen:
            break
    assert {"Overview", "Settings", "day"} <= seen
    browser.press("g", "h")
    browser.wait("return location.pathname === '/handlers'")
    browser.press("g", "j")
    browser.wait("return location.pathname === '/jobs'")
    browser.press("/")
    browser.wait("return document.activeElement.id === 'q'")
    browser.press(*"task:resize", "Enter")
    browser.wait("return location.search.includes('task%3Aresize')")
    browser.wait_text("resize", "table")


def test_a_tenant_is_chosen_and_stays_chosen(browser: Browser, served: Served, address: str) -> None:
    """By the switch, through pages, keys and actions; its row's button acts on that tenant alone."""
    new = [c.NewJob(task="resize", tenant=tenant) for tenant in ("", "acme", "globex")]
    served.connection.ask(c.Add(jobs=tuple(new)))
    browser.open(f"{address}/tasks")
    browser.click("details.tenant summary")
    browser.click_text("details.tenant a", "acme")
    browser.wait_text("Tenant acme", "main")
    browser.click("button[aria-label='Pause resize of acme']")
    browser.wait_text("Paused.")
    assert served.connection.ask(q.ListPauses()) == [("acme", "resize", None)]
    browser.press("g", "j")
    browser.wait("return location.pathname === '/jobs' && location.search === '?tenant=acme'")
    browser.wait_text("tenant acme", "footer")
    assert browser.count("input[name=id]") == 1
    assert findings(browser) == []


def test_data_of_all_kinds_is_text(browser: Browser, served: Served, address: str) -> None:
    """Markup does nothing, a megabyte is shown whole when it is asked for, and it is copied as it is."""
    data = msgspec.json.encode({"html": NASTY, NASTY: 1}).decode()
    large = msgspec.json.encode(NASTY + "word " * 200_000).decode()
    first, second = served.connection.ask(
        c.Add(jobs=(c.NewJob(task="<i>task</i>", data=data), c.NewJob(task="large", data=large)))
    )
    browser.open(f"{address}/jobs/{first}")
    assert "<img src=x onerror=" in browser.text("#live")
    assert browser.count("#live img") == 0
    assert "Holdfast" in browser.run("return document.title")
    browser.open(f"{address}/jobs/{second}")
    browser.wait("return document.querySelector('#live').textContent.includes('more characters')")
    browser.click_text("a", "Show all")
    browser.wait("return document.querySelector('#live pre').textContent.length > 1000000")
    assert browser.complaints() == []


def test_people_sign_in_and_see_what_they_may(browser: Browser, address: str) -> None:
    """A wrong token is refused; a reader of one tenant sees that tenant alone; signing out ends it."""
    served = Served(MemoryStore, token_always=True)
    try:
        address = f"http://127.0.0.1:{served.address[1]}"
        new = (c.NewJob(task="mine", tenant="a"), c.NewJob(task="theirs", tenant="b"))
        ids = served.connection.ask(c.Add(jobs=new))
        secret = served.token("reader", Scope.READ, tenant="a")
        browser.open(f"{address}/jobs")
        browser.type("#token", "hf_wrong_" + "0" * 48)
        browser.press("Enter")
        browser.wait_text("unknown, revoked or expired")
        browser.complaints()  # The browser tells of the refusal.
        browser.type("#token", secret)
        browser.press("Enter")
        browser.wait_text("mine", "#live")
        assert "theirs" not in browser.text()
        assert browser.count("form[method=post] button") == 1
        browser.open(f"{address}/jobs/{ids[1]}")
        assert "no such" in browser.text()
        assert [cookie["httpOnly"] for cookie in browser.cookies()] == [True]
        browser.click_text("button", "Sign out")
        browser.wait_text("Sign in")
        browser.open(f"{address}/jobs")
        browser.wait_text("Sign in")
    finally:
        browser.open("about:blank")
        served.close()


def test_pages_are_read_without_scripts(browser: Browser, served: Served, address: str) -> None:
    """With scripts off all is there to read: lists, the job, the chart."""
    jobs = fill(served)
    browser.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(f"{address}/jobs/{jobs['failed']}")
        nodes = " ".join(str(node.get("name", {}).get("value", "")) for node in browser.tree())
        assert "ValueError: bad" in nodes
        browser.open(f"{address}/")
        nodes = " ".join(str(node.get("name", {}).get("value", "")) for node in browser.tree())
        assert "Runs that ended, in the last hour: 0 finished, 0 retried, 1 failed" in nodes
    finally:
        browser.cdp("Emulation.setScriptExecutionDisabled", value=False)


def test_a_theme_is_remembered(browser: Browser, served: Served, address: str) -> None:
    """The button goes through system, light and dark; another page has the same."""
    browser.open(f"{address}/")
    browser.run("localStorage.clear()")
    browser.open(f"{address}/")
    browser.wait_text("Theme: system")
    for theme in ("light", "dark"):
        browser.click("#theme-toggle")
        assert browser.text("#theme-toggle") == f"Theme: {theme}"
        browser.open(f"{address}/jobs")
        assert browser.run("return document.documentElement.dataset.theme") == theme
    browser.run("localStorage.clear()")
