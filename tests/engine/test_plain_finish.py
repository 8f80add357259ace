"""A plain finish takes a short way through the engine: everything is as if it took the long one."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pytest
from holdfast.engine.commands.ending import plain_ends
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.job import Body, Code, Job
from holdfast.core.schedule import Schedule
from holdfast.engine.engine import Engine
from holdfast.store.contract import JobFilter, ReadTxn
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

NOW_MS = 1_767_225_600_000


def history(*, retention_ms: int) -> list[Any]:
    """What is seen of a history with plain finishes among others, in batches with other commands."""
    clock = MovedClock(NOW_MS)
    engine = Engine(MemoryStore(clock), retention_ms=retention_ms, dice=lambda: 0.5)
    seen: list[Any] = []

    def do(*commands: c.Command) -> list[Any]:
        replies = engine.execute(commands).replies
        seen.append([_shown(reply) for reply in replies])
        return replies

    names = [*"aaaaab", "twice", *"cccc", "lost", "free"]
    do(c.Add(jobs=tuple(c.NewJob(task=name, id=at, then=_then(name)) for at, name in enumerate(names, 101))))
    claimed = [one.job for one in do(c.Claim(limit=len(names), lease_ms=1_000))[0]]
    clock.advance(50)
    one, two, three, four, five, follows, twice, *others, lost, free = claimed
    do(
        *(c.Answer(hold=c.hold_of(job), held=job, result='"last"') for job in others[1:]),
        c.Add(jobs=(c.NewJob(task="new"), c.NewJob(task="new")), more=("{}",)),
        c.Answer(hold=c.hold_of(others[0]), held=others[0], exit_code=201, error="odd"),
        c.Answer(hold=c.hold_of(lost), held=lost, code=Code.ERROR, error="no"),
        c.Release(hold=c.hold_of(free)),
        c.Claim(limit=2, lease_ms=1_000),
    )
    late = c.Hold(job_id=four.id, owner=four.owner, claim=four.claim + 1)
    do(
        c.Answer(hold=c.hold_of(one), held=one),
        c.Answer(hold=c.hold_of(two), held=two, result='"found"'),
        c.Answer(hold=late, held=four),
        c.Answer(hold=replace(c.hold_of(three), tenant="other"), held=three),
        c.Answer(hold=c.hold_of(follows), held=follows, result="1"),
        c.Answer(hold=c.hold_of(twice), held=twice),
        c.Answer(hold=c.hold_of(twice), held=twice),
        c.Cancel(job_id=one.id),
    )
    do(c.Cancel(job_id=five.id, force=True), c.Answer(hold=c.hold_of(five), held=five))
    do(c.Report(hold=c.hold_of(four), fraction=0.5), c.Answer(hold=c.hold_of(four), held=four))
    do(c.Answer(hold=c.hold_of(three), held=replace(three, version=99), exit_code=201))
    do(c.Requeue(job_id=three.id), c.Claim(limit=10, lease_ms=1_000))
    seen.append(engine.read(lambda txn: txn.counts()))
    seen += [engine.read(partial(_all, archived=archived)) for archived in (False, True)]
    return seen


def _all(txn: ReadTxn, *, archived: bool) -> tuple[list[Job], dict[int, Body]]:
    jobs = txn.jobs(JobFilter(archived=archived), after=0, limit=100)
    return jobs, txn.bodies([job.id for job in jobs], result=True)


def _then(task: str) -> c.NewJob | None:
    return c.NewJob(task="next", id=900) if task == "b" else None


def _shown(reply: Any) -> Any:
    return (type(reply), str(reply)) if isinstance(reply, Exception) else reply


@pytest.mark.parametrize("retention_ms", [0, 60_000])
def test_it_shows_what_the_long_way_shows(monkeypatch: pytest.MonkeyPatch, retention_ms: int) -> None:
    taken: list[int] = []

    def counted(commands: Sequence[c.Command]) -> dict[int, c.Answer]:
        ends = plain_ends(commands)
        taken.append(len(ends))
        return ends

    monkeypatch.setattr("holdfast.engine.engine.plain_ends", counted)
    short = history(retention_ms=retention_ms)
    assert sum(taken) >= 4
    monkeypatch.setattr("holdfast.engine.engine.plain_ends", lambda _: {})
    assert short == history(retention_ms=retention_ms)


def test_one_that_did_not_end_well_goes_the_long_way() -> None:
    engine = Engine(MemoryStore(MovedClock(NOW_MS)), dice=lambda: 0.5)
    engine.execute([c.Add(jobs=(c.NewJob(task="a"),))])
    job: Job = engine.execute([c.Claim(limit=1, lease_ms=1_000)]).replies[0][0].job
    after = engine.execute([c.Answer(hold=c.hold_of(job), held=job, code=Code.ERROR, error="no")]).replies[0]
    assert (after.attempts, after.errors[0].error) == (1, "no")


@pytest.mark.parametrize("overlap", ["skip", "wait"])
def test_a_schedule_that_comes_with_the_end_of_its_last_job_sees_that_end(
    overlap: Literal["skip", "wait"],
) -> None:
    """Else it would be passed over, or wait, for a job that is over."""
    clock = MovedClock(NOW_MS)
    engine = Engine(MemoryStore(clock), dice=lambda: 0.5)
    claim = c.Claim(limit=10, lease_ms=60_000)
    schedule = Schedule(name="tick", every_ms=10_000, overlap=overlap)
    engine.execute([c.SetSchedule(schedule=schedule, job=c.NewJob(task="a"))])
    clock.advance(10_000)
    ((one,),) = engine.execute([claim]).replies
    clock.advance(10_000)
    _, again = engine.execute([c.Answer(hold=c.hold_of(one.job), held=one.job), claim]).replies

    assert [claimed.job.schedule for claimed in again] == ["tick"]
