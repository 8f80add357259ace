"""A shard that is down holds up only its own jobs, is reported, and comes back by itself."""

import asyncio

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.job import State
from holdfast.core.queries import ListWorkers
from holdfast.core.slots import slot_for
from holdfast.core.worker import Served, Worker
from holdfast.engine.sharding import sharded_claim
from holdfast.queue import publishing
from holdfast.queue.aio import AsyncQueue
from holdfast.queue.queue import Queue
from tests.queue_suite.tools import LONG_S, state_of, take, take_all, until, waiting
from tests.sharded.conftest import SHARDS
from tests.sharded.places import all_up, domain_in, of

DOWN = 2


def back(queue, rack):
    """Bring the shard back, and wait until it is noticed."""
    rack.pulled.clear()
    until(lambda: all_up(queue))


@pytest.fixture
def jobs(queue):
    """A job in each shard."""
    return [queue.add("work", domain=domain_in(shard)) for shard in range(SHARDS)]


def test_its_jobs_wait_and_the_others_go_on(queue, rack, jobs):
    """Verbs on its jobs say which shard it is; all others are done; afterwards so are its own."""
    rack.pulled.add(DOWN)

    with pytest.raises(holdfast.Unavailable, match=f"shard {DOWN} of {SHARDS} \\(memory {DOWN}\\)"):
        queue.cancel(jobs[DOWN])
    with pytest.raises(holdfast.Unavailable, match=f"shard {DOWN}"):
        queue.get(jobs[DOWN])
    claimed = take_all(queue)
    for job in claimed:
        job.done()

    assert sorted(of(job) for job in claimed) == [0, 1, 3]
    back(queue, rack)
    assert state_of(queue, jobs[DOWN]) == State.QUEUED
    take(queue).done()
    assert [state_of(queue, job) for job in jobs] == [State.FINISHED] * SHARDS


def test_a_task_publishes_its_options_when_the_shard_is_back(queue, rack, jobs, monkeypatch):
    """Its claims go on meanwhile, in the other shards by what the task says."""
    monkeypatch.setattr(publishing, "RETRY_S", 0.0)
    rack.pulled.add(DOWN)

    @queue.task("work", attempts=3)
    def work() -> None: ...

    claimed = take_all(queue)
    assert [(of(job), job.record.max_attempts) for job in claimed] == [(0, 3), (1, 3), (3, 3)]
    back(queue, rack)
    # What another process claims there says whether it was published, and not only known here.
    take(queue).release()
    other = Queue(rack.open, url="the rack")
    assert take(other).record.max_attempts == 3
    other.close()


def test_what_belongs_nowhere_is_added_elsewhere(queue, rack):
    """The add that meets the fault as well: nobody hears of it. What belongs there is refused."""
    rack.pulled.add(DOWN)

    added = [queue.add("work") for _ in range(12)]
    many = queue.add_many([("work", n) for n in range(5)])

    assert {of(job) for job in [*added, *many]} <= {0, 1, 3}
    with pytest.raises(holdfast.Unavailable, match=f"shard {DOWN}"):
        queue.add("work", domain=domain_in(DOWN))
    back(queue, rack)
    assert {of(queue.add("work")) for _ in range(SHARDS)} == set(range(SHARDS))


def test_a_key_is_looked_up_in_its_shard_alone(queue, rack):
    """One that is free too, while others are down; that of the shard that is down may be held."""
    held, free, away = (domain_in(shard) for shard in (0, 1, DOWN))
    job = queue.add("work", unique="k", domain=held)
    rack.pulled.add(DOWN)

    assert queue.find("work", unique="k", domain=held) == job
    assert queue.find("work", unique="k", domain=free) is None
    with pytest.raises(holdfast.Unavailable, match=f"shard {DOWN}"):
        queue.find("work", unique="k", domain=away)


def test_a_unique_job_of_the_port_is_added_where_its_name_is(queue, rack):
    """Also while others of its name could be in the shard that is down."""
    name = next(f"n{n}" for n in range(99) if of(slot_for(c.NewJob(task=f"n{n}", strict=True))) == 0)
    new = c.NewJob(task=name, unique=name.encode(), strict=True)
    rack.pulled.add(DOWN)
    with pytest.raises(holdfast.Unavailable):
        queue.counts()

    first = queue.connection.ask(c.Add(jobs=(new,)))
    assert queue.connection.ask(c.Add(jobs=(new,))) == first


def test_coroutines_add_elsewhere_too(rack):
    """Many at once."""

    async def story():
        queue = AsyncQueue(rack.open, url="the rack")
        rack.pulled.add(DOWN)
        added = await asyncio.gather(*(queue.add("work") for _ in range(20)))
        rack.pulled.clear()
        await queue.close()
        return {of(job) for job in added}

    assert asyncio.run(story()) <= {0, 1, 3}


