"""Slots of stored handlers: full requests to slow servers, and a share for each tenant."""

import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler

import pytest

import holdfast
from holdfast.core.queries import Waiting
from holdfast.work.capacity import Capacity, TaskDurations
from holdfast.work.ordering import HALF_S, TenantShares
from holdfast.work.scheduler import SchedulerSettings, choose, make_scheduler

from .runners.running import replying


class _Server(BaseHTTPRequestHandler):
    """Notes each request, and replies 200 to each line: after `pause_s`, at /wait when `gate` is set."""

    protocol_version = "HTTP/1.1"
    gate = threading.Event()
    pause_s = 0.0
    seen: list[tuple[str, int]]

    def do_POST(self) -> None:
        lines = self.rfile.read(int(self.headers["Content-Length"])).count(b"\n")
        self.seen.append((self.path, lines))
        if self.path == "/wait":
            self.gate.wait(60)
        time.sleep(self.pause_s if lines else 0.0)
        body = b"200\n" * lines
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server():
    """Its class, and its URL."""

    class Made(_Server):
        gate, seen = threading.Event(), []

    with replying(Made) as url:
        yield Made, url
        Made.gate.set()


@pytest.mark.parametrize(("slots", "processes"), [pytest.param(1, 1, marks=pytest.mark.proof), (4, 2)])
def test_a_slow_server_gets_full_requests(bench, server, slots, processes):
    """60 jobs, 20 in a request; the first may be small, as its handler is not known. `beforeEach` too."""
    made, url = server
    made.pause_s = 0.1
    scripts = {"before_each": f"{url}before", "batch": True, "batch_size": 20}
    bench.queue.handlers.set("send", f"{url}send", lang="http", **scripts)
    bench.queue.add_many([("send", n) for n in range(60)])

    words = ("--private-hosts", "--handler-slots", str(slots), "--processes", str(processes))
    bench.work("--handlers", "--store", bench.store, *words, name="")

    sizes = [lines for path, lines in made.seen if path == "/send"]
    assert sum(sizes) == 60
    assert len(sizes) <= 8, sizes
    assert len(made.seen) == 2 * len(sizes)


def test_jobs_of_one_tenant_that_wait_leave_slots_for_others(bench, server):
    """Twelve jobs that do not end have three of four slots, and the jobs of another tenant run."""
    made, url = server
    words = ("--private-hosts", "--handler-slots", "4", "--store", bench.store, "--until-empty")
    with closing(holdfast.connect(bench.store, tenant="other")) as other:
        bench.queue.handlers.set("wait", f"{url}wait", lang="http")
        other.handlers.set("go", f"{url}go", lang="http")
        bench.queue.add_many([("wait", n) for n in range(12)])
        worker = bench.start("--handlers", *words, name="")
        bench.wait_for(lambda: made.seen.count(("/wait", 1)) >= 3)

        quick = [other.add("go", n) for n in range(3)]

        bench.wait_for(lambda: all(job.get().state == "FINISHED" for job in quick))
        assert made.seen.count(("/wait", 1)) == 3
        made.gate.set()
        worker.communicate(timeout=120)
        assert made.seen.count(("/wait", 1)) == 12


def test_jobs_that_wait_behind_one_of_their_task_hold_up_no_other_tenant(bench):
    """They are one batch in a thread; taken back, they are dropped while the first one sleeps."""
    with closing(holdfast.connect(bench.store, tenant="other")) as other:
        bench.queue.handlers.set("nap", "import time; time.sleep(600)", lang="python")
        other.handlers.set("go", "return data", lang="python")
        bench.queue.add_many([("nap", n) for n in range(4)])
        worker = bench.start("--handlers", "--store", bench.store, name="")
        bench.wait_for(lambda: bench.queue.counts().get("nap", {}).get("RUNNING"))

        for n in range(3):
            assert other.add("go", n).result(wait=60) == n

        worker.kill()
        worker.communicate(timeout=60)


def test_a_tenant_gets_its_share_of_slots_for_slow_tasks():
    """Short jobs are not limited: they give their slots back at once."""
    shares = TenantShares()
    shares.update(8, {"a": 5.5}, now_s=1.0)
    durations = TaskDurations()
    durations.add_samples("short", [0.001] * 100)
    waiting = [Waiting("a", "slow", 100), Waiting("a", "short", 100), Waiting("b", "slow", 100)]
    scheduler = make_scheduler("fair", SchedulerSettings(rng=lambda: 0.0))

    picks = choose(scheduler, waiting, Capacity(durations, free_slots=20), shares.room)

    found = {(tenant, task): count for tenant, task, count in picks}
    assert (found["a", "slow"], found["b", "slow"]) == (1, 7)
    assert found["a", "short"] > 4
    assert (shares.room("a"), shares.room("b"), shares.room_of_any()) == (1, 7, 1)


def test_tenants_that_used_less_time_come_first():
    """Whatever number of jobs that was; it counts half after a minute."""
    shares = TenantShares()
    waiting = [Waiting(tenant, "t", 1) for tenant in ("a", "b", "c")]
    shares.update(8, {"a": 4.0, "b": 1.0}, now_s=100.0)
    shares.update(8, {}, now_s=110.0)

    assert [one.tenant for one in shares.order(waiting)] == ["c", "b", "a"]

    shares.update(8, {"b": 1.0}, now_s=110.0 + 10 * HALF_S)
    shares.update(8, {}, now_s=120.0 + 10 * HALF_S)
    assert [one.tenant for one in shares.order(waiting)] == ["c", "a", "b"]
