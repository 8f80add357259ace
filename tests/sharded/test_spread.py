"""What lives where, and what is refused because it would have to be in two places."""

import asyncio
import threading

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core import ids
from holdfast.core.job import State
from holdfast.core.kinds import LOG_ITEMS, LOG_KEYS, log_table, name_of
from holdfast.core.slots import SHARDS as COUNTS
from holdfast.core.slots import shard_of, slot_for, slot_of_record, slot_of_table
from holdfast.engine.commands.handlers import MarkHandled
from holdfast.engine.commands.verbs import VERBS
from holdfast.engine.sharding import router, sharded
from holdfast.queue.aio import AsyncQueue
from tests.doubles import Gated, engines
from tests.queue_suite.tools import LONG_S, complaints, take, take_all, until
from tests.sharded.conftest import SHARDS
from tests.sharded.places import domain_in, key_in, of


def test_calls_go_to_the_shards_in_turn_and_each_to_one(queue):
    """What is added together, and belongs nowhere, is one transaction."""
    one_by_one = [queue.add("work") for _ in range(SHARDS)]
    together = queue.add_many([("work", n) for n in range(50)])

    assert sorted(of(job) for job in one_by_one) == list(range(SHARDS))
    assert len({of(job) for job in together}) == 1


def test_jobs_live_with_their_parent_their_domain_their_key_or_their_name(queue):
    """In this order."""
    parent = queue.add("parent", domain=domain_in(1))
    child = take(queue, "parent").add("child", unique=key_in(3, "child"))
    port = [c.NewJob(task="named", strict=True), c.NewJob(task="named", unique=b"named", strict=True)]

    assert of(parent) == of(child) == 1
    assert of(queue.add("work", unique=key_in(3, "work"))) == 3
    assert of(queue.add("work", unique=key_in(3, "work"), domain=domain_in(2))) == 2
    assert slot_for(port[0]) == slot_for(port[1])
    assert complaints(queue) == []


def test_a_child_with_another_domain_is_refused_before_anything_is_written(queue):
    """Also what stands before it in the same call; its parent's own domain may be said."""
    queue.add("parent", domain=domain_in(1))
    parent = take(queue)
    hold = c.hold_of(parent.record)
    jobs = [c.NewJob(task="first"), c.NewJob(task="child", parent_id=parent.id, domain=domain_in(2))]
    neighbour = next(
        name
        for name in (f"x{n}".encode() for n in range(10_000))
        if ids.slot_of("", name) == ids.unpack(parent.id).slot
    )

    for domain in (domain_in(2), neighbour):
        jobs[1] = c.NewJob(task="child", parent_id=parent.id, domain=domain)
        with pytest.raises(holdfast.BadInput, match="parent's"):
            queue.connection.ask(c.Add(jobs=tuple(jobs[1:] if domain == neighbour else jobs), hold=hold))

    assert [job.id for job in queue.jobs()] == [parent.id]
    assert of(parent.add("child", domain=domain_in(1))) == 1


def test_a_number_of_the_callers_own_must_say_where_the_job_lives(queue):
    """Otherwise its domain would be in two places."""
    wrong = ids.pack(1 << 20, 5, (ids.slot_of("", domain_in(1)) + 1) % ids.SLOTS)

    with pytest.raises(holdfast.BadInput, match="slot"):
        queue.connection.ask(c.Add(jobs=(c.NewJob(task="work", id=wrong, domain=domain_in(1)),)))
    assert queue.jobs() == []


def test_limits_hold_exactly_and_patterns_in_every_shard(queue):
    """A domain's own limit is in its shard, a pattern in all."""
    queue.limit(domain_in(2), concurrency=1)
    queue.limit("domain-*", concurrency=2)
    for shard in range(SHARDS):
        queue.add_many([("work", n) for n in range(5)], domain=domain_in(shard))

    started = [of(job) for job in take_all(queue)]

    assert [started.count(shard) for shard in range(SHARDS)] == [2, 2, 1, 2]
    assert set(queue.limits()) == {b"domain-*", domain_in(2)}


def test_a_schedule_fires_once(queue, make_queue, clock):
    """By whichever process; it waits for its last run there."""
    name = next(f"s{n}" for n in range(99) if ids.slot_of("", f"s{n}") % SHARDS == 0)
    queue.schedule(name, "work", every="1m", overlap="skip", domain=domain_in(3))
    other = make_queue()
    for _ in range(3):
        clock.advance(60_000)
        for one in (queue, other):
            one.connection.ask(c.Upkeep())
    until(lambda: len(queue.jobs(schedule=name)) == 1)

    take(queue).done()
    clock.advance(60_000)
    queue.connection.ask(c.Upkeep())
    until(lambda: len(queue.jobs(schedule=name)) == 1)

    (schedule,) = queue.schedules()
    assert (schedule.fired, schedule.skipped) == (2, 2)
    assert {of(job) for job in queue.jobs(schedule=name)} == {3}


def test_no_two_schedules_have_one_number(queue):
    """Whichever shards they are in: their jobs may be in one."""
    made = [queue.schedule(f"s{n}", "work", every="1m", domain=domain_in(1)) for n in range(20)]

    assert len({schedule.number for schedule in made}) == 20


