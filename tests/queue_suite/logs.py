"""What is logged of jobs: one record for each event, with fields, and never their data."""

import asyncio
import logging
from typing import Any

import pytest

from holdfast.queue.answers import Failed, Retry
from holdfast.queue.queue import Queue
from holdfast.queue.running import JobLogFilter, current_job_id
from holdfast.testing.clock import MovedClock

from .fixtures import MakeAsyncQueue, MakeQueue
from .tools import MINUTE_MS, STEADY, take, upkeep

JOB_LOGGER = "holdfast.job"
SECRET = "payload-nobody-may-read"


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The events of jobs so far, and their levels."""
    return [(record.event, record.levelname) for record in records(caplog)]


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The records of jobs so far."""
    return [record for record in caplog.records if record.name == JOB_LOGGER]


def test_a_run_is_logged_with_its_job_when_it_starts_and_finishes(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """The fields are on the record, for whatever writes it down."""
    caplog.set_level(logging.DEBUG, JOB_LOGGER)
    queue.task(name="double")(lambda n: 2 * n)
    job = queue.add("double", {"n": 4})

    take(queue).run()

    assert events(caplog) == [("added", "DEBUG"), ("started", "DEBUG"), ("finished", "INFO")]
    added, started, finished = records(caplog)
    for record in (started, finished):
        found = (record.job_id, record.task, record.attempt, record.tenant, record.error)
        assert found == (job.id, "double", 1, "", "")
    assert (added.job_id, added.task) == (job.id, "double")
    assert started.duration_ms is None
    assert finished.duration_ms >= 0


def test_what_raises_is_logged_as_a_retry_and_in_the_end_as_a_failure(
    queue: Queue, caplog: pytest.LogCaptureFixture, clock: MovedClock
) -> None:
    """Without any setting, with the traceback, of which only the user's own frames are left."""

    @queue.task(attempts=2, backoff=STEADY)
    def broken() -> None:
        raise ValueError("no good")

    job = broken.add()
    take(queue).run()
    clock.advance(MINUTE_MS)
    take(queue).run()

    assert events(caplog) == [("retry", "WARNING"), ("failed", "ERROR")]
    retry, failed = records(caplog)
    assert (retry.job_id, retry.attempt, failed.attempt) == (job.id, 1, 2)
    assert retry.error == failed.error == "ValueError: no good"
    assert "runs again in about 1.0 s: attempt 1 of 2" in retry.getMessage()
    for record in (retry, failed):
        trace = logging.Formatter().formatException(record.exc_info)
        assert "in broken" in trace
        assert "running.py" not in trace


def test_a_stored_traceback_begins_with_the_handler(queue: Queue) -> None:
    """What called it is Holdfast's own affair; what it called is not cut."""

    def inner() -> None:
        raise ValueError("no good")

    @queue.task(attempts=1)
    def outer() -> None:
        try:
            inner()
        except ValueError as error:
            raise KeyError("outer") from error

    job = outer.add()
    take(queue).run()

    outcome = job.get().outcome
    assert outcome is not None
    assert outcome.traceback.count("in outer") == 2
    assert "in inner" in outcome.traceback
    assert "running.py" not in outcome.traceback


def test_a_stored_traceback_of_a_coroutine_is_its_own_alone(queue: Queue) -> None:
    """Not that of how it was called."""

    @queue.task
    async def work() -> None:
        raise ValueError("no")

    added = work.add()
    take(queue).run()
    outcome = added.get().outcome

    assert outcome is not None
    assert outcome.traceback.count("Traceback") == 1


def test_data_that_do_not_fit_are_logged_without_a_traceback_of_holdfast(
    queue: Queue, make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """No code of the user's was part of it, so there is nothing to show."""

    @queue.task(attempts=1)
    def double(n: int) -> int:
        return 2 * n

    # By a process that does not know the task.
    job = make_queue().add("double", {"wrong": SECRET}, attempts=1)
    take(queue).run()

    assert events(caplog) == [("failed", "ERROR")]
    assert SECRET not in caplog.text
    assert records(caplog)[0].exc_info is None
    outcome = job.get().outcome
    assert outcome is not None
    assert "running.py" not in outcome.traceback


def test_an_asked_for_end_is_logged_as_what_it_is(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """`Retry` that spends an attempt warns, one that only waits does not; `Failed` is an error."""
    caplog.set_level(logging.INFO, JOB_LOGGER)

    @queue.task()
    def ask(what: str) -> None:
        raise {"again": Retry("1h"), "wait": Retry("1h", counts=False), "never": Failed("no use")}[what]

    for what in ("again", "wait", "never"):
        ask.add(what)
        take(queue).run()

    assert events(caplog) == [("retry", "WARNING"), ("retry", "INFO"), ("failed", "ERROR")]
    assert records(caplog)[2].error == "no use"


def test_a_job_whose_lease_runs_out_is_logged_as_lost_and_then_as_quarantined(
    queue: Queue, caplog: pytest.LogCaptureFixture, clock: MovedClock
) -> None:
    """By whoever notices: its holder is gone."""
    job = queue.add("vanish", losses=2)
    for _ in range(2):
        take(queue, lease="1m")
        clock.advance(2 * MINUTE_MS)
        upkeep(queue)

    assert events(caplog) == [("lost", "WARNING"), ("quarantined", "ERROR")]
    assert {record.job_id for record in records(caplog)} == {job.id}
    assert {record.duration_ms for record in records(caplog)} == {2 * MINUTE_MS}


def test_a_job_that_expires_is_logged(
    queue: Queue, caplog: pytest.LogCaptureFixture, clock: MovedClock
) -> None:
    """It is FAILED, and no handler ever raised."""
    queue.add("late", expires="1m")
    clock.advance(2 * MINUTE_MS)
    upkeep(queue)

    assert events(caplog) == [("expired", "ERROR")]


def test_a_holder_whose_claim_is_lost_logs_it(
    queue: Queue, caplog: pytest.LogCaptureFixture, clock: MovedClock
) -> None:
    """Its run was in vain, and is done again by another."""

    @queue.task()
    def slow() -> None:
        clock.advance(2 * MINUTE_MS)
        take(queue)

    slow.add()
    first = take(queue, lease="1m")
    with pytest.raises(Exception, match="must be held by"):
        first.run()

    assert [event for event, _ in events(caplog)] == ["lost", "lost"]
    assert "its answer is refused" in records(caplog)[1].getMessage()


def test_what_a_handler_logs_can_carry_its_job(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """By a filter of the handler that writes it; outside of a job the fields are there and None."""
    caplog.handler.addFilter(JobLogFilter())
    seen = []

    @queue.task()
    def speak() -> None:
        seen.append(current_job_id())
        logging.getLogger("app").warning("inside")

    job = speak.add()
    take(queue).run()
    logging.getLogger("app").warning("outside")

    inside, outside = [record for record in caplog.records if record.name == "app"]
    assert seen == [job.id]
    assert (inside.job_id, inside.task, inside.attempt) == (job.id, "speak", 1)  # type: ignore[attr-defined]
    assert outside.job_id is None  # type: ignore[attr-defined]
    assert current_job_id() is None


def test_coroutines_side_by_side_each_know_their_own_job(
    make_async_queue: MakeAsyncQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in what they start and in threads that asyncio gives them; failures are logged here too."""
    seen: dict[int, set[int | None]] = {}

    async def main() -> None:
        async with make_async_queue() as queue:
            both = asyncio.Barrier(2)

            @queue.task(attempts=1)
            async def speak(n: int) -> None:
                await both.wait()
                started = await asyncio.create_task(in_a_task())
                seen[n] = {current_job_id(), started, await asyncio.to_thread(current_job_id)}
                raise ValueError(n)

            jobs = [await speak.add(n) for n in range(2)]
            claimed = await queue.claim(limit=2, renew=False)
            await asyncio.gather(*(job.run() for job in claimed))
            assert seen == {n: {job.id} for n, job in enumerate(jobs)}

    async def in_a_task() -> int | None:
        return current_job_id()

    asyncio.run(main())

    assert events(caplog) == [("failed", "ERROR")] * 2
    for record in records(caplog):
        trace = logging.Formatter().formatException(record.exc_info)
        assert "in speak" in trace
        assert "running.py" not in trace


def test_neither_data_nor_results_are_logged(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """At any level, in any field."""
    caplog.set_level(logging.DEBUG, "holdfast")

    @queue.task(attempts=1)
    def handle(text: str, *, fails: bool) -> str:
        if fails:
            raise ValueError("no good")
        return text

    for fails in (False, True):
        handle.add(SECRET, fails=fails)
        take(queue).run()

    assert len(caplog.records) == 6
    for record in caplog.records:
        assert SECRET not in record.getMessage() + str(vars(record))
