"""What the committer does for those who wait, and for those who no longer do."""

import _thread
import asyncio
import logging
import os
import threading
import time

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.errors import StoreError, Unsettled
from holdfast.engine import joblog, ticket
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.queue.queue import Queue
from holdfast.store.common.clock import SystemClock, monotonic_s
from holdfast.store.memory.store import MemoryStore
from tests.queue_suite.tools import until


def test_a_claim_whose_caller_went_away_takes_nothing():
    """What he gives back as he goes would come to him again, and stay with him if his process ends."""
    committer = Committer(Engine(MemoryStore(), rng=lambda: 0.5))
    ticket = Ticket(c.Claim(tasks=("work",), tenant="", lease_ms=1000), deadline_s=monotonic_s() + 60)
    committer.submit(ticket)
    committer.ask(c.Upkeep())  # the claim has been looked at by now, and waits

    assert ticket.abandon()
    (job_id,) = committer.ask(c.Add(jobs=(c.NewJob(task="work"),)))
    committer.ask(c.Upkeep())

    assert committer.engine.read(lambda txn: txn.load([job_id]))[job_id].claim == 0
    committer.close()


def test_a_store_that_cannot_tell_the_time_ends_no_wait():
    """The next commit meets what is wrong; a claim that waits is answered once the store works again."""
    store = MemoryStore(SystemClock())
    now_ms, broken = store.now_ms, threading.Event()

    def tell():
        if broken.is_set():
            raise StoreError("the server says no")
        return now_ms()

    store.now_ms = tell  # type: ignore[method-assign]
    committer = Committer(Engine(store, rng=lambda: 0.5))
    replies = []
    claim = c.Claim(lease_ms=60_000)
    waiting = threading.Thread(target=lambda: replies.append(committer.ask(claim, wait_s=60)))
    try:
        committer.ask(c.Add(jobs=(c.NewJob(task="later", delay_ms=60_000),)))
        waiting.start()
        until(lambda: bool(committer._waiter._claims))
        broken.set()
        # Longer than the waiter ever sleeps: it has looked at the clock meanwhile.
        time.sleep(1.5)
        broken.clear()
        committer.ask(c.Add(jobs=(c.NewJob(task="now"),)))
        waiting.join()
    finally:
        committer.close()

    assert [one.job.task for one in replies[0]] == ["now"]


@pytest.mark.parametrize("is_started", [False, True], ids=["before", "after"])
def test_an_interrupt_while_the_waiter_starts_leaves_a_committer_that_works(monkeypatch, is_started):
    """And the claim whose caller was interrupted takes no job."""
    committer = Committer(Engine(MemoryStore(), rng=lambda: 0.5))
    claim, start = c.Claim(tasks=("work",), lease_ms=60_000), _thread.start_new_thread

    def interrupted(*args):
        monkeypatch.undo()
        if is_started:
            start(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        committer.ask(claim, wait_s=30)

    committer.ask(c.Add(jobs=(c.NewJob(task="work"),)))
    assert [one.job.task for one in committer.ask(claim, wait_s=30)] == ["work"]
    committer.close()


def test_a_log_handler_that_raises_does_not_undo_or_repeat_a_commit(tmp_path, capsys):
    """Commands of several threads, in one transaction: each is done once, and has its reply."""

    class Full(logging.Handler):
        def emit(self, _record):
            raise OSError("no space left on device")

    handler, log = Full(), joblog.LOG
    before = (log.level, log.propagate)
    log.addHandler(handler)
    log.setLevel(joblog.ADDED)
    log.propagate = False
    try:
        with holdfast.connect(tmp_path / "jobs.db") as queue:
            (group,) = queue.connection._submitter._groups  # type: ignore[attr-defined]
            replies = []
            threads = [threading.Thread(target=lambda: replies.append(queue.add("work"))) for _ in range(3)]
            with group.turn:
                for thread in threads:
                    thread.start()
                while len(group.waiting) < 3:
                    time.sleep(0.001)
            group.wake_next()
            for thread in threads:
                thread.join()

            assert len({job.id for job in replies}) == 3
            assert queue.counts() == {"work": {"QUEUED": 3}}
    finally:
        log.removeHandler(handler)
        log.setLevel(before[0])
        log.propagate = before[1]
    assert "no space left on device" in capsys.readouterr().err


def test_a_fork_leaves_the_lock_of_tickets_open():
    """A child has none of its parent's threads: what one of them had locked would stay so."""
    locked = threading.Event()

    def answer():
        with ticket.lock:
            locked.set()
            time.sleep(0.2)

    thread = threading.Thread(target=answer)
    thread.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        os._exit(ticket.lock.locked())
    thread.join()

    assert os.waitpid(child, 0)[1] == 0


def test_a_claim_that_is_cancelled_as_the_queue_closes_is_given_back(tmp_path):
    """Its commit was under way: the job does not wait until the lease ends."""

    async def run():
        async with holdfast.connect_async(tmp_path / "jobs.db") as queue:
            await queue.add("work")
            (store,) = queue.connection.store.shards
            commit, committed, go_on = store.run, asyncio.Event(), threading.Event()
            loop = asyncio.get_running_loop()

            def slow(fn):
                reply = commit(fn)
                loop.call_soon_threadsafe(committed.set)
                go_on.wait(10)
                return reply

            store.run = slow  # type: ignore[method-assign]
            claiming = asyncio.create_task(queue.next(["work"], wait=30))
            await committed.wait()
            claiming.cancel()
            await asyncio.wait([claiming])
            threading.Timer(0.2, go_on.set).start()

    asyncio.run(run())
    with holdfast.connect(tmp_path / "jobs.db") as queue:
        assert queue.next(["work"]) is not None


class Slow(MemoryStore):
    """A store whose next plain claim takes long, or ends with an error although it was made."""

    late_s = 0.0
    error: Exception | None = None

    def lease(self, query, leased):
        """Claim jobs, and then what was asked for."""
        is_done = super().lease(query, leased)
        late_s, error, self.late_s, self.error = self.late_s, self.error, 0.0, None
        time.sleep(late_s)
        if error is not None:
            raise error
        return is_done


@pytest.fixture
def slow():
    """A queue on such a store, which has a job and claims plainly."""
    store = Slow()
    queue = Queue(lambda: store, url="slow")
    with queue:
        queue.add("work")
        for _ in range(2):
            job = queue.next()
            assert job is not None
            job.release()
        yield queue, store


def test_a_plain_claim_whose_lease_is_nearly_over_is_made_again(slow):
    """The job would run beside another caller's."""
    queue, store = slow
    store.late_s = 1.1

    job = queue.next(lease=2, renew=False)

    found = queue.get(job.id)
    assert found.lease_until > store.now_ms() + 1_500
    assert found.claim == 4


def test_jobs_of_a_claim_that_may_have_been_made_are_released(slow):
    """Their lease may be long, and they have not run."""
    queue, store = slow
    store.error = Unsettled("the replicas do not have it")

    with pytest.raises(Unsettled):
        queue.next(lease=3600)

    until(lambda: queue.counts()["work"] == {"QUEUED": 1})
