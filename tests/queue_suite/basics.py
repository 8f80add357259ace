"""Adding jobs, finding them, changing them, and in which order they are handed out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import BadInput, NotFound, Refused
from holdfast.core.ids import unpack
from holdfast.core.job import Backoff, Place, State
from holdfast.core.units import moment_ms
from holdfast.engine.commands import claims
from holdfast.engine.sharding import sharded_claim
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .tools import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    ask_all,
    hold_of,
    nothing,
    place_of,
    state_of,
    states,
    take,
    take_all,
    unchanged,
    upkeep,
)

# ── adding ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [{}, {"path": "ä.png", "width": 200}, [1, 2.5, None, True], "text", 7, b"\x00\xff bytes", b""],
    ids=repr,
)
def test_data_comes_back_as_it_was_given(queue: Queue, data: Any) -> None:
    """JSON as its value, bytes as bytes, while the job waits and when it is handed out."""
    added = queue.add("work", data)

    assert queue.data(added) == data
    assert take(queue).data == data


def test_no_data_is_an_empty_object(queue: Queue) -> None:
    """So that a task without arguments can be added by its name alone."""
    assert queue.data(queue.add("work")) == {}


def test_what_is_said_of_a_job_stands_in_its_record(queue: Queue) -> None:
    """Each option, with its unit."""
    job = queue.add(
        "work",
        priority=900,
        expires="1h",
        attempts=3,
        losses=4,
        backoff=("2s", "8s"),
        timeout="2m",
        repeat="DAILY",
        unique="key",
        unique_for=60,
        domain="cdn",
    ).get()

    assert (job.priority, job.created_at, job.expires_at) == (900, START_MS, START_MS + HOUR_MS)
    assert (job.max_attempts, job.max_losses, job.timeout_ms) == (3, 4, 2 * MINUTE_MS)
    assert job.backoff == Backoff(first_ms=2_000, most_ms=8_000)
    assert (job.repeat, job.unique, job.unique_for_ms, job.domain) == ("DAILY", b"key", MINUTE_MS, b"cdn")


def test_a_thousand_jobs_added_at_once_are_a_thousand_in_order(queue: Queue) -> None:
    """With numbers that go up."""
    added = queue.add_many([("work", {"n": n}) for n in range(1_000)])

    ids = [job.id for job in added]
    assert ids == sorted(set(ids))
    assert [job.data["n"] for job in queue.claim(limit=1_000, renew=False)] == list(range(1_000))


def test_one_bad_job_and_none_of_a_batch_is_added(queue: Queue) -> None:
    """All or none."""
    with unchanged(queue), pytest.raises(BadInput, match="task"):
        queue.add_many([("work", 1), ("", 2)])


def test_adding_nothing_adds_nothing(queue: Queue) -> None:
    """And is no error."""
    assert queue.add_many([]) == []


# ── order ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.one_shard
def test_the_highest_priority_goes_first_then_the_earliest_then_the_oldest(
    queue: Queue, clock: MovedClock
) -> None:
    """Age never promotes a job of low priority over a due one of higher priority."""
    low = queue.add("work", priority=0)
    late = queue.add("work", delay="2s")
    early = queue.add("work", delay="1s")
    old, young = queue.add("work", priority=501), queue.add("work", priority=501)
    high = queue.add("work", priority=1_000)
    clock.advance(HOUR_MS)

    order = [job.id for job in take_all(queue, limit=1)]

    assert order == [job.id for job in (high, old, young, early, late, low)]


def test_a_job_is_not_handed_out_before_its_time(queue: Queue, clock: MovedClock) -> None:
    """Not a millisecond before it, and then at once."""
    delayed = queue.add("work", delay="1.5s")
    assert state_of(queue, delayed) == State.QUEUED

    clock.advance(1_499)
    assert nothing(queue)
    clock.advance(1)

    assert take(queue).id == delayed.id


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 11, 15, 14, tzinfo=UTC), "2026-11-15 14:00:00", "2026-11-15T15:00:00+01:00", 1794751200],
    ids=repr,
)
def test_a_moment_may_be_written_in_several_ways(queue: Queue, moment: Any) -> None:
    """All of them mean two o'clock UTC."""
    assert queue.add("work", run_at=moment).get().run_at == START_MS + HOUR_MS


