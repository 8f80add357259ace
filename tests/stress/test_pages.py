"""Every page of the dashboard is there at once, however many jobs there are."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from holdfast.core import ids, rank
from holdfast.core.bounds import HOUR_MS
from holdfast.core.job import Code, Job, Outcome, Place, State
from holdfast.queue.connect import store_maker
from holdfast.store.contract import Changes, NewJobs, Store
from holdfast.testing.stores.making import tally
from tests.http.served import Served

BATCH = 10_000
TASKS = 40
STATES = ("ready", "scheduled", "failed", "finished", "cancelled")
PAGES = [
    *("/", "/?span=month", "/jobs", "/tasks", "/schedules", "/limits", "/workers"),
    *("/handlers", "/handler", "/consumers", "/journal", "/settings"),
    *(f"/jobs?q=state:{state}" for state in STATES),
    *("/jobs?q=task:t7", "/jobs?q=task:t7+state:finished", "/jobs?q=data.user.id:-1", "/metrics"),
]


class Size(NamedTuple):
    """How many jobs there are, how often each page is loaded, and how long 19 loads in 20 may take."""

    archived: int
    waiting: int
    loads: int
    most_ms: float


SIZES = [
    # On a machine that does much else; the full size is measured on one that does not.
    pytest.param(Size(20_000, 2_000, 3, 2_000), id="small"),
    pytest.param(Size(10_000_000, 1_000_000, 50, 200), id="full", marks=pytest.mark.proof),
]


def job_ids(now_ms: int, first: int, count: int, of: int) -> Iterator[int]:
    """Ids spread over the last ten hours."""
    for n in range(first, first + count):
        at_ms = now_ms - 10 * HOUR_MS + n * 10 * HOUR_MS // of
        yield ids.first_at(at_ms) + (n % 32 << ids.SLOT_BITS)


def write(store: Store, template: Job, found: list[int], end: Callable[[Job], Job] | None) -> None:
    """Add jobs that are alike, to the archive if they have ended."""
    group = NewJobs(replace(template, id=found[0], size=2), [(id, "{}") for id in found])
    jobs = [replace(template, id=id, size=2) for id in found]
    ended = [] if end is None else [end(job) for job in jobs]
    archived = [job for job in ended if job.ended is not State.FAILED]
    swapped = [job for job in ended if job.ended is State.FAILED]
    changes = Changes(added=[group], archived=archived, swapped=swapped, counts=tally(ended or jobs))
    store.run(lambda _txn: (changes, None))


def fill(store: Store, size: Size) -> None:
    """Jobs that wait, and jobs that ended: one in a thousand cancelled, one in ten thousand failed."""
    now_ms = store.now_ms()
    total = size.archived + size.waiting
    for first in range(0, total, BATCH):
        count = min(BATCH, total - first)
        found = sorted(set(job_ids(now_ms, first, count, total)))
        task = f"t{first // BATCH % TASKS}"
        ready = Job(id=1, task=task, place=Place.READY, created_at=now_ms, run_at=now_ms)
        ready = replace(ready, rank=rank.ready(ready.priority, now_ms))
        if first >= size.archived:
            write(store, ready, found, None)
            continue

        def end(job: Job) -> Job:
            state = (
                State.FAILED
                if job.id % 9_973 == 0
                else State.CANCELLED
                if job.id % 997 == 0
                else State.FINISHED
            )
            outcome = Outcome(code=Code.OK, at=now_ms)
            return replace(
                job,
                place=Place.DONE,
                rank=now_ms,
                version=2,
                ended=state,
                finished_at=now_ms,
                outcome=outcome,
            )

        write(store, ready, found, end)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.mark.parametrize("size", SIZES)
def test_every_page_is_there_at_once(url: str, size: Size) -> None:
    """Of each page, nineteen loads in twenty take no longer than they may."""
    store = store_maker(url)()
    fill(store, size)
    store.close()
    served = Served(store_maker(url))
    try:
        took = {page: loads(served, page, size.loads) for page in PAGES}
    finally:
        served.close()

    late = {page: ms for page, ms in took.items() if ms > size.most_ms}
    print("\n".join(f"{page} {ms:.0f} ms" for page, ms in took.items()))  # noqa: T201 - for docs/proof.md
    assert late == {}


def loads(served: Served, page: str, count: int) -> float:
    """How many milliseconds nineteen of twenty loads took at most."""
    found = []
    with served.client() as client:
        for _ in range(count):
            started = time.monotonic()
            reply = client.get(page)
            found.append((time.monotonic() - started) * 1000)
            assert reply.status == 200, (page, reply)
    return sorted(found)[min(int(count * 0.95), count - 1)]
