"""A unique key in another shard than its job: two steps, and a crash between any two."""

import threading
from functools import partial
from itertools import count

import msgspec
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.job import Code, State
from holdfast.core.kinds import POINTER
from holdfast.core.moving import Notice, Standing
from holdfast.core.slots import slot_of_schedule
from holdfast.engine.commands.keys import STEPS_MS, TakeKey
from holdfast.store.contract import Changes, JobFilter
from tests.queue_suite.tools import complaints, take, together, until
from tests.sharded.conftest import SHARDS
from tests.sharded.places import domain_in, key_in, of

KEY, DOMAIN = key_in(1, "work"), domain_in(2)
HELD = ("", "work", b"real:" + KEY)


def pointers(queue):
    """How many keys point to another shard."""
    return len(queue.connection.engine.read(lambda txn: txn.rows(POINTER)))


def crash_between(queue):
    """Take the key for a job that is never added, as a process does that dies after the first step."""
    engine = queue.connection.engine
    job_id = engine.ids.make(2, engine.store.now_ms())
    taken = engine.engines[1].execute([TakeKey(key=HELD, job_id=job_id)])
    assert taken.replies == [job_id]
    return job_id


def test_a_key_is_held_by_one_job_wherever_it_lives(queue):
    """With a domain or without: who is added later is the one that is there."""
    away = queue.add("work", unique=KEY, domain=DOMAIN)

    assert of(away) == 2
    assert queue.add("work", unique=KEY).id == away.id
    assert queue.add("work", unique=KEY, domain=domain_in(3)).id == away.id
    assert queue.add("work", unique=KEY, domain=DOMAIN).id == away.id
    assert [job.id for job in queue.jobs()] == [away.id]


def test_a_holder_at_home_is_found_from_elsewhere(queue):
    """The other way round."""
    home = queue.add("work", {"n": 1}, unique=KEY)

    assert of(home) == 1
    again = queue.add("work", {"n": 2}, unique=KEY, domain=DOMAIN, on_conflict="replace")
    assert (again.id, queue.data(home)) == (home.id, {"n": 2})


@pytest.mark.parametrize("domain", [None, DOMAIN, domain_in(3)], ids=["at home", "there", "elsewhere"])
def test_a_key_is_free_when_its_job_has_ended(queue, domain):
    """And nothing is left of where it pointed to."""
    first = queue.add("work", unique=KEY, domain=DOMAIN)
    take(queue).done()
    until(lambda: pointers(queue) == 0)

    second = queue.add("work", unique=KEY, domain=domain)

    assert second.id != first.id
    assert complaints(queue) == []


def test_a_crash_between_the_two_steps_holds_the_key_for_a_minute(queue, clock):
    """Until then it may yet come; afterwards the next who wants the key has it, at home and elsewhere."""
    for domain in (DOMAIN, None):
        crash_between(queue)
        with pytest.raises(holdfast.Unavailable, match="within a minute"):
            queue.add("work", unique=KEY, domain=domain)
        assert queue.jobs() == []

        clock.advance(STEPS_MS)
        job = queue.add("work", unique=KEY, domain=domain)

        assert [one.id for one in queue.jobs()] == [job.id]
        take(queue).done()
        until(lambda: pointers(queue) == 0)


def test_a_crash_before_the_pointer_is_let_go_frees_the_key_at_once(queue, make_queue, rack):
    """The job has ended: that is told by its own shard."""
    first = queue.add("work", unique=KEY, domain=DOMAIN)
    job = take(queue)
    # Whoever finishes it dies before it can say so to the key's home.
    queue.connection.engine.engines[2].execute([c.Answer(hold=c.hold_of(job.record))])
    assert pointers(queue) == 1

    second = make_queue().add("work", unique=KEY)

    assert (queue.get(first).state, queue.get(second).state) == (State.FINISHED, State.QUEUED)
    assert pointers(queue) == 0


def test_a_second_step_that_is_refused_gives_the_key_back(queue):
    """Otherwise it would be held for a minute by a job that never comes."""
    parent = queue.add("parent")
    other = key_in((of(parent) + 1) % 4, "work")
    add = c.Add(jobs=(c.NewJob(task="work", unique=other, parent_id=parent.id),))

    with pytest.raises(holdfast.Refused):
        queue.connection.ask(add)

    assert pointers(queue) == 0
    assert queue.add("work", unique=other).id


def test_an_ended_job_is_put_back_only_if_its_key_is_free(queue):
    """Its key is taken first; where another has it by now, nothing changes."""
    first = queue.add("work", unique=KEY, domain=DOMAIN)
    take(queue).fail("so")
    second = queue.add("work", unique=KEY)
    with pytest.raises(holdfast.Refused, match=str(second.id)):
        queue.requeue(first)

    queue.delete(second)
    queue.requeue(first)

    assert queue.get(first).state == State.QUEUED
    assert queue.add("work", unique=KEY).id == first.id
    assert complaints(queue) == []