@pytest.mark.one_shard
def test_a_moment_in_the_past_is_due(queue: Queue) -> None:
    """And goes before what was due later."""
    now = queue.add("work")
    before = queue.add("work", run_at="2020-01-01")

    assert [take(queue).id, take(queue).id] == [before.id, now.id]


def test_only_the_tasks_that_were_asked_for_are_handed_out(queue: Queue) -> None:
    """What nobody asks for waits, and spends nothing."""
    queue.add("resize")
    unknown = queue.add("unknown")

    assert take(queue, "resize", "mail").task == "resize"
    assert nothing(queue, "resize", "mail")

    assert (unknown.get().state, unknown.get().attempts) == (State.QUEUED, 0)
    assert "ready" in unknown.why()


def test_a_claim_takes_up_to_its_limit_in_order(queue: Queue) -> None:
    """Each job once."""
    added = queue.add_many([("work", n) for n in range(5)])

    batches = [queue.claim(limit=3, renew=False) for _ in range(3)]

    assert [[job.id for job in batch] for batch in batches] == [
        [job.id for job in added[:3]],
        [job.id for job in added[3:]],
        [],
    ]


def test_a_claim_is_bounded_in_bytes(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third body would be too much, and stays where it stood, unharmed."""
    for module in (claims, sharded_claim):
        monkeypatch.setattr(module, "CLAIM_BYTES", 2_000_000)
    added = [queue.add("work", bytes(750_000)) for _ in range(3)]

    first, second = queue.claim(limit=3, renew=False), queue.claim(limit=3, renew=False)

    assert sorted(job.id for job in first + second) == sorted(job.id for job in added)
    assert (len(first), second[0].record.attempts, second[0].record.losses) == (2, 0, 0)


def test_no_id_is_wasted_when_the_right_to_make_ids_is_renewed(queue: Queue, clock: MovedClock) -> None:
    """The first id of a millisecond is the first in its sequence, also where a batch is done twice."""
    for _ in range(8):
        queue.add("work")
        clock.advance(60_000)
        added = queue.add("work")

        assert unpack(added.id).sequence == 0


# ── tenants ──────────────────────────────────────────────────────────────────────────────────────


def test_a_tenant_has_its_jobs_to_itself(make_queue: MakeQueue) -> None:
    """Neither handed out, listed nor counted for another."""
    acme, zeta = make_queue(tenant="acme"), make_queue(tenant="zeta")
    job = acme.add("work", unique="key")
    other = zeta.add("work", unique="key")

    assert job.id != other.id
    assert [found.id for found in acme.jobs()] == [job.id]
    assert zeta.counts() == {"work": {"QUEUED": 1}}
    assert take(zeta).id == other.id
    assert nothing(zeta)


# ── finding ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.one_shard
def test_jobs_are_listed_by_what_they_are(queue: Queue) -> None:
    """By task, state, domain and schedule, and by whether they are over."""
    done, waits, elsewhere = queue.add("a"), queue.add("a", domain="x"), queue.add("b")
    take(queue, "a").done()

    def ids(**query: Any) -> list[int]:
        return [job.id for job in queue.jobs(**query)]

    assert ids() == [waits.id, elsewhere.id]
    assert ids(task="b") == [elsewhere.id]
    assert ids(domain="x") == [waits.id]
    assert ids(state="queued") == [waits.id, elsewhere.id]
    assert ids(state="RUNNING") == []
    assert ids(archived=True) == ids(state="FINISHED") == ids(state="finished", task="a") == [done.id]
    assert ids(state="FINISHED", archived=False) == ids(state="CANCELLED") == []


def test_a_long_list_is_read_page_by_page(queue: Queue) -> None:
    """Each page begins after the last job of the one before."""
    added = [job.id for job in queue.add_many([("work", n) for n in range(25)])]

    pages, after = [], None
    while page := queue.jobs(limit=10, after=after):
        pages.append([job.id for job in page])
        after = page[-1].id

    assert pages == [added[:10], added[10:20], added[20:]]


def test_counts_tell_how_many_are_in_each_state(queue: Queue) -> None:
    """By task; what is at zero is not told."""
    queue.add_many([("a", n) for n in range(3)])
    queue.add("b", delay=60)
    take(queue, "a").done()
    take(queue, "a").fail()
    take(queue, "a")

    assert queue.counts() == {"a": {"FINISHED": 1, "FAILED": 1, "RUNNING": 1}, "b": {"QUEUED": 1}}


def test_a_job_is_found_by_its_number_its_text_and_its_handle(queue: Queue) -> None:
    """And not found where there is none, by an error that names it."""
    added = queue.add("work")

    assert queue.get(added) == queue.get(added.id) == queue.get(str(added.id)) == added.get()
    with pytest.raises(NotFound, match="12345"):
        queue.get(12345)


def test_why_says_what_a_job_waits_for(queue: Queue) -> None:
    """In a sentence, for each place that it may stand in."""
    queue.limit("narrow", concurrency=1)
    later = queue.add("later", delay="1h")
    taken, held = queue.add("work", domain="narrow"), queue.add("work", domain="narrow")
    ready = queue.add("ready")
    take(queue, "work")

    assert "not due until 2026-11-15T14:00:00.000Z" in later.why()
    assert "waits for a worker" in ready.why()
    assert "has been running since" in taken.why()
    assert "'narrow' holds it back: 1 of 1 run already; 1 of its jobs is HELD." in held.why()
    queue.pause("ready")
    assert "'ready' is paused" in ready.why()
    queue.cancel(ready)
    assert "cancelled" in ready.why()


# ── changing ─────────────────────────────────────────────────────────────────────────────────────


def test_an_update_changes_what_was_named_and_nothing_else(queue: Queue, clock: MovedClock) -> None:
    """Data, priority, time and repeat; the job takes its new turn."""
    first, second = queue.add("work", {"n": 1}), queue.add("work", {"n": 2})

    queue.update(second, priority=501)
    assert (queue.data(second), second.get().run_at) == ({"n": 2}, START_MS)
    queue.update(first, data={"n": 3}, run_at=START_MS / 1_000 + 60)
    assert (queue.data(first), first.get().priority) == ({"n": 3}, 500)

    job = take(queue)
    assert job.id == second.id
    job.done()
    assert nothing(queue)
    clock.advance(MINUTE_MS)
    assert take(queue).data == {"n": 3}


def test_an_update_reaches_a_running_job_for_its_next_run(queue: Queue) -> None:
    """Its state stays, and so does its claim."""
    added = queue.add("work", {"n": 1}, repeat="FINISHED, +0 SECONDS")
    job = take(queue)

    queue.update(added, data={"n": 2}, priority=7)
    assert state_of(queue, added) == State.RUNNING
    job.done()

    assert (take(queue).data, added.get().priority) == ({"n": 2}, 7)


def test_what_is_over_cannot_be_changed(queue: Queue) -> None:
    """The archive is written once."""
    added = queue.add("work")
    take(queue).done()

    with unchanged(queue), pytest.raises(Refused, match="FINISHED and archived"):
        queue.update(added, data=1)
    with unchanged(queue), pytest.raises(Refused, match="FINISHED and archived"):
        queue.requeue(added)


def test_a_cancelled_job_is_not_handed_out(queue: Queue) -> None:
    """From wherever it waits: due, later, or behind its domain."""
    queue.limit("full", concurrency=0)
    jobs = [queue.add("work"), queue.add("work", delay=60), queue.add("work", domain="full")]

    for job in jobs:
        assert queue.cancel(job).state == State.CANCELLED

    assert nothing(queue)
    assert states(queue, jobs) == [State.CANCELLED] * 3


def test_a_requeued_job_runs_again_with_its_attempts_forgiven(queue: Queue, clock: MovedClock) -> None:
    """At once, or when it is told to."""
    added = queue.add("work", attempts=1)
    take(queue).done(error="broke")
    assert (added.get().state, added.get().attempts) == (State.FAILED, 1)

    queue.requeue(added)
    assert (added.get().state, added.get().attempts) == (State.QUEUED, 0)
    queue.requeue(added, run_at=datetime.fromtimestamp(clock() / 1000, UTC) + timedelta(minutes=1))
    assert nothing(queue)
    clock.advance(MINUTE_MS)

    take(queue).done("fine")
    assert added.result() == "fine"


def test_a_deleted_job_leaves_no_trace(queue: Queue) -> None:
    """Of those that wait and of those that are over."""
    waits, over = queue.add("a", unique="key", domain="x"), queue.add("b")
    take(queue, "b").done()

    queue.delete(waits)
    queue.delete(over)

    assert queue.counts() == {}
    for job in (waits, over):
        with pytest.raises(NotFound, match=str(job.id)):
            queue.get(job)
    assert queue.add("a", unique="key").id != waits.id


def test_the_archive_is_kept_for_a_day_and_purged_by_upkeep(queue: Queue, clock: MovedClock) -> None:
    """What has not ended is never purged."""
    over, failed, waits = queue.add("a"), queue.add("b"), queue.add("c")
    take(queue, "a").done()
    take(queue, "b").fail()

    clock.advance(DAY_MS)
    upkeep(queue)
    assert state_of(queue, over) == State.FINISHED
    clock.advance(1)
    upkeep(queue)

    with pytest.raises(NotFound):
        queue.get(over)
    assert states(queue, [failed, waits]) == [State.FAILED, State.QUEUED]


def test_a_purge_deletes_what_ended_before_a_moment(queue: Queue, clock: MovedClock) -> None:
    """And tells how many."""
    old = queue.add_many([("work", n) for n in range(3)])
    for job in take_all(queue):
        job.done()
    clock.advance(MINUTE_MS)
    young = queue.add("work")
    take(queue).done()

    assert queue.purge(before=moment_ms("2026-11-15T13:01:00Z", name="now") / 1_000) == 3

    assert [job.id for job in queue.jobs(archived=True)] == [young.id]
    with pytest.raises(NotFound):
        queue.get(old[0])


def test_places_follow_a_job_through_its_life(queue: Queue, clock: MovedClock) -> None:
    """SCHEDULED, READY, HELD, RUNNING, DONE."""
    queue.limit("x", rate=1)
    job = queue.add("work", delay=1, domain="x")
    seen = [place_of(queue, job)]
    queue.add("work", domain="x", priority=1_000)
    clock.advance(1_000)
    take(queue)
    seen.append(place_of(queue, job))
    clock.advance(1_000)
    upkeep(queue)
    seen.append(place_of(queue, job))
    taken = take(queue)
    seen.append(place_of(queue, job))
    taken.done()
    seen.append(place_of(queue, job))

    assert seen == [Place.SCHEDULED, Place.HELD, Place.READY, Place.RUNNING, Place.DONE]


def test_the_id_of_a_purged_job_is_free_in_the_same_transaction(queue: Queue, clock: MovedClock) -> None:
    """The new job is another one, which is handed out in that transaction too."""
    old = queue.add("work", "old")
    take(queue).done()
    clock.advance(MINUTE_MS)
    new = c.NewJob(task="work", id=old.id, data='"new"')

    purged, ids, claimed = ask_all(
        queue, [c.Purge(before_ms=clock()), c.Add(jobs=(new,)), c.Claim(tasks=("work",))]
    )

    assert (purged, ids) == (1, [old.id])
    assert [(one.job.id, one.data) for one in claimed] == [(old.id, '"new"')]


def test_the_id_of_a_deleted_job_is_free_in_the_same_transaction(queue: Queue) -> None:
    """The new job has nothing of the one before, which had a result a moment ago."""
    queue.add("work")
    hold = hold_of(take(queue))
    new = c.NewJob(task="other", id=hold.job_id, data='"new"')

    ended, deleted, ids = ask_all(
        queue, [c.Answer(hold=hold, result="1"), c.Delete(job_id=hold.job_id), c.Add(jobs=(new,))]
    )

    assert (deleted, ids) == (None, [hold.job_id])
    job = take(queue, "other")
    assert (job.id, job.data, job.record.has_result) == (hold.job_id, "new", False)
    assert ended is None or ended.id == job.id
    assert queue.connection.engine.read(lambda txn: txn.bodies([job.id], result=True)) == {}
