"""`holdfast.work`: a queue's tasks in the current process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import BadInput, Job, Queue
from holdfast.core import commands as c
from tests.queue_suite.tools import until


@pytest.fixture
def queue(tmp_path) -> Iterator[Queue]:
    """A queue in a file, with a task."""
    with holdfast.connect(str(tmp_path / "jobs.db")) as queue:
        queue.task(name="double")(double)
        yield queue


def double(n: int) -> int:
    return 2 * n


def test_functions_and_coroutines_are_run_until_nothing_is_left(queue):
    """And how many they were is told; a task that the queue does not know waits."""

    @queue.task()
    async def later(n: int) -> int:
        await asyncio.sleep(0.001)
        return n + 1

    doubles = queue.add_many([("double", {"n": n}) for n in range(200)])
    soon, unknown = later.add(1), queue.add("unheard-of")

    ran = holdfast.work(queue, threads=3, until_empty=True)

    assert ran == 201
    assert [job.result() for job in doubles] == [2 * n for n in range(200)]
    assert soon.result() == 2
    assert (unknown.get().state, unknown.get().claim) == ("QUEUED", 0)


def test_only_so_many_run_at_once(queue):
    """However many threads wait for their answers' commit."""
    running, most = [0], [0]
    lock, three = threading.Lock(), threading.Barrier(3)

    @queue.task()
    def counted() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        three.wait(60)
        with lock:
            running[0] -= 1

    queue.add_many([("counted", {})] * 60)

    holdfast.work(queue, threads=3, until_empty=True)

    assert most[0] == 3


def test_answers_of_short_jobs_share_commits(queue, monkeypatch):
    """One thread at work, and fewer transactions than jobs, of which each would need two."""
    queue.add_many([("double", {"n": n}) for n in range(400)])
    engine = queue.connection.engine
    batches: list[int] = []
    execute = engine.execute

    def counted(commands, done=None):
        batches.append(len(commands))
        return execute(commands, done)

    monkeypatch.setattr(engine, "execute", counted)

    holdfast.work(queue, until_empty=True)

    assert len(batches) < 400


def test_it_ends_after_so_many_jobs_or_so_much_time(queue):
    """What it has claimed beyond that is given back."""
    queue.add_many([("double", {"n": n}) for n in range(10)])

    assert holdfast.work(queue, max_jobs=3) == 3
    assert queue.counts()["double"] == {"QUEUED": 7, "FINISHED": 3}
    assert holdfast.work(queue, seconds="5m", max_jobs=7) == 7
    assert holdfast.work(queue, seconds=0.05) == 0


def test_a_lease_is_renewed_while_its_handler_runs(queue):
    """Until it has seen that twice."""
    seen: set[int] = set()

    @queue.task()
    def slow() -> str:
        while len(seen) < 3:
            time.sleep(0.01)
            seen.add(job.get().lease_until)
        return "done"

    job = slow.add()

    holdfast.work(queue, until_empty=True, lease="2s")

    assert job.result() == "done"
    assert (job.get().claim, job.get().losses) == (1, 0)


def test_what_a_handler_raises_is_its_outcome_and_what_nothing_catches_ends_the_work(queue):
    """Its job is given back: it was interrupted, and did not fail."""

    @queue.task(attempts=1)
    def broken() -> None:
        raise ValueError("no good")

    @queue.task()
    def leaves() -> None:
        raise KeyboardInterrupt

    failed = broken.add()
    holdfast.work(queue, until_empty=True)
    left = leaves.add()
    with pytest.raises(KeyboardInterrupt):
        holdfast.work(queue, until_empty=True)

    with pytest.raises(holdfast.JobFailed, match="no good"):
        failed.result()
    assert (left.get().state, left.get().attempts, left.get().losses) == ("QUEUED", 0, 0)


