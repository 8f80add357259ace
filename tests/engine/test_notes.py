"""Steps and logs: how long they live, what they may cost, and who may write them."""

from typing import Any

import pytest

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.errors import LeaseLost, TooLarge
from holdfast.core.job import Code, Job, Place, State
from holdfast.core.notes import JobLog, lines_of
from holdfast.core.queries import GetLog, GetSteps
from tests.engine.test_found import Rig, hold


@pytest.fixture
def rig() -> Rig:
    """A fresh one."""
    return Rig()


def running(rig: Rig, **options: Any) -> Job:
    """A job that somebody has."""
    rig.add(**options)
    (job,) = rig.claim()
    return job


def step(rig: Rig, job: Job, name: str = "a", result: str = "1") -> Job:
    """A step that was done."""
    after: Job = rig.ok(c.Step(hold=hold(job), name=name, result=result))
    return after


def log(rig: Rig, job: Job, *lines: str) -> Job:
    """Lines that were logged."""
    after: Job = rig.ok(c.WriteLog(hold=hold(job), lines=lines))
    return after


def steps_of(rig: Rig, job: Job) -> dict[str, str]:
    """What is kept of a job's steps."""
    return {entry.name: entry.result for entry in rig.engine.query(GetSteps(job_id=job.id))}


def log_of(rig: Rig, job: Job) -> JobLog:
    """What is kept of a job's log."""
    found: JobLog = rig.engine.query(GetLog(job_id=job.id))
    return found


def records(rig: Rig) -> int:
    """How many records of steps and logs there are at all."""
    return rig.engine.read(lambda txn: len(txn.rows("steps")) + len(txn.rows("job_log")))


def test_steps_are_kept_through_retries_losses_failure_and_requeue(rig):
    """Until the work is done, however long that takes."""
    job = running(rig, max_attempts=2)
    step(rig, job, "a", "[1]")
    step(rig, job, "b", "null")

    rig.finish(job, code=Code.ERROR, delay_ms=0)
    (job,) = rig.claim()
    rig.ok(c.Release(hold=hold(job), lost=True))
    (job,) = rig.claim()
    assert rig.finish(job, code=Code.ERROR).state == State.FAILED
    rig.ok(c.Requeue(job_id=job.id))
    (job,) = rig.claim()

    assert steps_of(rig, job) == {"a": "[1]", "b": "null"}
    assert rig.finish(job).steps == 2
    assert steps_of(rig, job) == {"a": "[1]", "b": "null"}
    rig.ok(c.Purge(before_ms=rig.clock() + 1))
    assert records(rig) == 0


def test_a_parent_has_its_steps_when_it_is_resumed(rig):
    """The wait for its children is part of the same work."""
    parent = running(rig)
    step(rig, parent)
    rig.child(parent)
    rig.finish(parent)
    rig.finish(*rig.claim())

    (parent,) = rig.claim()

    assert steps_of(rig, parent) == {"a": "1"}


def test_a_repeat_begins_clean_and_goes_on_with_its_log(rig):
    job = running(rig, repeat="FINISHED, +1 SECOND")
    step(rig, job)
    log(rig, job, "first")

    rig.finish(job)
    rig.clock.advance(1_000)
    (job,) = rig.claim()
    log(rig, job, "second")

    assert (job.steps, steps_of(rig, job)) == (0, {})
    assert [(line.claim, line.text) for line in log_of(rig, job).lines] == [(1, "first"), (2, "second")]


def test_work_that_was_replaced_forgets_the_steps_of_the_old(rig):
    """And so does what the run that still has the old data says afterwards."""
    job = running(rig, unique=b"k")
    step(rig, job, "a")
    rig.add(unique=b"k", on_conflict="replace", data='{"n":2}')
    step(rig, job, "b")

    rig.finish(job, code=Code.RETRY)
    (job,) = rig.claim()

    assert steps_of(rig, job) == {}
    assert records(rig) == 0


def test_the_later_of_two_steps_of_one_name_counts(rig):
    job = running(rig)
    step(rig, job, "a", "1")
    step(rig, job, "b", "2")

    step(rig, job, "a", "3")

    assert steps_of(rig, job) == {"a": "3", "b": "2"}


