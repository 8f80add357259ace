"""Pauses: claims pass a task, a domain or a tenant by, and no job's state changes."""

import pytest

from holdfast.core.job import State
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue
from .tools import MINUTE_MS, nothing, state_of, states, take, take_all, upkeep


def test_a_paused_task_is_passed_by(queue: Queue) -> None:
    """Others run, its own wait in their old state, and go on in their old order."""
    jobs = queue.add_many([("mail", n) for n in range(3)])
    other = queue.add("work", priority=0)

    queue.pause("mail")

    assert take(queue).id == other.id
    assert nothing(queue)
    assert states(queue, jobs) == [State.QUEUED] * 3
    queue.pause(domain="api")
    assert {*queue.pauses()} == {("", "mail", None), ("", None, b"api")}
    queue.resume(domain="api")
    queue.resume("mail")
    assert queue.pauses() == []
    assert [job.id for job in take_all(queue)] == [job.id for job in jobs]


def test_what_runs_may_go_on_while_its_task_is_paused(queue: Queue) -> None:
    """And may be answered; what it puts back waits."""
    first, second = queue.add("mail"), queue.add("mail")
    running = take_all(queue)
    queue.pause("mail")

    running[0].extend()
    assert running[0].done().state == State.FINISHED
    running[1].retry(0)

    assert (state_of(queue, first), state_of(queue, second)) == (State.FINISHED, State.QUEUED)
    assert nothing(queue)


def test_why_names_all_pauses_that_stop_a_job(queue: Queue) -> None:
    """Each of them must be resumed."""
    added = queue.add("mail", domain="api")
    queue.pause("mail")
    assert added.why() == "The task 'mail' is paused; resume it."

    queue.pause(domain="api")
    both = queue.why(added)
    queue.pause()
    three = queue.why(added)

    assert "the task 'mail'" in both.lower()
    assert "the domain 'api'" in both.lower()
    assert both.endswith("are paused; resume both.")
    assert three.count("the ") == 2
    assert three.endswith("are paused; resume all of them.")


@pytest.mark.parametrize("limited", [False, True], ids=["without a limit", "with a limit"])
def test_a_paused_domain_is_passed_by(queue: Queue, clock: MovedClock, limited: bool) -> None:
    """Whether it had a limit or not, and then it has that again."""
    if limited:
        queue.limit("api", concurrency=2)
    queue.add_many([("work", n) for n in range(5)], domain="api")
    running = take(queue)

    queue.pause(domain="api")
    assert nothing(queue)
    queue.add("work", domain="api", priority=1_000)
    running.done()
    clock.advance(MINUTE_MS)
    upkeep(queue)
    assert nothing(queue)
    assert "'api' is paused" in queue.why(queue.jobs()[0])
    queue.resume(domain="api")

    assert len(take_all(queue)) == (2 if limited else 5)


def test_a_paused_tenant_is_passed_by(make_queue: MakeQueue) -> None:
    """All of it, and nobody else."""
    acme, zeta = make_queue(tenant="acme"), make_queue(tenant="zeta")
    for queue in (acme, zeta):
        queue.add_many([("a", 1), ("b", 2)])

    acme.pause()

    assert nothing(acme)
    assert len(take_all(zeta)) == 2
    acme.resume()
    assert len(take_all(acme)) == 2


def test_a_pause_is_one_of_its_tenant(make_queue: MakeQueue) -> None:
    """The same task elsewhere runs on."""
    acme, zeta = make_queue(tenant="acme"), make_queue(tenant="zeta")
    acme.add("work")
    zeta.add("work")

    acme.pause("work")

    assert (nothing(acme), nothing(zeta)) == (True, False)


def test_a_pause_holds_for_other_queues_and_after_a_restart(make_queue: MakeQueue) -> None:
    """It is in the store."""
    first = make_queue()
    first.add("work")
    first.pause("work")
    first.close()

    second = make_queue()
    assert nothing(second)
    second.resume("work")
    assert not nothing(second)


def test_to_pause_twice_is_to_pause_once(queue: Queue) -> None:
    """And to resume what is not paused is no error."""
    queue.resume("work")
    queue.add("work")
    queue.pause("work")
    queue.pause("work")

    queue.resume("work")

    assert take(queue).task == "work"


def test_a_job_of_a_paused_task_comes_due_and_expires_all_the_same(queue: Queue, clock: MovedClock) -> None:
    """Only claims pass it by."""
    expired, due = queue.add("mail", delay=10, expires=30), queue.add("mail", delay=20)
    queue.pause("mail")
    clock.advance(MINUTE_MS)
    upkeep(queue)

    assert (state_of(queue, expired), expired.get().reason) == (State.FAILED, "expired")
    assert "'mail' is paused" in due.why()
