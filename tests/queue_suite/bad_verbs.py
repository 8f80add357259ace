"""Bad input to the other verbs: claims, answers, changes, questions, limits and schedules."""

import math
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.core.errors import BadInput
from holdfast.queue.queue import ClaimedJob, Queue

from .fixtures import MakeQueue
from .refusals import NO_DURATIONS, NO_MOMENTS, NO_NAMES, NO_REPEATS, Row, Thing, not_refused, row
from .tools import take, unchanged


def _claims(queue: Queue) -> Iterable[Row]:
    yield row("tasks", queue.claim, "work")
    yield row("tasks", queue.next, "work")
    for limit in (0, -1, 1_001, 1.5, "1", True):
        yield row("limit", queue.claim, limit=limit)
    for lease in (*NO_DURATIONS, 0, 0.001):
        yield row("lease", queue.next, lease=lease)
    for wait in NO_DURATIONS:
        yield row("wait", queue.next, wait=wait)
        yield row("wait", queue.result, 1, wait=wait)


def test_bad_claims_are_refused(queue: Queue) -> None:
    """Tasks, limit, lease and wait."""
    queue.add("work")

    with unchanged(queue):
        assert not_refused(_claims(queue), BadInput) == []


def _answers(job: ClaimedJob) -> Iterable[Row]:
    for fraction in (-0.1, 1.1, math.nan, "half", None):
        yield row("progress", job.progress, fraction)
    yield row("note", job.progress, 0.5, "x" * 1_025)
    yield row("note", job.progress, 0.5, 7)
    for duration in NO_DURATIONS:
        yield row("lease", job.extend, duration)
        yield row("delay", job.retry, duration)
    for name in NO_NAMES:
        yield row("task", job.add, name)
    wrong: list[Any] = [7, False, ValueError, Thing()]
    for error in wrong:
        yield row("error", job.done, error=error)
        yield row("error", job.fail, error)
    yield row("error", job.fail, None)


def test_bad_answers_are_refused_and_the_job_is_still_held(queue: Queue) -> None:
    """Progress, leases, delays, children and errors."""
    queue.add("work")
    job = take(queue)

    with unchanged(queue):
        assert not_refused(_answers(job), BadInput) == []

    assert job.done().state == "FINISHED"


@pytest.mark.parametrize("reason", [ValueError("away"), "away"], ids=["error", "text"])
def test_the_reason_of_a_retry_may_be_an_error(queue: Queue, reason: Any) -> None:
    """Its text is kept, as that of a `Retry` that a handler raises."""
    queue.add("work")

    assert take(queue).retry("1s", reason=reason).errors[-1].error == "away"


def _updates(queue: Queue, job: Any) -> Iterable[Row]:
    for priority in (-1, 1_001, 0.5, "high", "", True):
        yield row("priority", queue.update, job, priority=priority)
    for moment in NO_MOMENTS:
        yield row("run_at", queue.update, job, run_at=moment)
        yield row("run_at", queue.requeue, job, run_at=moment)
        yield row("before", queue.purge, before=moment)
    for repeat in NO_REPEATS:
        yield row("repeat", queue.update, job, repeat=repeat)


def test_bad_changes_are_refused(queue: Queue) -> None:
    """Priority, time and repeat."""
    added = queue.add("work")

    with unchanged(queue):
        assert not_refused(_updates(queue, added), BadInput) == []


def _lists(queue: Queue) -> Iterable[Row]:
    for state in ("", "SLEEPING", 7):
        yield row("state", queue.jobs, state=state)
    for limit in (0, -1, 10**9, 1.5, "1", True):
        yield row("limit", queue.jobs, limit=limit)
    for job in (-1, "abc", 1.5, Thing()):
        yield row("job id", queue.jobs, after=job)
        yield row("job id", queue.jobs, parent=job)
    yield row("domain", queue.jobs, domain=7)
    for name in NO_NAMES:
        if name is not None:
            yield row("task", queue.jobs, task=name)
            yield row("schedule", queue.jobs, schedule=name)


def test_bad_questions_are_refused(queue: Queue) -> None:
    """State, limit, page, domain and names."""
    assert not_refused(_lists(queue), BadInput) == []


def _limits(queue: Queue) -> Iterable[Row]:
    for domain in ("", b"", "x" * 1_025, 7, None, Thing()):
        yield row("domain", queue.limit, domain, rate=1)
    for rate in (0, -1, 1e-9, 1e9, math.nan, math.inf, "fast", "10/fortnight", "/s", "", True, [1]):
        yield row("rate", queue.limit, "api", rate=rate)
    for burst in (0, -1, 1.5, 10**9, "5", True):
        yield row("burst", queue.limit, "api", rate=1, burst=burst)
    for concurrency in (-1, 1.5, 10**9, "5", True):
        yield row("concurrency", queue.limit, "api", concurrency=concurrency)
    yield row("domain", queue.pause, domain="")
    yield row("domain", queue.pause, domain=7)
    yield row("not both", queue.pause, "work", domain="api")


def test_bad_limits_and_pauses_are_refused(queue: Queue) -> None:
    """Domains, rates, bursts and numbers."""
    with unchanged(queue):
        assert not_refused(_limits(queue), BadInput) == []


def _schedules(queue: Queue) -> Iterable[Row]:
    for name in NO_NAMES:
        yield row("name", queue.schedule, name, "work", every=60)
    for cron in ("", "* * * *", "61 * * * *", "* * 31 2 *", "@often", 7):
        yield row("cron", queue.schedule, "s", "work", cron=cron)
    for every in (*NO_DURATIONS, 0, 0.5, 1.5):
        yield row("every", queue.schedule, "s", "work", every=every)
    for repeat in ("SCHEDULED, -1 HOUR", *NO_REPEATS):
        yield row("repeat", queue.schedule, "s", "work", repeat=repeat)
    for tz in ("Mars/Olympus", "localtime", "../etc", 7):
        yield row("tz", queue.schedule, "s", "work", every=60, tz=tz)
    for word, options in (("catch_up", {"catch_up": "some"}), ("overlap", {"overlap": "never"})):
        yield row(word, queue.schedule, "s", "work", every=60, **options)
    for jitter in (*NO_DURATIONS, 60):
        yield row("jitter", queue.schedule, "s", "work", every=60, jitter=jitter)
    yield row("exactly one", queue.schedule, "s", "work")
    yield row("exactly one", queue.schedule, "s", "work", every=60, cron="* * * * *")
    yield row("priority", queue.schedule, "s", "work", every=60, priority=2_000)
    for name in NO_NAMES:
        yield row("schedule", queue.unschedule, name)
        yield row("schedule", queue.pause_schedule, name)
        yield row("schedule", queue.run_schedule, name)
        yield row("worker", queue.stop_worker, name)
    yield row("prepared call", queue.schedule, "s", queue.call("work"), every=60, priority=7)


def test_bad_schedules_are_refused(queue: Queue) -> None:
    """Names, times, zones and all that is said of their jobs."""
    with unchanged(queue):
        assert not_refused(_schedules(queue), BadInput) == []


def test_bad_queues_are_refused(make_queue: MakeQueue) -> None:
    """Tenant, retention and lease, before anything is opened."""
    rows: list[Row] = [row("tenant", make_queue, tenant=name) for name in NO_NAMES if name]
    rows += [row("retention", make_queue, retention=value) for value in NO_DURATIONS]
    rows += [row("lease", make_queue, lease=value) for value in (*NO_DURATIONS, 0)]

    assert not_refused(rows, BadInput) == []
