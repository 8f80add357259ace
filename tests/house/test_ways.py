"""`docs/add-and-finish.md` lists the files that an add and a finish pass: all of them, on every store."""

import re
import sys
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.queue import tracing
from holdfast.store import contract

ROOT = Path(__file__).parents[2]
PACKAGE = "src/holdfast/"
PAGE = (ROOT / "docs/add-and-finish.md").read_text()
MOST = 16
STORES = {"memory": "", "sqlite": "", "postgres": "postgres_url", "redis": "redis_url"}
# What files on the way use, and what neither decides nor writes anything by itself: records, ids, the clock,
# pools and drivers, how values are written down.
USED = re.compile(
    r"queue/(base|lease|timers)|engine/(done|sysid)|engine/batch/(counters|new_jobs)|engine/commands/adding"
    r"|core/(ids|job|rank|commands|outcome|answering)|store/common/\w+"
    r"|store/sqlite/(pool|reads|connection|guard|wal|notify|statements|lock)|store/memory/\w+|store/contract"
    r"|store/postgres/(pool|connection|notify|statements|starts)|store/redis/(txn|rows|seen|keys|connection)"
)


def files_of(heading, store):
    """The files that a list of the page names, for a store."""
    part = re.search(rf"## `{heading}.*?(?=\n## |\Z)", PAGE, re.DOTALL)
    assert part is not None
    items = re.findall(r"^\d+\. `([\w/]+\.py)`", part.group(), re.MULTILINE)
    # The last item names a file of each store.
    last = re.findall(rf"`(store/{store}/\w+\.py)`", part.group())
    return [name.replace("STORE", store) for name in items] + last


class Follower:
    """The files of the package in which a function was called, in order."""

    def __init__(self):
        self._is_on = False
        self.files = {}

    def hear(self, frame, event, _arg):
        """A profile hook."""
        if event == "call" and self._is_on:
            file = frame.f_code.co_filename
            if PACKAGE in file:
                self.files.setdefault(file.rpartition(PACKAGE)[2])

    def follow(self, act):
        """Do something, and tell which files it passed."""
        self.files = {}
        self._is_on = True
        try:
            return act()
        finally:
            self._is_on = False


@pytest.fixture
def follower():
    follower = Follower()
    before = sys.getprofile()
    threading.setprofile(follower.hear)
    sys.setprofile(follower.hear)
    yield follower
    sys.setprofile(before)
    threading.setprofile(None)


@pytest.fixture(params=STORES)
def store(request):
    return request.param


@pytest.fixture
def queue(request, store, tmp_path, follower, monkeypatch):
    # Nothing is traced, also where another test has imported OpenTelemetry.
    monkeypatch.delitem(sys.modules, tracing.API, raising=False)
    address = request.getfixturevalue(STORES[store]) if STORES[store] else str(tmp_path / "jobs.db")
    with holdfast.connect("memory://" if store == "memory" else address) as queue:
        yield queue


def test_the_ways_are_as_the_page_says(queue, store, follower):
    """Every file that it names is passed, and nothing else but what is used on the way."""

    @queue.task
    def work(text: str) -> None: ...

    for _ in range(20):
        # What is looked up once is known after this.
        work.add("first")
        queue.next().done()
    work.add("again")
    job = queue.next()
    for heading, act in {"task.add": lambda: work.add("x"), "job.done": job.done}.items():
        follower.follow(act)
        named = files_of(heading, store)

        assert len(dict.fromkeys(named)) <= MOST
        assert [file for file in named if file not in follower.files] == []
        assert [
            f for f in follower.files if f not in named and not USED.fullmatch(f.removesuffix(".py"))
        ] == []


@pytest.mark.parametrize("part", [contract.Store, contract.ReadTxn, contract.Txn, contract.Changes])
def test_the_page_about_stores_names_the_whole_contract(part):
    """Every method that a store must have, and every field of what it writes."""
    page = (ROOT / "docs/stores.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| `{part.__name__}` |"))
    members = {name for name in (*vars(part), *part.__annotations__) if not name.startswith("_")}

    assert members - set(re.findall(r"\w+", row)) == set()
