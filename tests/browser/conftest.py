"""One browser for all tests, and a server for each on a store with something for every page."""

from collections.abc import Iterator

import pytest

from holdfast.core import commands as c
from holdfast.core.handler import Handler, SetHandler
from holdfast.core.job import Code
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.core.worker import Served as Serves
from holdfast.core.worker import Worker
from holdfast.store.memory.store import MemoryStore
from tests.browser.webdriver import Browser
from tests.http.served import Served
from tests.programs import or_skip, program


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser."""

    def start() -> Browser:
        program("chromium", "chromium")
        program("chromedriver", "chromium-driver")
        return Browser(tmp_path_factory.mktemp("browser"))

    browser = or_skip(start, what="the dashboard in a browser")
    yield browser
    browser.close()


@pytest.fixture
def browser(started: Browser) -> Browser:
    """The browser as it begins: light, wide, signed out, nothing noted."""
    started.open("about:blank")
    started.dark(False)
    started.resize(1280, 900)
    started.complaints()
    started.requests()
    return started


@pytest.fixture
def served() -> Iterator[Served]:
    """A server on an empty store."""
    server = Served(MemoryStore, handlers=True)
    yield server
    server.close()


@pytest.fixture
def address(served: Served) -> str:
    """Where the server is."""
    return f"http://127.0.0.1:{served.address[1]}"


def fill(served: Served) -> dict[str, int]:
    """Put something on every page; the ids of some jobs."""
    ask = served.connection.ask
    ask(c.SetLimit(domain=b"cdn", limit=Limit(concurrency=1)))
    ask(c.SetSchedule(schedule=Schedule(name="nightly", cron="0 2 * * *"), job=c.NewJob(task="report")))
    ask(c.StartProgress(name="mirror"))
    ask(SetHandler(handler=Handler(task="add", lang="python", body="return data['a'] + 1")))
    ask(SetHandler(handler=Handler(task="add", lang="python", body="return data['a'] + 2")))
    ask(
        c.Enlist(
            worker=Worker(
                name="w1",
                host="h",
                pid=7,
                started_at=1,
                serves=(Serves(tasks=("resize",)),),
                until_ms=1 << 42,
            )
        )
    )
    new = [c.NewJob(task="resize", data='{"path": "a.png"}', max_attempts=1), c.NewJob(task="report")]
    new += [c.NewJob(task="fetch", domain=b"cdn"), c.NewJob(task="later", delay_ms=3_600_000)]
    failed, waiting, running, later = ask(c.Add(jobs=tuple(new)))
    for task in ("resize", "fetch"):
        (claimed,) = ask(c.Claim(tasks=(task,), lease_ms=600_000))
        hold = c.hold_of(claimed.job)
        ask(c.WriteLog(hold=hold, lines=("reading", "writing")))
        if task == "resize":
            ask(c.Answer(hold=hold, code=Code.ERROR, error="ValueError: bad", traceback="Traceback …"))
        else:
            ask(c.Report(hold=hold, fraction=0.4, note="half way"))
    return {"failed": failed, "waiting": waiting, "running": running, "later": later}
