"""What the random model found, each as the smallest history that shows it.

They are kept at the level of the engine, on the memory store: the rule was wrong, not a store.
"""

from typing import Any
from unittest.mock import Mock

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import HoldfastError, LeaseLost, Refused
from holdfast.core.job import Children, Code, Job, Place, State
from holdfast.core.limits import Limit
from holdfast.core.schedule import Schedule
from holdfast.engine.commands import claims, verbs
from holdfast.engine.engine import Engine
from holdfast.store.contract import JobFilter
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

NOW_MS = 1_767_225_600_000


class Rig:
    """An engine on a memory store whose clock is moved."""

    def __init__(self, retention_ms: int | None = None) -> None:
        self.clock = MovedClock(NOW_MS)
        self.engine = Engine(MemoryStore(self.clock), retention_ms=retention_ms, rng=lambda: 0.5)

    def do(self, *commands: c.Command) -> list[Any]:
        """The replies to a batch."""
        return self.engine.execute(commands).replies

    def ok(self, command: c.Command) -> Any:
        """The reply to one command, which must not be refused."""
        reply = self.do(command)[0]
        if isinstance(reply, HoldfastError):
            raise reply
        return reply

    def add(self, task: str = "a", **options: Any) -> int:
        """A job."""
        ids: list[int] = self.ok(c.Add(jobs=(c.NewJob(task=task, **options),)))
        return ids[0]

    def child(self, parent: Job, task: str = "a", **options: Any) -> int:
        """A child of a job that runs."""
        new = c.NewJob(task=task, parent_id=parent.id, **options)
        ids: list[int] = self.ok(c.Add(jobs=(new,), hold=hold(parent)))
        return ids[0]

    def claim(self, **options: Any) -> list[Job]:
        """Jobs that may run."""
        return [got.job for got in self.ok(c.Claim(**{"limit": 10, "lease_ms": 60_000} | options))]

    def finish(self, job: Job, **options: Any) -> Job:
        """A run that ended, well if nothing else is said."""
        after: Job = self.ok(c.Answer(hold=hold(job), **options))
        return after

    def job(self, job_id: int) -> Job | None:
        """A live job."""
        return self.engine.read(lambda txn: txn.load([job_id])).get(job_id)

    def live(self, **query: Any) -> list[Job]:
        """All live jobs that match."""
        return self.engine.read(lambda txn: txn.jobs(JobFilter(**query), after=0, limit=1000))


def hold(job: Job) -> c.Hold:
    """The claim of a job as it was handed out."""
    return c.Hold(job_id=job.id, owner=job.owner, claim=job.claim)


@pytest.fixture
def rig() -> Rig:
    """A fresh one."""
    return Rig()


def test_a_schedule_can_be_read_back(rig):
    """msgspec decodes no record that has a field of text or bytes; NewJob has one."""
    rig.ok(c.SetSchedule(schedule=Schedule(name="s", every_ms=1_000), job=c.NewJob(task="a", data=b"\xff")))
    rig.clock.advance(1_000)

    rig.ok(c.Upkeep())

    assert [got.data for got in rig.ok(c.Claim(lease_ms=1_000))] == [b"\xff"]


def test_a_job_is_followed_by_what_it_says(rig):
    """The same, for `then`."""
    rig.add("a", then=c.NewJob(task="b", unique=b"\0"))

    rig.finish(*rig.claim(), result="7")

    assert [(got.job.task, got.job.unique, got.data) for got in rig.ok(c.Claim())] == [("b", b"\0", "7")]


def test_children_are_released_when_their_parent_finishes(rig):
    """The memory store took an id for a rank, and found no child of any parent."""
    rig.add()
    (parent,) = rig.claim()
    child = rig.child(parent)

    rig.finish(parent)

    assert rig.job(child).state == State.QUEUED


