"""Unique keys, follow-up jobs and schedules on shards: each is in the slot of its job, or is refused."""

from functools import partial

import msgspec
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core import ids
from holdfast.core.defaults import Defaults
from holdfast.core.job import Code, State
from tests.queue_suite.tools import complaints, take, together
from tests.sharded.conftest import SHARDS
from tests.sharded.places import domain_in, key_in, of

KEY, DOMAIN = key_in(1, "work"), domain_in(2)


def written(queue):
    """All jobs and rows that there are, but for the number of the process."""
    return queue.connection.engine.read(
        lambda txn: (txn.counts(), [table for table in txn.tables() if table not in ("shard", "sysid")])
    )


def test_a_key_is_in_the_slot_of_its_domain_and_held_there(queue):
    """Of each domain another one, and of none: as on one store."""
    none = queue.add("work", unique=KEY)
    jobs = [queue.add("work", unique=KEY, domain=domain_in(shard)) for shard in range(SHARDS)]

    assert of(none) == 1
    assert [of(job) for job in jobs] == list(range(SHARDS))
    assert queue.add("work", {"n": 2}, unique=KEY, on_conflict="replace").id == none.id
    assert queue.data(none) == {"n": 2}
    for shard, job in enumerate(jobs):
        assert queue.add("work", unique=KEY, domain=domain_in(shard)).id == job.id
    assert complaints(queue) == []


def test_a_childs_key_belongs_to_its_parent(queue):
    """It is in the slot of the parent, whatever the key; children of others may have the same."""
    parents = [queue.add("parent", domain=domain_in(shard)) for shard in (0, 3)]
    claimed = [take(queue, "parent") for _ in parents]
    first, second = (parent.add("work", unique=KEY) for parent in claimed)

    assert {of(first), of(second)} == {0, 3}
    assert claimed[0].add("work", unique=KEY).id == first.id
    assert queue.add("work", unique=KEY).id not in (first.id, second.id)
    assert complaints(queue) == []


def test_a_key_is_free_when_its_job_has_ended(queue, clock):
    """At once, or after the time it is held for."""
    first = queue.add("work", unique=KEY, domain=DOMAIN)
    take(queue).done()
    second = queue.add("work", unique=KEY, unique_for="10m", domain=DOMAIN)
    take(queue).done()
    assert second.id != first.id

    assert queue.add("work", unique=KEY, domain=DOMAIN).id == second.id
    clock.advance(10 * 60_000)
    assert queue.add("work", unique=KEY, domain=DOMAIN).id not in (first.id, second.id)


def test_those_who_add_a_key_at_once_add_one_job(make_queue):
    """From several processes."""
    queues = [make_queue() for _ in range(4)]
    for n in range(10):
        adds = [partial(queue.add, "work", unique=f"k{n}", domain=DOMAIN) for queue in queues]
        assert len({str(job) for job in together(adds)}) == 1

    assert complaints(queues[0]) == []


@pytest.mark.parametrize("command", [c.Requeue, c.RequeueAll], ids=["one", "all"])
def test_an_ended_job_is_requeued_only_if_its_key_is_free(queue, command):
    """Also together with jobs of other shards, of which those of each are requeued all or not at all."""
    first = queue.add("work", unique=KEY, domain=DOMAIN)
    take(queue).fail("so")
    second = queue.add("work", unique=KEY, domain=DOMAIN)
    other = queue.add("other", domain=domain_in(3))
    take(queue, "other").fail("so")
    one = c.Requeue(job_id=first.id)
    again = one if command is c.Requeue else c.RequeueAll(job_ids=(other.id, first.id), tenant="")

    with pytest.raises(holdfast.Refused, match=str(second.id)):
        queue.connection.ask(again)
    assert queue.get(first).state is State.FAILED

    queue.delete(second)
    queue.connection.ask(again)
    assert queue.get(first).state is State.QUEUED
    assert queue.add("work", unique=KEY, domain=DOMAIN).id == first.id


def test_a_new_name_that_would_move_a_key_to_another_shard_is_refused(queue):
    """A key in a domain stays there, whatever the name; a late worker hears that it is late."""
    stays = queue.add("work", unique=KEY, domain=DOMAIN)
    goes = queue.add("work", unique=KEY)
    other = next(f"n{n}" for n in range(99) if ids.slot_of("", f"n{n}", KEY) % SHARDS == 3)
    for _ in (stays, goes):
        take(queue).fail("so")

    queue.connection.ask(c.Requeue(job_id=stays.id, task=other))
    with pytest.raises(holdfast.Refused, match="by the new name"):
        queue.connection.ask(c.Requeue(job_id=goes.id, task=other))

    assert queue.get(stays).task == other
    assert queue.get(goes).state is State.FAILED
    late = take(queue, other)
    late.release()
    take(queue, other)
    with pytest.raises(holdfast.LeaseLost):
        queue.connection.ask(c.Answer(hold=late._lease.hold, code=Code.ERROR, task="third"))


