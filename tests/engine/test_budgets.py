"""Function calls per job, of Python and of C, in all threads: a measure that no machine changes."""

import asyncio
import selectors
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.queue import tracing
from holdfast.queue.context import Context
from tests.doubles import engine_of
from tests.store.helpers import wait_until_settled

PACKAGE = Path(holdfast.__file__).parent
BELOW_THE_QUEUE = tuple(str(PACKAGE / room) for room in ("engine", "store"))
# The event loop and these tests.
AROUND_THE_QUEUE = (str(Path(asyncio.__file__).parent), selectors.__file__, __file__)
JOBS = 50

# From `add` until the engine has the command, and from its reply until `add` returns.
QUEUE_CALLS = 25
# With the engine and the store.
ALL_CALLS = {"memory": 73, "sqlite": 61}
GET_CALLS = {"memory": 46, "sqlite": 70}
# A claim of a thousand jobs and their finish, for each job, with the engine and SQLite.
CLAIM_AND_FINISH_CALLS = 25
# A loop of `next` and `done`, for each job; on SQLite most of them are those of 9 and 6 statements.
NEXT_AND_DONE_CALLS = {"memory": 400, "sqlite": 370}
# A step of a handler: a commit of one job and one row.
STEP_CALLS = {"memory": 225, "sqlite": 250}


class Profile:
    """Counts calls: all of them, and those of this thread that are not made below the queue."""

    def __init__(self):
        self.all = self.queue = 0
        self._is_on = False
        self._thread = threading.get_ident()
        # The frame in which this thread is below the queue.
        self._below = None

    def __enter__(self):
        # For threads that are started from now on.
        threading.setprofile(self._hear)
        return self

    def __exit__(self, *_):
        threading.setprofile(None)

    @contextmanager
    def counting(self):
        """Count the calls of a block."""
        sys.setprofile(self._hear)
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False
            sys.setprofile(None)

    def count(self, act, times=JOBS):
        """Count the calls of something that was done often enough to be warm; how many the queue made."""
        for _ in range(times):
            act()
        with self.counting():
            for _ in range(times):
                act()
        return self.queue / times

    def _hear(self, frame, event, _arg):
        if not self._is_on:
            return
        is_call = event in ("call", "c_call")
        self.all += is_call
        if threading.get_ident() != self._thread:
            return
        file = frame.f_code.co_filename
        if self._below is None and file.startswith(BELOW_THE_QUEUE):
            self._below = frame
        if self._below is None:
            self.queue += is_call and not file.startswith(AROUND_THE_QUEUE)
        elif event == "return" and frame is self._below:
            self._below = None


@pytest.fixture(autouse=True)
def few_libraries(monkeypatch):
    """No other SQLite library is loaded, which would have to be kept off the file, and nothing is traced."""
    for name in ("apsw", tracing.API):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory://" if request.param == "memory" else str(tmp_path / "jobs.db")


@pytest.fixture
def profile():
    with Profile() as profile:
        yield profile


@pytest.fixture
def queue(url, profile):
    with holdfast.connect(url) as queue:
        if url != "memory://":
            queue.counts()
            wait_until_settled(Path(url))
        yield queue


def test_an_add_of_a_task_stays_within_its_budget(queue, profile, url):
    """In the queue, and with everything that the engine and the store do for it in any thread."""

    @queue.task(attempts=5, timeout="2m")
    def work(text: str, *, size: int = 0) -> None: ...

    assert profile.count(lambda: work.add("x" * 100, size=7)) <= QUEUE_CALLS
    assert profile.all / JOBS <= ALL_CALLS["memory" if url == "memory://" else "sqlite"]


def test_a_get_stays_within_its_budget(queue, profile, url):
    """A query is answered in the thread that asks, from one view."""
    job = queue.add("work")

    profile.count(lambda: queue.get(job.id))
    assert profile.all / JOBS <= GET_CALLS["memory" if url == "memory://" else "sqlite"]


def test_a_loop_of_next_and_done_stays_within_its_budget(queue, profile, url):
    """No other thread is woken up for it: the calls of all are counted."""
    for _ in range(2 * JOBS):
        queue.add("work", {"text": "x" * 100})

    profile.count(lambda: queue.next(["work"]).done())
    assert profile.all / JOBS <= NEXT_AND_DONE_CALLS["memory" if url == "memory://" else "sqlite"]


def test_a_step_stays_within_its_budget(queue, profile, url):
    """One plain commit, like an answer: nothing is read, also after steps before it."""
    queue.add("work", {"text": "x"})
    ctx = Context(queue.next(["work"], renew=False), queue)
    names = iter(range(10 * JOBS))
    ctx.step("first", len, "")

    profile.count(lambda: ctx.step(f"s{next(names)}", len, ""))
    assert profile.all / JOBS <= STEP_CALLS["memory" if url == "memory://" else "sqlite"]


def test_options_that_are_kept_cost_an_add_nothing(queue, profile):
    """`using` has read them."""

    @queue.task
    def work(text: str) -> None: ...

    using = work.using(priority=900, delay="30s", expires="1h", unique_for=None)

    assert profile.count(lambda: using.add("x" * 100)) <= QUEUE_CALLS


@pytest.mark.parametrize("name", ["known", "unknown"])
def test_an_add_by_name_stays_within_the_same_budget(queue, profile, name):
    @queue.task
    def known(text: str) -> None: ...

    assert profile.count(lambda: queue.add(name, {"text": "x" * 100})) <= QUEUE_CALLS


def test_many_calls_of_a_task_are_written_one_by_one_and_prepared_once(queue, profile):
    """Each pays for its arguments alone."""

    @queue.task(attempts=5, timeout="2m")
    def work(text: str) -> None: ...

    calls = [("x" * 100,)] * 1_000

    assert profile.count(lambda: work.add_many(calls), times=2) / len(calls) <= 12


def test_an_awaited_add_stays_within_the_same_budget(url, profile):
    """Less what the event loop does for it."""

    async def story():
        async with holdfast.connect_async(url) as queue:

            @queue.task(attempts=5, timeout="2m")
            async def work(text: str, *, size: int = 0) -> None: ...

            for _ in range(JOBS):
                await work.add("x" * 100, size=7)
            with profile.counting():
                for _ in range(JOBS):
                    await work.add("x" * 100, size=7)

    asyncio.run(story())

    assert profile.queue / JOBS <= QUEUE_CALLS


def test_claims_and_finishes_by_the_thousand_stay_within_their_budget(tmp_path, profile):
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        line = queue.connection
        queue.add_many([("work", {"text": "x" * 100})] * 2_000)

        def claim_and_finish():
            claimed = line.ask(c.Claim(limit=1_000, lease_ms=60_000, tenant=""))
            assert len(claimed) == 1_000
            answers = [c.Answer(hold=c.hold_of(one.job), held=one.job) for one in claimed]
            engine_of(line).execute(answers)

        profile.count(claim_and_finish, times=1)

    assert profile.all / 1_000 <= CLAIM_AND_FINISH_CALLS


def test_a_single_add_is_one_statement_on_sqlite(tmp_path):
    """Which its trigger counts."""
    asked: list[str] = []
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        for _ in range(5):
            queue.add("work", {"text": "x" * 100})
        connection = queue.connection.store._pool.open().connection  # type: ignore[attr-defined]
        connection.set_trace_callback(asked.append)
        queue.add("work", {"text": "x" * 100})
        connection.set_trace_callback(None)

    # A statement whose triggers did something is shown twice.
    assert len(list(dict.fromkeys(asked))) == 1, asked