def test_a_retry_after_that_leads_nowhere_stops_its_job_only(rig):
    """It leads past the year 2248; every claim that met it raised, and nobody got anything any more."""
    lost, fine = rig.add(retry_after="+999 YEARS"), rig.add()

    assert [job.id for job in rig.claim()] == [fine]
    assert rig.job(lost).state == State.FAILED
    assert "+999 YEARS" in rig.job(lost).reason


def test_a_domain_is_paused_without_a_tenant_being_named(rig):
    """A domain belongs to a tenant, `""` where there is only one; the pause was filed under "any"."""
    rig.ok(c.Pause(domain=b"x"))
    job = rig.add(domain=b"x")

    assert rig.claim() == []

    rig.ok(c.Pause(domain=b"x", on=False))
    assert [got.id for got in rig.claim()] == [job]


def test_a_mocked_job_that_nobody_has_can_be_finished_but_not_extended(rig):
    """The documents let mocked jobs be finished and retried in any state, and nothing else."""
    job_id = rig.add(mock=True)
    port = c.Hold(job_id=job_id, owner=1)

    refused = (c.Extend(hold=port, lease_ms=1_000), c.Release(hold=port), c.Report(hold=port, fraction=1))
    for command in refused:
        with pytest.raises(LeaseLost):
            rig.ok(command)

    assert rig.job(job_id).place == Place.READY
    assert rig.ok(c.Answer(hold=port)).state == State.FINISHED


def family(rig: Rig, count: int, **options: Any) -> tuple[Job, list[int]]:
    """A parent that runs, and its children, PAUSED until it finishes."""
    rig.add("parent", **options)
    (parent,) = rig.claim()
    return parent, [rig.child(parent, "child") for _ in range(count)]


def test_a_child_cancelled_before_its_parent_finished_is_counted_while_it_is_there(rig):
    """The parent forgot it at its finish and yet it stayed, live for ever, when the parent had gone."""
    parent, children = family(rig, 2)
    rig.ok(c.Cancel(job_id=children[0]))

    rig.finish(parent)
    assert rig.job(parent.id).children.kept == 1

    rig.finish(*rig.claim())
    assert rig.job(parent.id).children.kept == 2
    rig.finish(*rig.claim())
    assert rig.live() == []


@pytest.mark.parametrize("verb", [c.Cancel, c.Release, c.Answer])
def test_the_children_of_a_parent_that_is_cancelled_go_with_it(rig, verb):
    """Whichever way it is cancelled; they stayed live for ever."""
    parent, _ = family(rig, 1)
    rig.finish(parent)
    rig.finish(*rig.claim())
    (parent,) = rig.claim()

    rig.ok(c.Cancel(job_id=parent.id, force=verb is c.Cancel))
    if verb is c.Release:
        rig.ok(c.Release(hold=hold(parent)))
    elif verb is c.Answer:
        rig.ok(c.Answer(hold=hold(parent), code=Code.ERROR))

    assert rig.live() == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_parent_that_is_asked_to_stop_makes_no_children_that_wait(rig, lost):
    """They would have waited for it for ever, or it for them."""
    rig.add()
    (parent,) = rig.claim()
    rig.ok(c.Cancel(job_id=parent.id))

    (refused,) = rig.do(c.Add(jobs=(c.NewJob(task="a", parent_id=parent.id),), hold=hold(parent)))
    rig.ok(c.Release(hold=hold(parent), lost=lost))

    assert isinstance(refused, Refused)
    assert rig.live() == []


def test_a_newcomer_does_not_overtake_those_who_are_held(rig):
    """It came in the transaction that made room for one, and took the place of the first in line."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=1)))
    rig.add(domain=b"x")
    (running,) = rig.claim()
    first = rig.add(domain=b"x")

    rig.do(c.Answer(hold=hold(running)), c.Add(jobs=(c.NewJob(task="a", domain=b"x"),)))

    assert [job.id for job in rig.claim()] == [first]


def test_a_ready_job_that_loses_its_priority_lets_those_who_are_held_go_first(rig):
    """It stayed READY, at the head of a line in which it no longer was the first."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=1)))
    once_first, second = rig.add(domain=b"x"), rig.add(domain=b"x")

    rig.ok(c.Update(job_id=once_first, priority=0))

    assert [job.id for job in rig.claim()] == [second]