def test_an_exit_of_a_handler_is_an_error_of_its_job(queue):
    """As in a worker: the others go on, and its attempts are counted."""

    @queue.task(attempts=1)
    def leaves() -> None:
        sys.exit("bad arguments")

    @queue.task(attempts=1)
    async def leaves_later() -> None:
        sys.exit(3)

    left, other = [leaves.add(), leaves_later.add()], queue.add("double", {"n": 1})

    assert holdfast.work(queue, until_empty=True) == 3

    assert other.result() == 2
    assert [job.get().reason.partition("handler raised ")[2] for job in left] == [
        "SystemExit: bad arguments",
        "SystemExit: 3",
    ]


def test_a_run_past_its_limit_is_an_attempt(queue):
    """It is answered then, and its handler is told; what that does later changes nothing."""

    @queue.task(timeout="1s", attempts=1)
    def slow(ctx: holdfast.Context) -> str:
        until(lambda: ctx.cancelled)
        told.append(job.get())
        return "too late"

    told: list[Job] = []
    job = slow.add()

    assert holdfast.work(queue, until_empty=True) == 1

    assert [str(record.state) for record in told] == ["FAILED"]
    assert job.get().reason == "gave up after 1 attempt: still running after its limit of 1 s"
    assert job.get().losses == 0


def test_a_run_that_ends_in_time_is_not_answered_again_while_its_answer_is_committed(queue, monkeypatch):
    """Its job would run twice."""

    @queue.task(timeout="1s")
    def quick() -> int:
        return 1

    ask, said = queue.connection.ask, list[c.Answer]()

    def slow(asked: Any, **options: Any) -> Any:
        if isinstance(asked, c.Answer):
            said.append(asked)
            time.sleep(1.1)
        return ask(asked, **options)

    monkeypatch.setattr(queue.connection, "ask", slow)
    job = quick.add()

    assert holdfast.work(queue, until_empty=True) == 1

    assert (len(said), job.result(), job.get().attempts) == (1, 1, 0)


def test_a_store_that_fails_is_told(queue, monkeypatch):
    """Nobody else would hear of it."""
    queue.add("fills", {"n": 1})
    store = queue.connection.engine.store

    def full(_fn, **_options):
        raise holdfast.StoreFull("no space is left")

    @queue.task()
    def fills(n: int) -> int:
        monkeypatch.setattr(store, "run", full)
        return n

    with pytest.raises(holdfast.StoreFull):
        holdfast.work(queue, until_empty=True)
    monkeypatch.undo()


