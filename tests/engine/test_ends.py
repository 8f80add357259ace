"""Ends of runs, among other commands of their batch."""

from typing import Literal

import pytest

from holdfast.core import commands as c
from holdfast.core.job import Code, Job
from holdfast.core.schedule import Schedule
from holdfast.engine.engine import Engine
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

NOW_MS = 1_767_225_600_000


def claimed(engine: Engine, limit: int = 1) -> list[Job]:
    """Jobs that were just claimed."""
    return [one.job for one in engine.execute([c.Claim(limit=limit, lease_ms=1_000)]).replies[0]]


def test_what_a_holder_says_it_has_is_believed_only_if_it_is_so() -> None:
    """One that is out of date is looked up; one that is late is refused, alone."""
    engine = Engine(MemoryStore(MovedClock(NOW_MS)), rng=lambda: 0.5)
    engine.execute([c.Add(jobs=(c.NewJob(task="a"),) * 3)])
    one, two, three = claimed(engine, 3)
    engine.execute([c.Report(hold=c.hold_of(two), fraction=0.5)])
    engine.execute([c.Cancel(job_id=three.id, force=True)])

    ends = [c.Answer(hold=c.hold_of(job), held=job) for job in (one, two, three)]
    first, second, third = engine.execute(ends).replies

    assert [job.state for job in (first, second)] == ["FINISHED", "FINISHED"]
    assert isinstance(third, Exception)


def test_one_that_did_not_end_well_runs_again() -> None:
    engine = Engine(MemoryStore(MovedClock(NOW_MS)), rng=lambda: 0.5)
    engine.execute([c.Add(jobs=(c.NewJob(task="a"),))])
    (job,) = claimed(engine)
    after = engine.execute([c.Answer(hold=c.hold_of(job), held=job, code=Code.ERROR, error="no")]).replies[0]
    assert (after.attempts, after.errors[0].error) == (1, "no")


@pytest.mark.parametrize("overlap", ["skip", "wait"])
def test_a_schedule_that_comes_with_the_end_of_its_last_job_sees_that_end(
    overlap: Literal["skip", "wait"],
) -> None:
    """Else it would be passed over, or wait, for a job that is over."""
    clock = MovedClock(NOW_MS)
    engine = Engine(MemoryStore(clock), rng=lambda: 0.5)
    claim = c.Claim(limit=10, lease_ms=60_000)
    schedule = Schedule(name="tick", every_ms=10_000, overlap=overlap)
    engine.execute([c.SetSchedule(schedule=schedule, job=c.NewJob(task="a"))])
    clock.advance(10_000)
    ((one,),) = engine.execute([claim]).replies
    clock.advance(10_000)
    _, again = engine.execute([c.Answer(hold=c.hold_of(one.job), held=one.job), claim]).replies

    assert [claimed.job.schedule for claimed in again] == ["tick"]
