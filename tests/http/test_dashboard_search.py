"""The words of a search, as people and others type them."""

import re
import time
from html import unescape
from urllib.parse import urlencode

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import BadInput
from holdfast.core.job import Code
from holdfast.engine import search
from holdfast.serve.dashboard.pages import jobs as jobs_page
from holdfast.serve.dashboard.search import SEARCH_CHARS, read_search
from holdfast.store.common.clock import system_clock
from holdfast.store.memory.store import MemoryStore

# Far more than a search takes, and far less than one that tries every way to part its words.
SOON_S = 5.0


def test_names_after_dots_are_a_path_into_the_data():
    """However many there are; a word without a value is a task."""
    found = read_search('data.user.id:42 data.a.b.c:"x y" mail.send.all')

    assert [tuple(one) for one in found.data] == [("user.id", "42"), ("a.b.c", "x y")]
    assert found.words == {"task": "mail.send.all"}


@pytest.mark.parametrize("word", ["a" + ".a" * 1_000, "data." * 1_000 + '"', "a" * 9_000, '"' + "\\" * 9_000])
def test_a_search_of_any_form_is_read_at_once(word):
    """All clients of the server wait for it."""
    began_s = time.process_time()

    read_search(word)

    assert time.process_time() - began_s < SOON_S


def test_a_search_has_a_limit():
    """The error says which."""
    read_search("a" * SEARCH_CHARS + "  \n")

    with pytest.raises(BadInput, match=r"search is '10,001 characters', and must be at most 10,000"):
        read_search("a" * (SEARCH_CHARS + 1))


def test_jobs_are_found_by_error_priority_worker_and_time(serve):
    """Live and archived ones; a wrong value is named."""
    now = [system_clock()]
    served = serve(lambda: MemoryStore(clock=lambda: now[0]))
    ask = served.connection.ask

    def add(**options):
        (job_id,) = ask(c.Add(jobs=(c.NewJob(task="t", max_attempts=1, **options),)))
        return job_id

    failed, done, urgent = add(), add(), add(priority=900)
    (claimed,) = ask(c.Claim(tasks=("t",), limit=1, priority=500))
    ask(c.Answer(hold=c.hold_of(claimed.job), code=Code.FAILED, error="Connection timed OUT"))
    (other,) = ask(c.Claim(tasks=("t",), limit=1, priority=500))
    now[0] += 3 * 3_600_000
    late = add()

    def found(text):
        with served.client() as client:
            page = client.get("/jobs?" + urlencode({"q": text}))
        assert page.status == 200, page
        return {int(one) for one in re.findall(r'aria-label="Select job (\d+)"', page.body.decode())}

    assert found("error:timed") == {failed}
    assert found("priority:900") == {urgent}
    assert found(f"worker:{other.job.owner} state:running") == {done}
    assert found("since:2h") == {late}
    assert found("until:2h") == {failed, done, urgent}
    with served.client() as client:
        page = client.get("/jobs?q=since:soon")
        tabs = client.get("/jobs?q=data.x:1").body.decode()
    assert page.status == 400
    assert b"2h for two hours ago" in page.body
    assert "<b>" not in tabs[tabs.index('class="tabs"') : tabs.index("</nav>", tabs.index('class="tabs"'))]


def test_a_search_that_was_cut_says_how_far_it_came(serve, monkeypatch):
    """With a link to go on, until the job is found and all was searched."""
    monkeypatch.setattr(search, "FEW", 0)
    for module in (search, jobs_page):
        monkeypatch.setattr(module, "SEARCH_S", 0.0)
    now = [system_clock()]
    served = serve(lambda: MemoryStore(clock=lambda: now[0]))
    ids = []
    for n in range(8):
        ids += served.connection.ask(c.Add(jobs=(c.NewJob(task="t", data=f'{{"n": {n}}}'),)))
        now[0] += 3_600_000
    said, found, path = [], [], "/jobs?" + urlencode({"q": "data.n:0"})
    with served.client() as client:
        while True:
            page = client.get(path).body.decode()
            said += re.findall(r"Searched (\d+)% of the time", page)
            found += re.findall(r'aria-label="Select job (\d+)"', page)
            link = re.search(r'href="([^"]*)" rel="next">Search older jobs<', page)
            if link is None:
                break
            path = unescape(link[1])

    shown = [int(one) for one in dict.fromkeys(said)]
    assert len(shown) > 1
    assert shown == sorted(shown)
    assert found == [str(ids[0])]
