"""Servers that forget scripts, are killed and come back: work goes on by itself, and nothing is lost."""

import threading
from contextlib import contextmanager

import pytest

import holdfast
from holdfast.core.errors import Unavailable, Unsettled
from holdfast.queue.queue import Queue
from holdfast.store.contract import Changes
from holdfast.store.redis import claim as redis_claim
from holdfast.store.redis.store import RedisStore
from holdfast.testing.stores.making import a_job, add, new_jobs
from tests.queue_suite.tools import complaints, upkeep

JOBS = 300
ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


class Load:
    """Threads that add jobs and others that work them off, and remember what they were told."""

    def __init__(self, url, jobs=JOBS, wait_s=0.5):
        self.queue = Queue(lambda: RedisStore(url), url=url)
        self.jobs, self.wait_s = jobs, wait_s
        self.added, self.done, self.doubts = set(), set(), []
        # What is wrong in the end, and how the jobs ended.
        self.left, self.states = [], {}
        self.half = threading.Event()
        self._adders = [threading.Thread(target=self._add) for _ in range(2)]
        self._threads = [*self._adders, *(threading.Thread(target=self._work) for _ in range(2))]

    def start(self):
        """Let them go."""
        for thread in self._threads:
            thread.start()

    def finish(self):
        """Wait until all is added, and all of it worked off."""
        for thread in self._threads:
            thread.join()

    def _add(self):
        for n in range(self.jobs // 2):
            try:
                self.added.add(self.queue.add("work", {"n": n}).id)
            except Unavailable as error:
                # It may have been done, and the error says so; nothing was promised.
                self.doubts.append(str(error))
            if n == self.jobs // 4:
                self.half.set()

    def _work(self):
        job = None
        while job is not None or any(thread.is_alive() for thread in self._adders):
            try:
                job = self.queue.next(wait=self.wait_s, renew=False, lease=20)
                if job is not None:
                    job.done(1)
                    self.done.add(job.id)
            except Unavailable as error:
                self.doubts.append(str(error))
            except holdfast.LeaseLost as error:
                # Its own answer, whose reply was lost, and which was then found done.
                self.doubts.append(str(error))


@contextmanager
def load(url, jobs=JOBS, wait_s=0.5):
    """Load on a store, while something is done to its server; then all accounts are settled."""
    at_work = Load(url, jobs, wait_s)
    at_work.start()
    try:
        at_work.half.wait()
        yield at_work
    finally:
        at_work.finish()
        upkeep(at_work.queue)
        # A claim that was cut off half way is put right by upkeep in time; the workers may have gone by then.
        while job := at_work.queue.next(until_empty=True, renew=False):
            job.done(1)
        at_work.left = complaints(at_work.queue)
        at_work.states = {id: at_work.queue.get(id).state for id in at_work.added}
        at_work.queue.close()


def test_scripts_that_were_forgotten_are_sent_again(redis_server, redis_url):
    """SCRIPT FLUSH, again and again, under load."""
    with load(redis_url) as seen, redis_server.client() as client:
        for _ in range(50):
            client.script_flush()

    assert seen.left == seen.doubts == []
    assert set(seen.states.values()) == {"FINISHED"}
    assert len(seen.states) == JOBS


@pytest.mark.parametrize("server", [ALWAYS], indirect=True)
def test_nothing_accepted_is_lost_when_the_server_is_killed_and_comes_back(server, monkeypatch):
    """With its log synced always: each add that returned is there, each finish that returned stands."""
    monkeypatch.setattr(redis_claim, "TAKEN_MS", 1_000)
    with load(server.url(durability="always")) as seen:
        for _ in range(3):
            server.kill()
            server.start()

    assert seen.left == []
    assert all(seen.states[id] == "FINISHED" for id in seen.done & seen.added)
    assert set(seen.states.values()) == {"FINISHED"}
    assert len(seen.states) + len(seen.doubts) >= JOBS


def test_clients_that_are_cut_off_go_on(redis_server, redis_url, monkeypatch):
    """All of them, again and again. What a claim has taken whose reply was lost comes back in time."""
    monkeypatch.setattr(redis_claim, "TAKEN_MS", 1_000)
    with load(redis_url, wait_s=5.0) as seen, redis_server.client() as client:
        for _ in range(20):
            client.client_kill_filter(_type="normal", skipme=True)

    assert seen.left == []
    assert set(seen.states.values()) == {"FINISHED"}


def test_a_commit_that_cannot_be_settled_is_asked_about_seldom_and_logged_once(server, heard, monkeypatch):
    """While the server stays away it is tried as seldom as by other calls, and the log says so."""
    store, tries = RedisStore(server.url(), patience_s=2.0), []
    add(store, a_job(1))
    call_many = store._server.call_many

    def count_and_call(commands):
        tries.append(1)
        return call_many(commands)

    def kill_server(_txn):
        server.kill()
        monkeypatch.setattr(store._server, "call_many", count_and_call)
        return Changes(added=new_jobs([a_job(2)])), None

    with pytest.raises(Unsettled):
        store.run(kill_server)

    assert len(tries) <= 12
    assert [line.partition(":")[0] for line in heard.lines] == ["trying again for 2 s"]
    store.close()
