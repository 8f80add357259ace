"""Bad input when a job is added or asked for: an error that names the thing, and nothing has changed."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from holdfast.core.errors import BadInput, HoldfastError, NotFound, Refused, TooLarge
from holdfast.core.job import Backoff
from holdfast.queue.queue import Queue

from .refusals import NAIVE, NO_DURATIONS, NO_MOMENTS, NO_NAMES, NO_REPEATS, Row, Thing, not_refused, row
from .tools import take, unchanged

# Numbers of other types too, also if they equal the default: the record could not be read again.
NO_BACKOFFS: list[Any] = [Backoff(jitter=jitter) for jitter in (2.0, -0.1, True, "x", None)]  # type: ignore[arg-type]
NO_BACKOFFS += [Backoff(first_ms=ms) for ms in (-1, 1.5, 1_000.0, True, "1s")]  # type: ignore[arg-type]
NO_BACKOFFS += [Backoff(most_ms=ms) for ms in (-1, 3_600_000.0, 10**15)]  # type: ignore[arg-type]

# ── adding ───────────────────────────────────────────────────────────────────────────────────────


def _options(queue: Queue) -> Iterable[Row]:
    """A row for each bad value of each option."""
    bad: dict[str, list[Any]] = {
        "priority": [-1, 1_001, 0.5, "high", True, 10**30],
        "delay": NO_DURATIONS,
        "run_at": NO_MOMENTS,
        "expires": [*NO_DURATIONS, NAIVE],
        "attempts": [-1, 10**9, 1.5, "5", True],
        "losses": [-1, 0, 10**9, 1.5, "5", True],
        "at_most_once": [1, 0, "yes"],
        "backoff": [*NO_DURATIONS, (10, 1), (1, 2, 3), *NO_BACKOFFS],
        "timeout": NO_DURATIONS,
        "retry_after": [*NO_DURATIONS, "+1 HOUR, +1 HOUR", "-1 HOUR", "START OF DAY", "SCHEDULED, +1 HOUR"],
        "repeat": NO_REPEATS,
        "unique": ["", "x" * 1_025, 7, ["key"], Thing()],
        "unique_for": NO_DURATIONS,
        "on_conflict": ["", "overwrite", 7],
        "domain": ["", "x" * 1_025, b"", 7, ["api"], Thing(), str],
        "parent": [-1, 0, 2**63, "abc", 1.5, Thing()],
        "when_child_fails": ["", "panic", 7],
        "then": ["", 7, Thing(), "a\nb"],
        "tenant": ["x" * 256, "a\nb", 7, b"acme"],
    }
    for option, values in bad.items():
        for value in values:
            extra = {"unique": "key"} if option == "unique_for" else {}
            options: Any = {option: value, **extra}
            yield row(option, queue.add, "work", **options)


def test_bad_options_are_refused_by_name(queue: Queue) -> None:
    """Wrong types, negative and huge numbers, what is no time and no repeat."""
    with unchanged(queue):
        assert not_refused(_options(queue), BadInput) == []


def test_bad_names_of_tasks_are_refused(queue: Queue) -> None:
    """Too long, empty, with control characters, not text: by whichever verb."""

    def function() -> None:
        """Not a task: nobody has made it one."""

    rows: list[Row] = []
    for name in (*NO_NAMES, function):
        rows += [
            row("task", queue.add, name),
            row("task", queue.call, name),
            row("task", queue.claim, [name]),
            row("task", queue.schedule, "s", name, every=60),
        ]
        if name is not None:
            rows.append(row("task", queue.pause, name))

    with unchanged(queue):
        assert not_refused(rows, BadInput) == []


def test_what_is_no_task_is_told_what_one_is(queue: Queue) -> None:
    """A function that was not made one, and a prepared call."""
    verbs: list[Any] = [queue.add, queue.call, queue.pause, lambda task: queue.next([task])]
    for verb in verbs:
        with pytest.raises(BadInput, match=r"a task \(a function under @queue\.task\), or the name of one"):
            verb(len)
        with pytest.raises(BadInput, match=r"task is 'a prepared call', .* add_many takes prepared calls"):
            verb(queue.call("work"))


def test_data_that_cannot_be_written_is_refused(queue: Queue) -> None:
    """In the producer, by add, and by the answer of a job."""
    queue.add("work")
    job = take(queue)
    cycle: list[Any] = []
    cycle.append(cycle)
    rows: list[Row] = []
    for value in (Thing(), {1, Thing()}, {(1, 2): 3}, [object()], cycle, "\ud800", lambda: None):
        rows += [
            row("data", queue.add, "work", value),
            row("data", queue.add_many, [("work", value)]),
            row("data", queue.update, job.id, data=value),
            row("data", job.update, value),
            row("data", job.done, data=value),
            row("result", job.done, value),
        ]

    with unchanged(queue):
        assert not_refused(rows, BadInput) == []
    assert job.done(1).state == "FINISHED"


def test_data_that_is_too_large_is_refused(queue: Queue) -> None:
    """16 MB, of text in bytes; and the error tells the size, not the data."""
    queue.add("work")
    job = take(queue)
    large, text = bytes(16 * 1024 * 1024 + 1), "ä" * (8 * 1024 * 1024)

    with unchanged(queue):
        rows: list[Row] = [
            row("data is '16,777,217 bytes'", queue.add, "work", large),
            row("data is '16,777,218 bytes'", queue.add, "work", text),
            row("result is '16,777,217 bytes'", job.done, large),
            row("data is '16,777,217 bytes'", job.update, large),
        ]
        assert not_refused(rows, TooLarge) == []


def test_what_is_no_list_of_jobs_is_refused(queue: Queue) -> None:
    """Pairs of task and data, or prepared calls."""
    bad: list[Any] = ["work", 7, ("work",), ("work", 1, 2), (1, "work"), None, {"task": "work"}]
    rows: list[Row] = [row("job", queue.add_many, [("work", 1), item]) for item in bad]

    with unchanged(queue):
        assert not_refused(rows, BadInput) == []


def test_an_unknown_option_is_refused_by_name(queue: Queue) -> None:
    """With those that there are, and that which another queue calls so."""
    with (
        unchanged(queue),
        pytest.raises(BadInput, match=r"option is 'prio', and must be priority, .* or one of at"),
    ):
        queue.add("work", prio=7)  # type: ignore[call-overload]
    with unchanged(queue), pytest.raises(BadInput, match="must be attempts, as it is called here, or one of"):
        queue.add("work", max_retries=7)  # type: ignore[call-overload]


# ── jobs that are not there ──────────────────────────────────────────────────────────────────────


def test_a_job_that_is_none_is_refused_by_every_verb(queue: Queue) -> None:
    """Neither a number nor anything that has one."""
    verbs: list[Callable[[Any], Any]] = [queue.get, queue.data, queue.result, queue.why, queue.cancel]
    verbs += [queue.requeue, queue.delete, lambda job: queue.update(job, data=1)]
    rows: list[Row] = []
    jobs: list[Any] = [-1, 2**63, "abc", "", "-1", "1.5", 1.5, None, True, Thing(), [], b"1"]
    for job in jobs:
        rows += [row("job id", verb, job) for verb in verbs]

    with unchanged(queue):
        assert not_refused(rows, BadInput) == []


def test_a_job_that_never_was_is_not_found_by_every_verb(queue: Queue) -> None:
    """Its number is told."""
    verbs: list[Callable[[Any], Any]] = [queue.get, queue.data, queue.result, queue.why, queue.cancel]
    verbs += [queue.requeue, queue.delete, lambda job: queue.update(job, data=1)]
    verbs += [lambda job: queue.add("work", parent=job)]

    with unchanged(queue):
        assert not_refused([row("12345", verb, 12345) for verb in verbs], NotFound) == []


def test_what_a_verb_needs_of_a_job_is_told(queue: Queue) -> None:
    """The job, what it is, and what it must be."""
    added = queue.add("work")
    take(queue)

    with unchanged(queue), pytest.raises(Refused) as raised:
        queue.delete(added)

    assert str(raised.value).startswith(f"cannot delete job {added.id}: it is RUNNING, and must be ")
    assert raised.value.code == "REFUSED"


def test_no_payload_appears_in_an_error(queue: Queue) -> None:
    """What is shown of a value is cut off long before it could be one."""
    secret = "x" * 10_000
    for _, call in (row("task", queue.add, secret), row("delay", queue.add, "work", delay=secret)):
        with pytest.raises(HoldfastError) as raised:
            call()
        assert len(str(raised.value)) < 400
