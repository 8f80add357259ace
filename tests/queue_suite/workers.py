"""What workers say: who is there, which tasks they know, what `why` makes of it, and many answers at once."""

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.errors import NotFound, TooLarge
from holdfast.core.job import Code, State
from holdfast.core.queries import GetTime, ListWorkers
from holdfast.core.worker import Blocker, Served, Worker
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .tools import MINUTE_MS, ask, take, upkeep


def _worker(queue: Queue, name: str, *tasks: str, tenant: str | None = "", **fields: Any) -> Worker:
    """A worker that is there, and has said what it knows."""
    if not queue.connection.appear(name):
        # A server does not see its clients: a remote worker says how long it will be there.
        fields = {"until_ms": queue.connection.ask(GetTime()) + MINUTE_MS} | fields
    served = (Served(tenant=tenant, tasks=tasks),)
    worker = Worker(name=name, host="h", pid=1, started_at=1, serves=served, **fields)
    ask(queue, c.Enlist(worker=worker))
    return worker


def _alive(queue: Queue) -> list[str]:
    return [worker.name for worker in queue.connection.ask(ListWorkers())]


def test_why_tells_how_many_live_workers_know_the_task(queue: Queue) -> None:
    """None, one, two; of this tenant or of all."""
    job = queue.add("work")
    assert "waits for a worker to claim it. No live worker knows the task 'work'." in job.why()

    _worker(queue, "a", "other", "work", tenant="another")
    _worker(queue, "b", "other")
    assert "No live worker knows the task 'work'." in job.why()
    _worker(queue, "c", "other", "work")
    assert "1 live worker knows its task." in job.why()
    _worker(queue, "d", "work", tenant=None)
    assert "2 live workers know its task." in job.why()

    ask(queue, c.Dismiss(name="d"))
    ask(queue, c.Dismiss(name="d"))
    assert "1 live worker knows its task." in job.why()


def test_why_tells_which_handlers_have_all_slots(queue: Queue) -> None:
    """Of each worker that knows the task; not if one of them may have a free slot."""
    job = queue.add("work")
    long = Blocker(part="slots", task="long", job_id=7, tasks=("work", "long"), since=1_000)
    _worker(queue, "a", "work", "long", blocked=(long,))
    assert "There, long (job 7) has the only slot of worker a since 1970-01-01T00:00:01.000Z." in job.why()

    _worker(queue, "b", "work", blocked=(replace(long, tenant="another", others=2),))
    assert "and a handler and 2 others have all 3 slots of worker b since" in job.why()

    _worker(queue, "c", "work", blocked=(replace(long, tasks=("long",)),))
    assert "slot" not in job.why()


def test_why_tells_of_a_running_job_that_no_live_worker_knows_its_task(queue: Queue) -> None:
    """Its owner may have died; a lease tells when the job is queued again."""
    job = queue.add("work")
    queue.next(["work"])
    assert "if its owner has died, it is queued then. Workers inside a program" in job.why()

    _worker(queue, "a", "work")

    assert "No live worker" not in job.why()


def test_why_tells_of_a_running_job_that_its_worker_has_died(queue: Queue) -> None:
    """Until its lease ends; not while another worker that claims by the same process lives."""
    job = queue.add("work")
    queue.next(["work"], renew=False)
    _worker(queue, "gone", "work", until_ms=1)
    assert ". Its worker gone is no longer alive: it runs again when that lease ends." in job.why()

    _worker(queue, "b", "work")

    assert "gone" not in job.why()


def test_a_paused_task_is_told_before_the_workers(queue: Queue) -> None:
    """What an operator did is the nearer reason."""
    job = queue.add("work")

    queue.pause("work")

    assert job.why() == "The task 'work' is paused; resume it."


def test_what_a_worker_says_again_replaces_what_it_said(queue: Queue) -> None:
    """There is one record of each."""
    _worker(queue, "a", "work")
    _worker(queue, "a", "work", done=7)

    (kept,) = queue.connection.ask(ListWorkers())
    assert kept.done == 7


def test_a_worker_is_asked_to_stop(queue: Queue) -> None:
    """What it says of itself later does not take that back; a worker that is not there is not found."""
    _worker(queue, "a", "work")
    _worker(queue, "b", "work")

    queue.stop_worker("b")
    queue.stop_worker("b")
    _worker(queue, "b", "work", done=7)

    assert [(one.name, one.stopping) for one in queue.workers()] == [("a", False), ("b", True)]
    assert [one.done for one in queue.connection.ask(ListWorkers(name="b"))] == [7]
    ask(queue, c.Dismiss(name="b"))
    with pytest.raises(NotFound, match="worker b"):
        queue.stop_worker("b")


def test_a_worker_whose_moment_has_passed_is_gone(queue: Queue, clock: MovedClock) -> None:
    """Where a store cannot tell who is there; upkeep forgets it."""
    _worker(queue, "a", "work", until_ms=clock() + 1_000)
    assert _alive(queue) == ["a"]

    clock.advance(1_000)

    assert _alive(queue) == []
    upkeep(queue)
    assert queue.connection.engine.read(lambda txn: txn.rows("worker")) == {}


def test_a_worker_that_never_appeared_is_not_there(queue: Queue) -> None:
    """A record alone is no sign of life."""
    ask(queue, c.Enlist(worker=Worker(name="ghost", host="h", pid=1, started_at=1)))

    assert _alive(queue) == []
    upkeep(queue)
    assert queue.connection.engine.read(lambda txn: txn.rows("worker")) == {}


def test_a_worker_with_too_much_to_say_is_refused(queue: Queue) -> None:
    """Its record is bounded."""
    with pytest.raises(TooLarge, match="worker"):
        _worker(queue, "a", *(f"{n:0200d}" for n in range(6_000)))

    assert _alive(queue) == []


def test_many_answers_are_replied_one_by_one(queue: Queue) -> None:
    """One that is refused is an error in its place, and the others hold."""
    for _ in range(3):
        queue.add("work")
    jobs = [take(queue, "work").record for _ in range(3)]
    queue.cancel(jobs[1], force=True)
    answers = tuple(c.Answer(hold=c.hold_of(job), code=Code.OK) for job in jobs)

    replies = ask(queue, c.AnswerAll(answers=answers, held=tuple(jobs)))

    assert [type(reply).__name__ for reply in replies] == ["Job", "LeaseLost", "Job"]
    states = [State.FINISHED, State.CANCELLED, State.FINISHED]
    assert [queue.get(job.id).state for job in jobs] == states