def test_one_step_too_many_is_refused_and_changes_nothing(rig, monkeypatch):
    monkeypatch.setattr(bounds, "STEPS_KEPT", 2)
    monkeypatch.setattr(bounds, "STEP_BYTES", 10)
    job = running(rig)
    step(rig, job, "a", "12345678")

    (large,) = rig.do(c.Step(hold=hold(job), name="b", result="1"))
    monkeypatch.setattr(bounds, "STEP_BYTES", 100)
    step(rig, job, "b")
    (many,) = rig.do(c.Step(hold=hold(job), name="c", result="1"))

    assert isinstance(large, TooLarge)
    assert isinstance(many, TooLarge)
    assert steps_of(rig, job) == {"a": "12345678", "b": "1"}


def test_who_is_late_neither_steps_nor_logs(rig):
    """Nor do the lines that come with a late answer."""
    late = running(rig)
    rig.ok(c.Release(hold=hold(late)))
    (job,) = rig.claim()

    replies = rig.do(
        c.Step(hold=hold(late), name="a", result="1"),
        c.WriteLog(hold=hold(late), lines=("a",)),
        c.Answer(hold=hold(late), lines=("b",)),
    )

    assert [type(reply) for reply in replies] == [LeaseLost] * 3
    assert records(rig) == 0
    assert rig.job(job.id).place == Place.RUNNING


def test_of_a_long_log_the_last_lines_are_kept(rig):
    """By their number and by their bytes; how many went is told."""
    job = running(rig)
    line = "x" * (bounds.LOG_LINE_BYTES - 1)

    log(rig, job, "first", *[line] * 15)
    assert log_of(rig, job).cut == 0
    log(rig, job, line, "last")

    kept = log_of(rig, job)
    assert (kept.lines[-1].text, len(kept.lines), kept.cut) == ("last", 16, 2)
    for _ in range(3):
        log(rig, job, *[""] * 500)
    assert (len(log_of(rig, job).lines), rig.job(job.id).log_lines) == (bounds.LOG_LINES, 1518)


@pytest.mark.parametrize("way", ["delete", "purge", "upkeep"])
def test_a_log_goes_with_its_job(rig, way):
    """It can be read in the archive until then."""
    job = running(rig)
    log(rig, job, "one")
    rig.finish(job, lines=("two",))
    assert [line.text for line in log_of(rig, job).lines] == ["one", "two"]

    if way == "delete":
        rig.ok(c.Delete(job_id=job.id))
    elif way == "purge":
        rig.ok(c.Purge(before_ms=rig.clock() + 1))
    else:
        rig.clock.advance(bounds.DEFAULT_RETENTION_MS + 1)
        rig.ok(c.Upkeep())

    assert records(rig) == 0


def test_where_nothing_is_archived_the_log_goes_at_the_end():
    rig = Rig(retention_ms=0)
    job = running(rig)
    step(rig, job)
    log(rig, job, "one")

    rig.finish(job, lines=("two",))

    assert records(rig) == 0


def test_a_failed_job_that_is_deleted_leaves_nothing(rig):
    job = running(rig)
    step(rig, job)
    rig.finish(job, code=Code.FAILED, lines=("why",))
    assert records(rig) == 2

    rig.ok(c.Delete(job_id=job.id))

    assert records(rig) == 0


def test_what_is_said_becomes_lines_that_can_be_kept():
    """Split, cut with a mark, and without what cannot be written."""
    long = lines_of("é" * bounds.LOG_LINE_BYTES)[0]

    assert lines_of("a\nb\r\n") == ["a", "b"]
    assert lines_of("") == [""]
    assert lines_of("\ud800") == ["?"]
    assert long.endswith("é…")
    assert bounds.LOG_LINE_BYTES - 2 < len(long.encode()) <= bounds.LOG_LINE_BYTES


def test_a_follower_that_cannot_be_merged_takes_the_place_of_what_was_there(rig):
    """Data that is no JSON was let in by some door; the finish stands nevertheless."""
    rig.add("b", then=c.NewJob(task="a", unique=b"k", on_conflict="merge"))
    holder = rig.add("a", unique=b"k", data="no JSON")
    (first,) = rig.claim(tasks=("b",))

    assert rig.finish(first, result="1").state == State.FINISHED

    assert rig.engine.read(lambda txn: txn.bodies([holder]))[holder] == "1"