def test_a_key_is_held_on_for_a_while_from_elsewhere(queue, clock):
    """`unique_for` counts where the job was, and ends there."""
    first = queue.add("work", unique=KEY, unique_for="10m", domain=DOMAIN)
    take(queue).done()

    assert queue.add("work", unique=KEY).id == first.id
    clock.advance(10 * 60_000)
    assert queue.add("work", unique=KEY).id != first.id


def test_two_who_add_a_key_at_once_add_one_job(make_queue):
    """From several processes, with the domain and without."""
    queues = [make_queue() for _ in range(4)]
    for n in range(10):
        key = f"{KEY.decode()}-{n}"
        domains = [DOMAIN, None, domain_in(3), DOMAIN]
        adds = [
            partial(queue.add, "work", unique=key, domain=domain)
            for queue, domain in zip(queues, domains, strict=True)
        ]
        assert len({str(job) for job in together(adds)}) == 1

    live = queues[0].connection.engine.read(lambda txn: txn.jobs(JobFilter(), after=0, limit=99))
    assert len(live) == 10
    assert complaints(queues[0]) == []


def test_a_late_worker_that_renames_its_job_hears_that_it_is_late(queue):
    """Whoever holds the key of the new name, which is not even asked for: the claim was lost before."""
    key = key_in(3, "other")
    queue.add("work", unique=key, domain=DOMAIN)
    claimed = take(queue)
    claimed.release()
    take(queue)
    queue.add("other", unique=key, domain=domain_in(1))
    hold = claimed._lease.hold

    with pytest.raises(holdfast.LeaseLost):
        queue.connection.ask(c.Answer(hold=hold, code=Code.ERROR, task="other"))


def test_a_schedule_takes_the_key_of_its_job_where_it_is_at_home(queue, clock):
    """Although schedule, domain and job live together, and the key elsewhere: then it is held by one job."""
    domain = domain_in(2)
    names = (f"tick-{n}" for n in count())
    name = next(n for n in names if slot_of_schedule("", n) % SHARDS == 2)
    queue.schedule(name, "work", every="10s", unique=KEY, domain=domain)
    clock.advance(10_000)
    job = take(queue, wait=60)

    assert of(job) == 2
    assert pointers(queue) == 1
    assert queue.add("work", unique=KEY).id == job.id
    job.done()
    until(lambda: pointers(queue) == 0)


def test_what_a_failed_commit_decided_is_not_followed_up(queue, rack):
    """In the main thread, too: the key stays with its job, and the follow-up job is not added."""
    first = queue.add("work", unique=KEY, domain=DOMAIN, then=queue.call("after", domain=domain_in(3)))
    job = take(queue)
    rack.fail_commits.add(2)

    with pytest.raises(holdfast.Unavailable):
        job.done()

    rack.fail_commits.clear()
    until(lambda: queue.connection.store.shards[2].is_up)
    assert queue.get(first).state is State.RUNNING
    assert queue.add("work", unique=KEY, domain=domain_in(0)).id == first.id
    assert queue.add("work", unique=KEY).id == first.id
    assert [one.task for one in queue.jobs()] == ["work"]
    job.done()


@pytest.mark.parametrize("domains", [(DOMAIN, None), (None, DOMAIN)], ids=["elsewhere", "at home"])
def test_jobs_that_are_requeued_together_take_no_key_of_another(queue, domains):
    """As a job that is requeued alone."""
    first = queue.add("work", unique=KEY, domain=domains[0])
    take(queue).fail("broken")
    until(lambda: pointers(queue) == 0)
    second = queue.add("work", unique=KEY, domain=domains[1])
    assert second.id != first.id

    with pytest.raises(holdfast.Refused):
        queue.connection.ask(c.RequeueAll(job_ids=(first.id,), tenant=""))

    assert queue.get(first).state is State.FAILED


def test_an_add_in_two_steps_waits_for_shards_that_are_stopped_during_a_move(queue):
    """Also if this process must renew its number first."""
    queue.add("first")
    engines = queue.connection.engine.engines

    def stop(notice):
        for engine in engines:
            engine.store.run(lambda _txn: (Changes(notice=notice), None))

    stop(msgspec.json.encode(Notice(standing=Standing.STOPPED, token="t", run="r", other="elsewhere")))
    queue.connection.engine.ids.held = queue.connection.engine.ids.held._replace(end=0)
    timer = threading.Timer(0.3, stop, [None])
    timer.start()

    job = queue.add("work", unique=KEY, domain=DOMAIN)

    timer.join()
    assert queue.get(job).state is State.QUEUED