def test_sums_and_lists_are_not_told_by_halves(queue, rack, jobs):
    """They say which shard is missing. What is paused, and what comes next, those tell that are there."""
    queue.pause("other")
    rack.pulled.add(DOWN)

    for verb in (queue.counts, queue.jobs, queue.schedules):
        with pytest.raises(holdfast.Unavailable, match=f"shard {DOWN}"):
            verb()
    engine = queue.connection.engine
    assert engine.read(lambda txn: txn.moments()).first is None
    assert len(engine.read(lambda txn: txn.rows("pause"))) == 1
    facts, found = engine.store.report()
    assert [text for text in found if f"shard {DOWN}" in text]
    assert f"{DOWN}: down" in facts


def test_what_must_be_said_to_all_says_where_it_was_not(queue, rack, jobs):
    """It holds where it was on_reply; said again when all are there it holds everywhere."""
    rack.pulled.add(DOWN)
    with pytest.raises(holdfast.Unavailable, match=f"say it again.*shard {DOWN}"):
        queue.pause("work")
    assert take_all(queue) == []

    back(queue, rack)
    assert [of(job) for job in take_all(queue)] == [DOWN]
    queue.pause("work")
    queue.add("work", domain=domain_in(DOWN))
    assert take_all(queue) == []


def test_a_waiting_claim_is_served_by_the_others_and_by_the_one_that_is_back(queue, make_queue, rack):
    """It does not raise while any can be asked."""
    rack.pulled.add(DOWN)
    with waiting(lambda: queue.next(wait=LONG_S, renew=False)) as found:
        other = make_queue().add("work", domain=domain_in(0))
    assert found.result().id == other.id

    back(queue, rack)
    with waiting(lambda: queue.next(wait=LONG_S, renew=False)) as found:
        last = make_queue().add("work", domain=domain_in(DOWN))
    assert found.result().id == last.id


def test_a_claim_that_waits_is_served_by_one_that_comes_back_meanwhile(queue, make_queue, rack, monkeypatch):
    """It began to wait while that was down; however long it waits, all are asked again now and then."""
    monkeypatch.setattr(sharded_claim, "RETRY_S", 0.05)
    rack.pulled.add(DOWN)
    with waiting(lambda: queue.next(wait=LONG_S, renew=False)) as found:
        until(lambda: any(committer._waiter._claims for committer in queue.connection._submitter._committers))
        back(queue, rack)
        job = make_queue().add("work", domain=domain_in(DOWN))
    assert found.result().id == job.id


def test_a_lane_in_which_somebody_waits_outlives_its_shard(queue, make_queue, rack):
    """It wakes for what is due there, finds its shard gone, and is there when that is back."""
    queue.add("work", domain=domain_in(DOWN), delay="1h")
    with waiting(lambda: queue.next(wait=LONG_S, renew=False)) as found:
        until(lambda: all(committer._waiter._claims for committer in queue.connection._submitter._committers))
        rack.pulled.add(DOWN)
        with pytest.raises(holdfast.Unavailable):
            queue.counts()
        # Its committer is woken, and looks at the clock.
        queue.connection._submitter._committers[DOWN].listen(print)
        queue.connection._submitter._committers[DOWN].unlisten(print)
        other = make_queue().add("work", domain=domain_in(0))
    assert found.result().id == other.id

    back(queue, rack)
    last = queue.add("work", domain=domain_in(DOWN))
    assert take(queue).id == last.id


def test_only_if_none_is_there_does_a_claim_raise(queue, rack, jobs):
    """And adds, and whatever else."""
    rack.pulled |= set(range(SHARDS))

    for verb in (queue.next, lambda: queue.next(wait=1), lambda: queue.add("work"), queue.counts):
        with pytest.raises(holdfast.Unavailable):
            verb()
    back(queue, rack)
    assert len(take_all(queue)) == SHARDS


def test_a_number_is_lent_by_another_shard(queue, rack, clock):
    """A process whose number was lent by a shard that is down goes on making ids, and none twice."""
    queue.add("work")
    ids = queue.connection.engine.ids
    lender = ids.held.number % SHARDS
    rack.pulled.add(lender)
    # By then the right to make ids has run out.
    clock.advance(10 * 60_000)

    made = [queue.add("work").id for _ in range(8)]

    assert ids.held.number % SHARDS != lender
    assert len(set(made)) == 8


def test_a_worker_is_enlisted_where_it_can_be(queue, rack):
    """And seen from all, whether by its presence or by its word."""
    rack.pulled.add(DOWN)
    store = queue.connection.engine.store
    assert store.appear("me")
    assert store.read(lambda txn: txn.present(["me"]))
    for n in range(8):
        serves = (Served(tenant="", tasks=("work",)),)
        worker = Worker(name=f"w{n}", host="h", pid=n, started_at=n, serves=serves, until_ms=1 << 42)
        queue.connection.ask(c.Enlist(worker=worker))

    assert len(queue.connection.ask(ListWorkers())) == 8
    queue.connection.ask(c.Dismiss(name="w3"))
    assert len(queue.connection.ask(ListWorkers())) == 7
    for n in (0, 1, 2, 4, 5, 6, 7):
        queue.stop_worker(f"w{n}")
        assert [one.stopping for one in queue.connection.ask(ListWorkers(name=f"w{n}"))] == [True]