def test_a_claim_is_in_order_also_where_it_took_two_rounds(rig):
    """The first in its domain cannot run, so in the second round the next of its domain is found."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=1)))
    rig.add(domain=b"x", retry_after="+999 YEARS")
    second, third = rig.add(domain=b"x"), rig.add()

    assert [job.id for job in rig.claim(limit=2)] == [second, third]


def test_a_parent_and_its_child_that_expire_at_once_know_of_each_other(rig):
    """The parent was laid to rest as it had stood before its child was, and knew of a child that waits."""
    rig.add(expires_in_ms=1_000)
    (parent,) = rig.claim()
    child = rig.child(parent, expires_at=NOW_MS - 1)
    rig.finish(parent)
    rig.clock.advance(1_000)

    rig.ok(c.Upkeep())
    rig.ok(c.Upkeep())

    assert [rig.job(id).state for id in (parent.id, child)] == [State.FAILED, State.FAILED]
    assert rig.job(parent.id).children == Children(failed=1)


def test_what_reaches_a_job_whose_lease_ran_out_is_not_lost(rig):
    """Its holder may still finish it, but not with the new data; that was gone then."""
    rig.add(unique=b"k", data='"old"')
    (late,) = rig.claim(lease_ms=10)
    rig.clock.advance(10)
    rig.ok(c.Upkeep())
    rig.add(unique=b"k", data='"new"', on_conflict="replace")

    rig.finish(late)

    (again,) = rig.ok(c.Claim(lease_ms=1_000))
    assert again.data == '"new"'
    assert rig.finish(again.job).state == State.FINISHED


def test_who_claims_a_job_after_its_data_changed_need_not_run_it_twice(rig):
    """The run that was asked for once more is the one that begins now."""
    rig.add(unique=b"k", data='"old"')
    rig.claim(lease_ms=10)
    rig.add(unique=b"k", data='"new"', on_conflict="replace")
    rig.clock.advance(10)

    (got,) = rig.claim()

    assert rig.finish(got).state == State.FINISHED


def test_a_claim_that_has_all_the_bytes_it_may_looks_no_further(rig, monkeypatch):
    """It took what was too much and put it back, again and again, two thousand times."""
    monkeypatch.setattr(claims, "CLAIM_BYTES", 10)
    _, left = rig.add(data='"12345"'), rig.add(data='"12345"')

    assert len(rig.claim()) == 1
    assert rig.job(left).version == 3


def test_a_child_that_cannot_run_is_known_to_its_parent_that_is_claimed_with_it(rig):
    """The parent was written as it had stood before its child failed."""
    parent, _ = family(rig, 0, retry_after=1_000)
    lost = rig.child(parent, retry_after="+999 YEARS")
    rig.finish(parent)
    rig.ok(c.Requeue(job_id=parent.id))

    (parent,) = rig.claim()

    assert rig.job(lost).state == State.FAILED
    assert rig.job(parent.id).children == Children(failed=1)


def test_a_job_that_is_given_back_does_not_overtake_those_who_are_held(rig):
    """It lapsed and was HELD; its late holder gave it back when there was room again."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(rate=1.0)))
    rig.add(domain=b"x", retry_after=10)
    first = rig.add(domain=b"x")
    (late,) = rig.claim()
    rig.clock.advance(10)
    rig.ok(c.Upkeep())
    rig.clock.advance(1_000)

    rig.ok(c.Release(hold=hold(late)))

    assert rig.job(first).place == Place.READY
    assert rig.job(late.id).place == Place.HELD


