"""FastAPI and Starlette: a queue for as long as the application runs, and its jobs in the same process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.request import Request, urlopen

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import holdfast
from holdfast import testing
from holdfast.contrib.fastapi import get_queue, lifespan
from holdfast.queue.queue import Queue
from holdfast.store.memory.store import MemoryStore
from tests.doubles import Passing
from tests.ports import free_port
from tests.queue_suite.tools import LONG_S, until

SHOP = Path(__file__).parents[2] / "examples" / "fastapi_shop"


def counts(queue: Annotated[holdfast.Queue, Depends(get_queue)]):
    """What an endpoint asks of its queue."""
    return queue.counts()


@pytest.fixture
def queue(tmp_path):
    """A queue with a task."""
    queue = holdfast.connect(str(tmp_path / "jobs.db"))

    @queue.task
    def double(n: int) -> int:
        return 2 * n

    yield queue
    queue.close()


def test_the_queue_is_open_for_as_long_as_the_application_runs(queue, tmp_path):
    """Twice, as tests start it; it is created before the first request, for adds in transactions."""
    app = FastAPI(lifespan=lifespan(queue))
    app.get("/counts")(counts)

    for added in (1, 2):
        with TestClient(app) as client:
            assert (tmp_path / "jobs.db").exists()
            queue.add("double", {"n": 1})
            assert client.get("/counts").json() == {"double": {"QUEUED": added}}
        assert queue._session is None
    other = testing.queue()
    app.dependency_overrides[get_queue] = lambda: other
    with TestClient(app) as client:
        assert client.get("/counts").json() == {}
    other.close()


def test_starlette_has_the_queue_in_its_requests(queue):
    """And a queue that was open before stays open."""

    def show(request):
        return JSONResponse(get_queue(request).counts())

    assert queue.counts() == {}
    with TestClient(Starlette(routes=[Route("/", show)], lifespan=lifespan(queue))) as client:
        assert client.get("/").json() == {}
    assert queue._session is not None
    client = TestClient(Starlette(routes=[Route("/", show)]))
    with pytest.raises(RuntimeError, match=r"lifespan=lifespan\(queue\)"):
        client.get("/")


def test_jobs_run_in_the_application_until_it_ends(queue):
    """The one that runs then is waited for."""
    began, go_on = threading.Event(), threading.Event()

    @queue.task
    def slow() -> str:
        began.set()
        assert go_on.wait(LONG_S)
        return "done"

    with TestClient(FastAPI(lifespan=lifespan(queue, threads=2))):
        assert queue.add("double", {"n": 2}).result(wait=LONG_S) == 4
        last = slow.add()
        assert began.wait(LONG_S)
        threading.Timer(0.1, go_on.set).start()

    assert last.result() == "done"


def test_coroutines_run_on_the_loop_of_the_application(tmp_path):
    """Those of a queue of `connect_async`."""
    queue = holdfast.connect_async(str(tmp_path / "jobs.db"))
    loops = []

    @queue.task
    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    app = FastAPI(lifespan=lifespan(queue, threads=1))

    @app.get("/")
    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await (await note.add()).result(wait=LONG_S)

    with TestClient(app) as client:
        assert client.get("/").status_code == 200

    assert len(loops) == 2
    assert loops[0] is loops[1]


class Breaking(Passing):
    """A store whose first transaction fails."""

    fails = True

    def run(self, fn):
        """Fail, once."""
        if self.fails:
            self.fails = False
            raise holdfast.Unavailable("the disk is away")
        return super().run(fn)


def test_the_worker_goes_on_after_an_error_of_the_store(monkeypatch, caplog):
    """It is logged, and the application is not told."""
    monkeypatch.setattr("holdfast.work.worker.RESTART_S", 0.01)
    queue = Queue(lambda: Breaking(MemoryStore()), url="memory://")

    @queue.task
    def double(n: int) -> int:
        return 2 * n

    with TestClient(FastAPI(lifespan=lifespan(queue, threads=1))):
        until(lambda: "starts again: the disk is away" in caplog.text)

        assert double.add(2).result(wait=LONG_S) == 4


def test_what_is_no_queue_is_refused(queue):
    """Before the application starts; as is a queue without tasks for threads, when it starts."""
    with pytest.raises(holdfast.BadInput, match=r"queue is 'str', and must be one of holdfast\.connect"):
        lifespan("jobs.db")  # type: ignore[arg-type]
    with pytest.raises(holdfast.BadInput, match="threads"):
        lifespan(queue, threads=-1)
    empty = holdfast.connect(queue.url)
    with (
        pytest.raises(holdfast.BadInput, match="one with tasks"),
        TestClient(FastAPI(lifespan=lifespan(empty, threads=1))),
    ):
        pass


# ── the example ──────────────────────────────────────────────────────────────────────────────────


def test_the_shop_sends_a_receipt(tmp_path):
    """As a program: uvicorn with workers inside, and its end."""
    port = free_port()
    environment = os.environ | {"SHOP_DATABASE": f"sqlite:///{tmp_path}/shop.db", "SHOP_THREADS": "2"}
    command = [sys.executable, "-m", "uvicorn", "shop:app", "--port", str(port), "--log-level", "warning"]
    shop = subprocess.Popen(command, cwd=SHOP, env=environment)

    def ask(path, method="GET"):
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=LONG_S) as reply:
            return reply.read().decode()

    def is_up():
        with suppress(OSError):
            return bool(ask("/openapi.json"))

    try:
        until(is_up)
        ask("/orders?email=ada&item=tea", "POST")
        until(lambda: "Dear ada, your tea is on its way." in ask("/orders/1"))
    finally:
        shop.send_signal(signal.SIGTERM)
        assert shop.wait(LONG_S) in (0, -signal.SIGTERM)


def test_the_shop_has_no_more_lines_than_with_celery():
    """Nor more statements: what is compared does the same."""
    ours, theirs = ((SHOP / name).read_text().splitlines() for name in ("shop.py", "with_celery.py"))

    assert len(ours) <= len(theirs)
