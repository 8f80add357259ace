"""The life of a queue object: opened late, closed once, alive after a fork."""

import os
import signal
import threading
import warnings
from collections.abc import Callable

import pytest

from holdfast.core.errors import Closed
from holdfast.core.job import State
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.queue import Queue
from holdfast.store.contract import Store
from holdfast.testing.clock import MovedClock

from .fixtures import MakeQueue, OpenStore
from .tools import LONG_S, MINUTE_MS, nothing, take


def test_nothing_is_opened_before_the_first_verb(open_store: OpenStore) -> None:
    """A queue may be made when a module is imported, tasks and all."""
    opened: list[Store] = []

    def open_and_tell() -> Store:
        opened.append(open_store())
        return opened[-1]

    queue = Queue(open_and_tell, url="the store under test")
    task = queue.task(_double)
    task.call(4)
    AsyncQueue(open_and_tell, url="the store under test")
    assert opened == []

    task.add(4)
    queue.counts()

    assert len(opened) == 1
    queue.close()


def _double(n: int) -> int:
    return 2 * n


def test_a_queue_that_was_never_used_is_closed_without_being_opened() -> None:
    """And says that it is closed."""

    def never() -> Store:
        raise AssertionError("it was opened")

    queue = Queue(never, url="the store under test")
    queue.close()

    with pytest.raises(Closed):
        queue.counts()


_VERBS: dict[str, Callable[[Queue], object]] = {
    "add": lambda queue: queue.add("work"),
    "add_many": lambda queue: queue.add_many([("work", 1)]),
    "next": lambda queue: queue.next(),
    "claim": lambda queue: queue.claim(wait=1),
    "get": lambda queue: queue.get(1),
    "data": lambda queue: queue.data(1),
    "result": lambda queue: queue.result(1, wait=1),
    "jobs": lambda queue: queue.jobs(),
    "counts": lambda queue: queue.counts(),
    "why": lambda queue: queue.why(1),
    "cancel": lambda queue: queue.cancel(1),
    "requeue": lambda queue: queue.requeue(1),
    "update": lambda queue: queue.update(1, data=1),
    "delete": lambda queue: queue.delete(1),
    "purge": lambda queue: queue.purge(before=1),
    "limit": lambda queue: queue.limit("api", rate=1),
    "limits": lambda queue: queue.limits(),
    "pause": lambda queue: queue.pause("work"),
    "resume": lambda queue: queue.resume("work"),
    "schedule": lambda queue: queue.schedule("s", "work", every=60),
    "schedules": lambda queue: queue.schedules(),
    "unschedule": lambda queue: queue.unschedule("s"),
    "pause_schedule": lambda queue: queue.pause_schedule("s"),
    "run_schedule": lambda queue: queue.run_schedule("s"),
    "workers": lambda queue: queue.workers(),
    "stop_worker": lambda queue: queue.stop_worker("w"),
    "retention": lambda queue: queue.retention(),
    "set_retention": lambda queue: queue.set_retention("1d"),
}


def test_a_closed_queue_says_so_to_every_verb(make_queue: MakeQueue) -> None:
    """And to the jobs that it held; to close it again is no error."""
    queue, other = make_queue(), make_queue()
    added = queue.add("work")
    job = take(queue)
    queue.close()
    queue.close()

    for name, verb in _VERBS.items():
        with pytest.raises(Closed, match=r"holdfast\.connect"):
            verb(queue)
        assert name
    with pytest.raises(Closed):
        job.done()
    with pytest.raises(Closed):
        added.result()
    assert other.counts() == {"work": {"RUNNING": 1}}


def test_what_was_accepted_is_there_after_a_restart(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Jobs in every place, limits, pauses, schedules and results."""
    with make_queue() as queue:
        queue.limit("api", concurrency=1)
        queue.schedule("s", "tick", every="1h")
        queue.pause("mail")
        ended, waits = queue.add("work", {"n": 1}), queue.add("work", {"n": 2}, delay="1m")
        take(queue).done("kept")
        queue.add_many([("mail", n) for n in range(2)], domain="api")

    queue = make_queue()

    assert queue.result(ended.id) == "kept"
    assert (queue.data(waits.id), queue.get(waits.id).state) == ({"n": 2}, State.QUEUED)
    assert nothing(queue)
    assert (list(queue.limits()), [schedule.name for schedule in queue.schedules()]) == ([b"api"], ["s"])
    clock.advance(MINUTE_MS)
    assert take(queue).id == waits.id


def test_no_number_is_made_twice_over_restarts_and_clocks_set_back(
    make_queue: MakeQueue, clock: MovedClock
) -> None:
    """Whoever makes it."""
    ids = []
    for step_ms in (0, 5, -MINUTE_MS, 0, 30 * MINUTE_MS, -60 * MINUTE_MS, 0):
        clock.advance(step_ms)
        with make_queue() as queue, make_queue() as other:
            for each in (queue, other, queue):
                ids += [job.id for job in each.add_many([("work", n) for n in range(100)])]

    assert len(ids) == len(set(ids))


def test_a_queue_works_after_a_fork(queue: Queue) -> None:
    """In the child as in the parent, and what either adds has a number of its own."""
    before = queue.add("work").id

    ids = _in_a_fork(lambda: [queue.add("work").id for _ in range(3)])
    mine = [queue.add("work").id for _ in range(3)]

    assert len(ids) == 3
    assert not {before, *mine} & set(ids)
    assert len({before, *mine}) == 4


def test_a_queue_that_waits_may_be_forked(queue: Queue) -> None:
    """Threads stay behind: the child has its own."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(queue.next(wait=60, renew=False)))
    thread.start()

    ids = _in_a_fork(lambda: [queue.add("other").id, 1 if queue.next(["none"], wait=0.01) is None else 0])

    assert ids[1] == 1
    queue.add("work")
    thread.join()
    assert found != [None]


def test_a_queue_that_is_being_opened_may_be_forked(open_store: OpenStore) -> None:
    """Whatever lock the thread has that opens it."""
    opening, go, parent = threading.Event(), threading.Event(), os.getpid()

    def open_slowly() -> Store:
        if os.getpid() == parent:
            opening.set()
            go.wait(LONG_S)
        return open_store()

    with Queue(open_slowly, url="the store under test") as queue:
        thread = threading.Thread(target=queue.counts)
        thread.start()
        assert opening.wait(LONG_S)

        ids = _in_a_fork(lambda: [queue.add("work").id])

        go.set()
        thread.join()
        assert len(ids) == 1


def _in_a_fork(call: Callable[[], list[int]]) -> list[int]:
    """The numbers that a call comes to in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # To fork with threads is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        # Should it hang, it ends all the same, and has nothing to tell.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(LONG_S))
        try:
            os.write(writing, " ".join(map(str, call())).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.waitpid(pid, 0)
    assert text.replace(" ", "").isdigit(), text or "it hung"
    return [int(word) for word in text.split()]