def test_a_follow_up_job_is_where_the_job_before_it_is(queue):
    """In its domain or in none, and so those that follow it; a key of the domain is in the same slot."""
    after = queue.call("after", domain=DOMAIN, unique=KEY)
    then = queue.call("then", then=after)
    for n in range(2):
        queue.add("work", n, domain=DOMAIN, then=then)
    queue.add("work", then=queue.call("then"))
    while job := queue.next(["work", "then"], renew=False):
        before = queue.get(job.id)
        job.done({"n": 1})
        if before.then:
            assert of(queue.get(job.id).then_id) == of(job)

    (last,) = queue.jobs(task="after")
    assert (of(last), queue.data(last)) == (2, {"n": 1})
    assert complaints(queue) == []


def refusals(queue):
    """Adds that would need two shards, and what the error says."""
    parent = queue.add("parent", domain=DOMAIN)
    other = domain_in(3)
    too_far = queue.call("after", domain=other)
    of_key = ids.pack(1 << 20, 5, (ids.slot_of("", "work", KEY) + 1) % ids.SLOTS)
    yield c.NewJob(task="child", parent_id=parent.id, domain=other), r"domain is .*its parent's"
    yield (
        queue.call("work", then=too_far),
        r"domain of a follow-up job is .*that of the job that",
    )
    yield queue.call("work", domain=DOMAIN, then=too_far), "domain of a follow-up job"
    yield (
        queue.call("work", domain=DOMAIN, then=queue.call("then", then=too_far)),
        "domain of a follow-up job",
    )
    yield queue.call("work", then=queue.call("then", unique=KEY)), "key of a follow-up job"
    yield queue.call("work", domain=DOMAIN, then=queue.call("then", unique=KEY)), "key of a follow-up job"
    yield c.NewJob(task="work", unique=KEY, id=of_key), r"id is .*its unique key"


def test_what_would_need_two_shards_is_refused_before_anything_is_written(queue):
    """Also what stands beside it in the same call."""
    for new, message in refusals(queue):
        before = written(queue)
        for jobs in ((new,), (c.NewJob(task="first", domain=domain_in(0)), c.NewJob(task="first"), new)):
            with pytest.raises(holdfast.BadInput, match=message):
                queue.connection.ask(c.Add(jobs=jobs))
        assert written(queue) == before


def test_a_task_publishes_no_follow_up_job_of_another_shard(queue):
    """Its claims would give it to jobs of any domain."""
    for then in (c.NewJob(task="then", domain=DOMAIN), c.NewJob(task="then", unique=KEY)):
        defaults = Defaults(then=msgspec.json.encode(then).decode())
        with pytest.raises(holdfast.BadInput, match="of a follow-up job"):
            queue.connection.ask(c.Publish(tasks=((None, "work", defaults),)))
    assert written(queue)[1] == []


def test_a_schedule_is_where_its_jobs_are(queue, clock):
    """By their domain, their key or its name; it is found by its name, and fires there."""
    jobs = {"a": {"domain": DOMAIN}, "b": {"unique": KEY}, "c": {"domain": domain_in(0), "unique": KEY}}
    for name, options in jobs.items():
        queue.schedule(name, "work", every="10s", **options)
    run = queue.run_schedule("a")
    assert of(run) == 2
    queue.pause_schedule("b")
    clock.advance(10_000)
    queue.connection.ask(c.Upkeep())

    assert sorted((job.schedule, of(job)) for job in queue.jobs()) == [("a", 2), ("a", 2), ("c", 0)]
    queue.unschedule("a")
    assert sorted(one.name for one in queue.schedules()) == ["b", "c"]
    with pytest.raises(holdfast.NotFound, match="nothing"):
        queue.unschedule("nothing")


def test_a_schedule_does_not_move_to_another_shard(queue):
    """Its times would be in two; another time, and another name, are fine."""
    queue.schedule("tick", "work", every="1m", domain=DOMAIN)
    queue.schedule("tick", "work", every="2m", domain=DOMAIN)

    with pytest.raises(holdfast.BadInput, match=r"schedule is .*'tick'.* shard 2 of 4.* shard 3.*delete it"):
        queue.schedule("tick", "work", every="2m", domain=domain_in(3))

    queue.unschedule("tick")
    queue.schedule("tick", "work", every="2m", domain=domain_in(3))
    assert [one.every_ms for one in queue.schedules()] == [120_000]