def test_a_schedule_set_anew_after_the_clock_went_back_fires_all_the_same(rig):
    """Its number had been used for the same moments, which one who never fired made forget."""
    every_second = c.SetSchedule(schedule=Schedule(name="s", every_ms=1_000), job=c.NewJob(task="a"))
    rig.ok(every_second)
    rig.clock.advance(1_000)
    rig.ok(c.Upkeep())
    for _ in range(2):
        rig.ok(c.DeleteSchedule(name="s"))
        rig.ok(every_second)
    rig.ok(c.DeleteSchedule(name="s"))
    rig.clock.advance(-1_000)
    rig.ok(every_second)
    rig.clock.advance(1_000)

    rig.ok(c.Upkeep())

    assert len(rig.live()) == 2


def test_a_finish_that_is_refused_sweeps_nobody(rig, monkeypatch):
    """Its children were marked to go, and went with the next command of the batch that touched them."""
    parent, (child,) = family(rig, 1, then=c.NewJob(task="b"))
    rig.ok(c.Cancel(job_id=child))
    rig.child(parent)
    rig.finish(parent)
    rig.finish(*rig.claim())
    (parent,) = rig.claim()

    monkeypatch.setattr(verbs, "add_one", Mock(side_effect=Refused("add", 1, found="so", needed="not so")))
    refused, _ = rig.do(c.Answer(hold=hold(parent)), c.Update(job_id=child, priority=1))

    assert isinstance(refused, Refused)
    assert rig.job(child).state == State.CANCELLED
    assert rig.job(parent.id).children == Children(kept=2)


def test_an_extend_that_is_refused_takes_no_permit(rig):
    """A job past its timeout could not be extended, and its neighbour in the batch found no room."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=2)))
    rig.add(domain=b"x", timeout_ms=10)
    rig.add(domain=b"x")
    rig.add(domain=b"x")
    over, fine = rig.claim(lease_ms=10)
    rig.clock.advance(11)
    assert len(rig.claim(limit=1, tasks=("b",))) == 0
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=1)))

    replies = rig.do(*(c.Extend(hold=hold(job), lease_ms=1_000) for job in (over, fine)))

    assert isinstance(replies[0], LeaseLost)
    assert replies[1].place == Place.RUNNING


def test_an_id_given_anew_leaves_the_domain_that_it_was_in(rig):
    """Deleted and added in one batch, the job in its old domain was never counted out of it."""
    rig.ok(c.SetLimit(domain=b"x", limit=Limit(concurrency=1)))
    rig.add(id=7, domain=b"x")

    rig.do(c.Delete(job_id=7), c.Add(jobs=(c.NewJob(task="a", id=7, domain=b"y"),)))

    assert rig.engine.read(lambda txn: txn.rows("domain")) == {}


def test_schedules_that_are_due_at_once_fire_by_name(rig):
    """They fired in whatever order a store lists its records, and the first one took the unique key."""
    for name in ("s", "r"):
        new = c.NewJob(task="a", unique=b"k", data=f'"{name}"')
        rig.ok(c.SetSchedule(schedule=Schedule(name=name, every_ms=1_000), job=new))
    rig.clock.advance(1_000)

    rig.ok(c.Upkeep())

    assert [job.schedule for job in rig.live()] == ["r"]


@pytest.mark.parametrize("on_conflict", ["keep", "merge", "replace"])
def test_a_follower_whose_key_is_held_does_not_refuse_the_finish(rig, on_conflict):
    """It is the job that holds it; a child of another has a key of its own."""
    rig.add("b", then=c.NewJob(task="a", unique=b"k", on_conflict=on_conflict))
    rig.add("c")
    first, parent = rig.claim()
    holder = rig.add("a", unique=b"k", data='{"x":1}')
    child = rig.child(parent, "a", unique=b"k", data='{"x":1}')

    ended = rig.finish(first, result='{"n":2}')

    assert ended.state == State.FINISHED
    data = rig.engine.read(lambda txn: txn.bodies([child, holder]))
    assert data[holder] == {"keep": '{"x":1}', "merge": '{"x":1,"n":2}', "replace": '{"n":2}'}[on_conflict]
    assert data[child] == '{"x":1}'
    assert {job.id for job in rig.live(task="a")} == {child, holder}