SCRIPT = """
import signal, sys, time, holdfast

# Where interrupts are ignored, as in the background of a shell, they would be ignored here too.
signal.signal(signal.SIGINT, signal.default_int_handler)
queue = holdfast.connect(sys.argv[1])

@queue.task()
def patient(seconds: float) -> str:
    print("began", flush=True)
    # The first signal puts the handlers back.
    while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        time.sleep(0.01)
    print("stopping", flush=True)
    time.sleep(seconds)
    return "done"

print("ran", holdfast.work(queue), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish_and_gives_the_rest_back(tmp_path, number):
    """It returns as if it had been told to stop."""
    path = str(tmp_path / "jobs.db")
    with holdfast.connect(path) as queue:
        jobs = queue.add_many([("patient", {"seconds": 0.1})] * 4)
        command = [sys.executable, "-c", SCRIPT, path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            os.kill(process.pid, number)
            said = process.stdout.read()

        assert process.returncode == 0
        assert said == "stopping\nran 1\n"
        assert [str(job.get().state) for job in jobs].count("FINISHED") == 1
        assert queue.counts()["patient"] == {"QUEUED": 3, "FINISHED": 1}
        assert {job.get().losses for job in jobs} == {0}


def test_a_second_signal_gives_back_what_runs_and_does_not_wait_for_it(tmp_path):
    """Its process ends with the handler in the middle of a minute."""
    path = str(tmp_path / "jobs.db")
    with holdfast.connect(path) as queue:
        job = queue.add("patient", {"seconds": 60})
        command = [sys.executable, "-c", SCRIPT, path]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "began\n"
            os.kill(process.pid, signal.SIGINT)
            assert process.stdout.readline() == "stopping\n"
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)

        assert "KeyboardInterrupt" in said
        assert (job.get().state, job.get().attempts, job.get().losses) == ("QUEUED", 0, 0)


def test_signals_are_as_before_afterwards(queue):
    before = signal.getsignal(signal.SIGTERM)

    holdfast.work(queue, seconds=0.01)

    assert signal.getsignal(signal.SIGTERM) is before


def test_it_may_be_called_from_any_thread(queue):
    """It only leaves signals alone there."""
    job = queue.add("double", {"n": 4})
    thread = threading.Thread(target=lambda: holdfast.work(queue, until_empty=True))

    thread.start()
    thread.join()

    assert job.result() == 8


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"threads": 0}, "threads"),
        ({"max_jobs": 0}, "max_jobs"),
        ({"seconds": "soon"}, "seconds"),
        ({"lease": 0}, "lease"),
        ({"tasks": []}, "tasks"),
        ({"tasks": ["nothing"]}, "nothing"),
        ({"tasks": "double"}, "tasks"),
    ],
)
def test_bad_options_are_refused_before_anything_is_claimed(queue, options, word):
    job = queue.add("double", {"n": 1})

    with pytest.raises(BadInput, match=word):
        holdfast.work(queue, **options)

    assert job.get().claim == 0


def test_a_queue_without_tasks_or_of_the_other_kind_is_refused():
    with holdfast.connect("memory://") as queue:
        with pytest.raises(BadInput, match="task"):
            holdfast.work(queue)
        with pytest.raises(BadInput, match=r"holdfast\.work`"):
            asyncio.run(holdfast.work_async(queue))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="work_async"):
        holdfast.work(holdfast.connect_async("memory://"))  # type: ignore[arg-type]


def test_an_asyncio_queue_is_worked_on_its_own_loop(tmp_path):
    """Several coroutines at once, and a plain function."""

    async def main() -> None:
        async with holdfast.connect_async(str(tmp_path / "jobs.db")) as queue:
            both = asyncio.Barrier(2)

            @queue.task()
            async def meets() -> str:
                await both.wait()
                return "met"

            queue.task(name="double")(double)
            jobs = [await meets.add(), await meets.add(), await queue.add("double", {"n": 2})]

            assert await holdfast.work_async(queue, threads=2, until_empty=True) == 3

            assert [await job.result() for job in jobs] == ["met", "met", 4]

    asyncio.run(main())


def test_an_exit_and_an_inner_cancellation_are_errors_of_a_coroutine(tmp_path):
    """Only its own task being cancelled means that the worker ends."""

    async def main() -> None:
        async with holdfast.connect_async(str(tmp_path / "jobs.db")) as queue:

            @queue.task(attempts=1)
            async def leaves() -> None:
                sys.exit(3)

            @queue.task(attempts=1)
            async def awaits_cancelled() -> None:
                inner = asyncio.create_task(asyncio.Event().wait())
                inner.cancel()
                await inner

            jobs = [await leaves.add(), await awaits_cancelled.add()]

            assert await holdfast.work_async(queue, until_empty=True) == 2

            records = [await job.get() for job in jobs]
            assert [str(job.state) for job in records] == ["FAILED", "FAILED"]
            assert ["SystemExit: 3" in records[0].reason, "CancelledError" in records[1].reason] == [True] * 2

    asyncio.run(main())


def test_cancelling_it_gives_everything_back(tmp_path):
    """What runs too."""

    async def main() -> None:
        async with holdfast.connect_async(str(tmp_path / "jobs.db")) as queue:
            began = asyncio.Event()

            @queue.task()
            async def waits() -> None:
                began.set()
                await asyncio.Event().wait()

            jobs = [await waits.add() for _ in range(3)]
            working = asyncio.create_task(holdfast.work_async(queue))
            await began.wait()

            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working

            records = [await job.get() for job in jobs]
            assert {(str(job.state), job.attempts, job.losses) for job in records} == {("QUEUED", 0, 0)}

    asyncio.run(main())


def test_the_room_of_workers_is_still_a_module():
    """`holdfast.work` is called, and its files are found in it."""
    import holdfast.work.executor.executor as executor

    assert callable(holdfast.work)
    assert executor.__name__ == "holdfast.work.executor.executor"
