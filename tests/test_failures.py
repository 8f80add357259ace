"""Which exceptions run a job again, and when."""

from collections.abc import Iterator

import pytest

from holdfast import BadInput, Failed, Job, Retry, connect
from holdfast.queue.queue import Queue


@pytest.fixture
def queue() -> Iterator[Queue]:
    with connect("memory://") as queue:
        yield queue


def run(queue: Queue, kind: type[BaseException]) -> Job:
    """Run a job of the task `raises`, which raises an exception."""
    queue.add("raises", {"kind": kind.__name__})
    job = queue.next()
    assert job is not None
    return job.run()


KINDS = (KeyError, OSError, ConnectionError, Failed)


def raises(kind: str) -> None:
    raise next(one for one in KINDS if one.__name__ == kind)


def test_only_the_exceptions_of_retry_on_run_again(queue: Queue) -> None:
    """And those of `fail_on` never, also where both name them."""
    queue.task(retry_on=(OSError,), fail_on=ConnectionError)(raises)

    assert run(queue, OSError).state == "QUEUED"
    for kind in (KeyError, ConnectionError):
        job = run(queue, kind)
        assert job.state == "FAILED"
        assert job.outcome is not None
        assert kind.__name__ in job.outcome.error
        assert "Traceback" in job.outcome.traceback


def test_without_retry_on_all_but_those_of_fail_on_run_again(queue: Queue) -> None:
    """`Failed` ends a job in any case."""
    queue.task(fail_on=LookupError)(raises)

    assert run(queue, OSError).state == "QUEUED"
    assert run(queue, KeyError).state == "FAILED"
    assert run(queue, Failed).state == "FAILED"


def test_backoff_may_be_a_function_of_the_attempt_and_the_exception(queue: Queue) -> None:
    """None: the usual backoff."""
    asked: list[tuple[int, str]] = []

    def backoff(attempt: int, error: BaseException) -> str | None:
        asked.append((attempt, type(error).__name__))
        return None if isinstance(error, KeyError) else "3h"

    queue.task(backoff=backoff)(raises)
    job = run(queue, OSError)
    assert job.outcome is not None
    assert job.run_at - job.outcome.at == 3 * 3600 * 1000
    job = run(queue, KeyError)
    assert job.outcome is not None
    assert 0 < job.run_at - job.outcome.at < 60_000
    assert asked == [(1, "OSError"), (1, "KeyError")]


def test_a_backoff_that_fails_does_not_hide_the_error(queue: Queue) -> None:
    """The job keeps its usual backoff."""
    queue.task(backoff=lambda attempt, error: 1 / 0)(raises)

    job = run(queue, OSError)
    assert job.state == "QUEUED"
    assert job.outcome is not None
    assert job.outcome.error.startswith("OSError")
    assert "the function of its backoff failed: ZeroDivisionError" in job.outcome.traceback


def test_the_reason_of_a_retry_may_be_an_exception(queue: Queue) -> None:
    """Told as of any other."""

    @queue.task
    def again() -> None:
        raise Retry("1m", reason=OSError("busy"))

    again.add()
    job = queue.next()
    assert job is not None
    after = job.run()
    assert after.outcome is not None
    assert after.outcome.error == "OSError: busy"


def test_mistakes_are_refused_at_the_declaration(queue: Queue) -> None:
    """By the option's name."""
    with pytest.raises(BadInput, match="must be a class of exceptions"):
        queue.task(retry_on="OSError")(raises)  # type: ignore[call-overload]
    with pytest.raises(BadInput, match="a function only in the decorator"):
        queue.task(raises).using(backoff=lambda attempt, error: 1)
    with pytest.raises(BadInput, match="only the decorator of the task"):
        queue.add("raises", retry_on=OSError)  # type: ignore[call-overload]