def test_a_unique_job_of_the_port_finds_its_name_in_any_shard(queue):
    """A job without a key; said again with its id it is itself, and a name that is gone is new."""
    name = next(f"n{n}" for n in range(99) if of(slot_for(c.NewJob(task=f"n{n}", strict=True))) == 0)
    new = c.NewJob(task=name, unique=name.encode(), strict=True)
    reserved = queue.connection.ask(c.ReserveIds(count=1))[0].first
    again = c.Add(jobs=(new,), ids=(ids.moved(reserved, slot_for(new) or 0),))
    (first,) = queue.connection.ask(again)
    elsewhere = queue.add(name, {"n": 1}, domain=domain_in(2))

    assert queue.connection.ask(again) == [first]
    queue.cancel(first)
    assert queue.connection.ask(c.Add(jobs=(new,))) == [elsewhere.id]
    queue.cancel(elsewhere)
    (last,) = queue.connection.ask(c.Add(jobs=(new,)))
    assert last not in (first, elsewhere.id)
    assert of(last) == 0
    assert complaints(queue) == []


def test_a_unique_child_of_the_port_is_where_its_parent_is(queue):
    """Unless another job has its name: that of another parent is refused, one without a parent is taken."""
    parents = [c.NewJob(task="parent", strict=True, domain=domain_in(shard)) for shard in (1, 3)]
    first, second = queue.connection.ask(c.Add(jobs=tuple(parents)))
    for claimed in queue.connection.ask(c.Claim(limit=2, lease_ms=60_000, owner=ids.PORT_SYSID)):
        assert claimed.job.id in (first, second)

    def child(parent: int) -> int:
        hold = c.Hold(job_id=parent, owner=ids.PORT_SYSID)
        new = c.NewJob(task="child", unique=b"child", strict=True, parent_id=parent)
        (made,) = queue.connection.ask(c.Add(jobs=(new,), hold=hold))
        return int(made)

    made = child(first)

    assert of(made) == 1
    assert child(first) == made
    with pytest.raises(holdfast.Refused, match=f"child of {first}"):
        child(second)


def test_a_claim_takes_from_as_many_shards_as_it_must(queue):
    """Each of a worker's picks at most as often as it says, over all of them."""
    queue.add_many([("a", n) for n in range(3)], domain=domain_in(0))
    queue.add_many([("a", n) for n in range(3)], domain=domain_in(1))
    queue.add("b", domain=domain_in(2))
    picks = (("", "a", 4), ("", "b", 4))

    found = queue.connection.ask(c.Claim(limit=10, lease_ms=60_000, picks=picks))

    assert [one.job.task for one in found] == ["a", "a", "a", "a", "b"]


def test_a_claim_that_is_given_up_between_two_shards_gives_back_what_it_has(rack):
    """It had a job of the first, and was at the second."""

    async def story():
        queue = AsyncQueue(rack.open, url="the rack")
        jobs = [await queue.add("work", domain=domain_in(shard)) for shard in range(SHARDS)]
        inside, go = threading.Event(), threading.Event()

        def hold():
            inside.set()
            go.wait(LONG_S)

        last = engines(queue)[3]
        last.store = Gated(last.store, hold, threading.Event())
        claim = asyncio.ensure_future(queue.claim(limit=9, wait=LONG_S, renew=False))
        await asyncio.to_thread(inside.wait, LONG_S)
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        go.set()
        for _ in range(6_000):
            states = [(await queue.get(job)).state for job in jobs]
            if states == [State.QUEUED] * SHARDS:
                break
            await asyncio.sleep(0.01)
        await queue.close()
        return states

    assert asyncio.run(story()) == [State.QUEUED] * SHARDS


@pytest.mark.parametrize("shards", COUNTS)
def test_each_slot_is_in_one_shard(shards):
    """And all shards have as many."""
    found = [shard_of(slot, shards) for slot in range(ids.SLOTS)]

    assert [found.count(shard) for shard in range(shards)] == [ids.SLOTS // shards] * shards


def test_records_live_with_what_they_are_about():
    """Those of a job with the job, those of a domain with the domain; pauses of tasks everywhere."""
    job = ids.pack(77, 5, 41)

    assert slot_of_record("steps", name_of(str(job), "3")) == slot_of_record("job_log", str(job)) == 41
    assert slot_of_record("limit", name_of("a", b"d")) == ids.slot_of("a", b"d")
    assert slot_of_record("pause", name_of("a", None, b"d")) == ids.slot_of("a", b"d")
    assert slot_of_record("pause", name_of("a", "t", None)) is None
    assert slot_of_record("progress", name_of("a", "p")) == slot_of_record("log", name_of("a", "l"))
    assert slot_of_record("domain", name_of("a", b"d")) == ids.slot_of("a", b"d")
    for table in (log_table(LOG_ITEMS, name_of("a", "l")), log_table(LOG_KEYS, name_of("a", "l"))):
        assert slot_of_record(table, "7") == slot_of_table(table) == slot_of_record("log", name_of("a", "l"))


def test_every_command_has_a_way_to_its_shards(queue):
    """One that had none would raise only when it is asked for. No answers need no shard."""
    others = {c.Claim, c.AnswerAll, c.ReserveIds}
    only_between_shards = {MarkHandled}

    known = {*sharded._SLOTS, *router._RUNS} | others
    assert known == {*VERBS, c.Await, c.AnswerAll} - only_between_shards
    assert queue.connection.ask(c.AnswerAll(answers=())) == []
