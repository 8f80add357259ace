"""Every page of the dashboard is there at once, however many jobs there are."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.core.job import State
from holdfast.core.queries import CheckCounts, JobFilter, SearchJobs
from holdfast.queue.connect import store_maker
from holdfast.serve.dashboard.app import PAGES
from tests.http.served import Served
from tests.servers import PostgresServer
from tests.stores import here_and_in_proof
from tests.stress.bulk import fill

TABS = ("ready", "held", "scheduled", "running", "paused", "failed", "finished", "cancelled")
SEARCHES = [
    *(f"state:{tab}" for tab in TABS),
    *("task:t7", "task:t7+state:finished", "task:t7+state:failed", "task:none+state:ready"),
    *(
        f"{word}:1{tab}"
        for word in ("tenant", "domain", "schedule", "parent")
        for tab in ("", "+state:finished")
    ),
    *("data.user.id:-1", "data.user.id:7+state:finished", "data.user.id:-1+state:failed"),
]

# So many pages are listed, those that took longest.
SHOWN = 12


class Size(NamedTuple):
    """How many jobs there are, how often each page is loaded, and how long a share of the loads may take."""

    archived: int
    waiting: int
    loads: int
    most_ms: float
    share: float


SIZES = [
    # A time that only catches a hang: the full size is measured on a machine that does nothing else.
    pytest.param(Size(20_000, 2_000, 1, 60_000, 0.0), id="small"),
    pytest.param(Size(10_000_000, 1_000_000, 50, 200, 0.95), id="full", marks=pytest.mark.proof),
]


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> Size:
    """How much of it."""
    found: Size = request.param
    return found


@pytest.fixture(params=here_and_in_proof(["sqlite"], ["postgres"]))
def url(request: pytest.FixtureRequest, size: Size, tmp_path: Path) -> Iterator[str]:
    """The address of a store with these jobs."""
    if request.param == "sqlite":
        found = f"sqlite:///{tmp_path}/jobs.db"
        fill(found, size.archived, size.waiting)
        yield found
    elif size.archived < 1_000_000:
        found = request.getfixturevalue("postgres_url")
        fill(found, size.archived, size.waiting)
        yield found
    else:
        # The gigabytes go with the server; the buffers are PostgreSQL's default.
        with closing(PostgresServer(shared_buffers="128MB")) as server:
            fill(server.url(), size.archived, size.waiting)
            yield server.url()


def test_every_page_is_there_at_once(url: str, size: Size, tell: Callable[[str], None]) -> None:
    """Of each page, nineteen loads in twenty take no longer than they may; of a few, the fastest."""
    with closing(Served(store_maker(url))) as served:
        if size.archived < 1_000_000:
            assert served.connection.ask(CheckCounts()) == []
        took = {page: loads(served, page, size) for page in pages(served)}

    late = {page: ms for page, ms in took.items() if ms > size.most_ms}
    slowest = sorted(took.items(), key=lambda one: -one[1])[:SHOWN]
    tell(f"{len(took)} pages, the slowest " + ", ".join(f"{page} {ms:.0f} ms" for page, ms in slowest))
    assert late == {}


def pages(served: Served) -> list[str]:
    """Every page, that of a job for a waiting, a failed and a finished one, and the results of searches."""
    newest = [
        served.connection.ask(SearchJobs(filter=wanted, limit=2_000)).jobs[-1].id
        for wanted in (JobFilter(), JobFilter(state=State.FAILED), JobFilter(archived=True))
    ]
    found = [path.format(job_id=id) for path in PAGES for id in (newest if "{" in path else newest[:1])]
    # A job that has finished cannot be edited.
    found.remove(f"/jobs/{newest[2]}/edit")
    found += [f"/jobs?q={words}" for words in SEARCHES]
    found += [f"/jobs?before={newest[0]}", f"/jobs?q=state:finished&before={newest[2]}"]
    return [*found, "/?span=day", "/?span=month", "/metrics"]


def loads(served: Served, page: str, size: Size) -> float:
    """How many milliseconds a share of the loads took at most."""
    found = []
    with served.client() as client:
        for _ in range(size.loads):
            started = time.monotonic()
            reply = client.get(page)
            found.append((time.monotonic() - started) * 1000)
            assert reply.status == 200, (page, reply)
    return sorted(found)[min(int(size.loads * size.share), size.loads - 1)]
