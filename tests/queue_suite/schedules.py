"""Schedules: which moments fire, what becomes of those that were missed, and that each fires once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import BadInput, NotFound
from holdfast.core.job import Job, State
from holdfast.core.schedule import Schedule
from holdfast.core.units import iso
from holdfast.queue.queue import Queue
from holdfast.testing.clock import MovedClock

from .fixtures import START_MS, MakeQueue
from .tools import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    ask,
    nothing,
    states,
    take,
    take_all,
    together,
    unchanged,
    upkeep,
)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"parent": 3}, "parent is 3"), ({"tenant": 0}, "tenant is 0"), ({"mock": 1}, "mock is 1")],
)
def test_a_schedule_whose_jobs_could_never_be_added_is_refused(
    queue: Queue, options: dict[str, Any], named: str
) -> None:
    """When it is declared, and the store can still be read."""
    with unchanged(queue), pytest.raises(BadInput, match=named):
        queue.schedule("s", "work", every=60, **options)

    assert queue.schedules() == []


def test_a_schedule_whose_jobs_would_share_an_id_is_refused(queue: Queue) -> None:
    """It could also be the id that a job of another tenant is about to get."""
    command = c.SetSchedule(
        schedule=Schedule(name="s", every_ms=MINUTE_MS), job=c.NewJob(task="work", id=1 << 40)
    )

    with unchanged(queue), pytest.raises(BadInput, match="id is"):
        ask(queue, command)


def fired(queue: Queue, name: str = "s") -> list[Job]:
    """The jobs that a schedule has added and that have not ended, by their moments."""
    return sorted(queue.jobs(schedule=name, limit=1_000), key=lambda job: job.run_at)


def _moments(queue: Queue, clock: MovedClock, *, for_ms: int, step_ms: int = MINUTE_MS) -> list[str]:
    """When a schedule's jobs were due, if each is worked at once."""
    found = []
    end_ms = clock() + for_ms
    while clock() < end_ms:
        clock.advance(step_ms)
        for job in take_all(queue):
            found.append(iso(job.record.run_at)[8:16])
            job.done()
    return found


# ── its times ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("when", "moments"),
    [
        ({"cron": "*/20 * * * *"}, ["15T13:20", "15T13:40", "15T14:00"]),
        ({"every": "25m"}, ["15T13:25", "15T13:50"]),
        ({"repeat": "SCHEDULED, +20 MINUTES"}, ["15T13:20", "15T13:40", "15T14:00"]),
        ({"repeat": "FINISHED, +29 MINUTES"}, ["15T13:29", "15T13:58"]),
        ({"repeat": "STARTED, +29 MINUTES"}, ["15T13:29", "15T13:58"]),
        ({"cron": "30 14 * * *", "tz": "Europe/Berlin"}, ["15T13:30"]),
        ({"cron": "@hourly"}, ["15T14:00"]),
    ],
    ids=str,
)
def test_a_schedule_fires_at_its_times(
    queue: Queue, clock: MovedClock, when: dict[str, Any], moments: list[str]
) -> None:
    """Each firing is an ordinary job of its own, due at its moment."""
    queue.schedule("s", "work", {"n": 1}, **when)

    assert _moments(queue, clock, for_ms=HOUR_MS) == moments
    assert queue.schedules()[0].fired == len(moments)


def test_a_schedule_keeps_its_wall_time_when_the_clocks_change(queue: Queue, clock: MovedClock) -> None:
    """Nine in Berlin is seven UTC in summer and eight in winter."""
    clock.advance(132 * DAY_MS)  # 2027-03-27, the day before
    queue.schedule("s", "work", cron="0 9 * * *", tz="Europe/Berlin", catch_up="all", overlap="allow")
    clock.advance(3 * DAY_MS)
    upkeep(queue)

    assert [iso(job.run_at)[5:16] for job in fired(queue)] == ["03-28T07:00", "03-29T07:00", "03-30T07:00"]


def test_a_firing_is_told_what_it_is_and_has(queue: Queue, clock: MovedClock) -> None:
    """Data and options of the schedule, and its name."""
    queue.schedule("s", "work", b"\xff", every="1m", priority=900, domain="api", attempts=2, delay="5s")
    clock.advance(MINUTE_MS)
    upkeep(queue)
    assert nothing(queue)
    clock.advance(5_000)

    job = take(queue)

    assert (job.data, job.record.priority, job.record.domain) == (b"\xff", 900, b"api")
    assert (job.record.max_attempts, job.record.schedule) == (2, "s")
    assert job.record.run_at == START_MS + MINUTE_MS + 5_000


def test_a_new_schedule_fires_on_time_also_when_upkeep_was_just_done(queue: Queue, clock: MovedClock) -> None:
    """It does not wait for a round of upkeep that was planned without it."""
    upkeep(queue)
    clock.advance(1)
    queue.schedule("s", "work", every="1s")

    clock.advance(1_000)

    assert take(queue).record.schedule == "s"


def test_jitter_spreads_firings_and_comes_out_alike_for_all(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Within its bound, whoever fires."""
    first, second = make_queue(), make_queue()
    first.schedule("s", "work", every="1h", jitter="10m", catch_up="all", overlap="allow")
    clock.advance(20 * HOUR_MS)

    upkeep(first)
    before = fired(first)
    upkeep(second)

    delays = [job.run_at - START_MS - (n + 1) * HOUR_MS for n, job in enumerate(before)]
    assert fired(second) == before
    assert len(delays) == 20
    assert all(0 <= delay <= 10 * MINUTE_MS for delay in delays)
    assert len(set(delays)) > 10


# ── what was missed ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("catch_up", "moments"), [("none", []), ("one", ["16:00"]), ("all", ["14:00", "15:00", "16:00"])]
)
def test_missed_moments_are_caught_up_as_the_schedule_says(
    queue: Queue, clock: MovedClock, catch_up: Any, moments: list[str]
) -> None:
    """None of them, the last, or all; then it goes on in its phase."""
    queue.schedule("s", "work", cron="0 * * * *", catch_up=catch_up, overlap="allow")
    clock.advance(3 * HOUR_MS + 30 * MINUTE_MS)
    upkeep(queue)

    assert [iso(job.run_at)[11:16] for job in fired(queue)] == moments
    assert queue.schedules()[0].next_at == START_MS + 4 * HOUR_MS


def test_a_moment_that_upkeep_meets_a_little_late_is_not_missed(queue: Queue, clock: MovedClock) -> None:
    """Upkeep is prompt, not instant."""
    queue.schedule("s", "work", every="1h", catch_up="none")
    clock.advance(HOUR_MS + 5_000)
    upkeep(queue)

    assert [job.run_at for job in fired(queue)] == [START_MS + HOUR_MS]


# ── overlap ──────────────────────────────────────────────────────────────────────────────────────


def test_a_firing_is_skipped_while_the_last_job_has_not_ended(queue: Queue, clock: MovedClock) -> None:
    """Unless told otherwise: it waits or runs, and the moment passes."""
    queue.schedule("s", "work", every="10m")
    for _ in range(3):
        clock.advance(10 * MINUTE_MS)
        upkeep(queue)
    assert len(fired(queue)) == 1
    take(queue).done()
    clock.advance(10 * MINUTE_MS)
    upkeep(queue)

    assert [job.run_at for job in fired(queue)] == [START_MS + 40 * MINUTE_MS]
    assert (queue.schedules()[0].fired, queue.schedules()[0].skipped) == (2, 2)


def test_a_firing_may_wait_for_the_last_job_to_end(queue: Queue, clock: MovedClock) -> None:
    """And then comes at once."""
    queue.schedule("s", "work", every="10m", overlap="wait")
    clock.advance(10 * MINUTE_MS)
    job = take(queue, lease="1h")
    clock.advance(15 * MINUTE_MS)
    assert nothing(queue)

    job.done()
    clock.advance(1_000)

    assert take(queue).record.run_at == START_MS + 20 * MINUTE_MS


def test_firings_may_overlap(queue: Queue, clock: MovedClock) -> None:
    """Where the schedule allows it, each moment has its job."""
    queue.schedule("s", "work", every="10m", overlap="allow")
    for _ in range(3):
        clock.advance(10 * MINUTE_MS)
        upkeep(queue)

    assert states(queue, fired(queue)) == [State.QUEUED] * 3


def test_a_run_that_failed_does_not_end_its_schedule(queue: Queue, clock: MovedClock) -> None:
    """Nor one that was cancelled or deleted."""
    queue.schedule("s", "work", every="10m", attempts=1)
    ends: list[Callable[[], Any]] = [
        lambda: take(queue).fail(),
        lambda: take(queue).done(error="broke"),
        lambda: queue.cancel(take(queue).id, force=True),
        lambda: queue.delete(fired(queue)[-1]),
    ]
    for count, end in enumerate(ends, start=1):
        clock.advance(10 * MINUTE_MS)
        upkeep(queue)
        assert queue.schedules()[0].fired == count
        end()


def test_a_schedule_that_waits_for_its_last_job_goes_on_when_that_is_gone(
    queue: Queue, clock: MovedClock
) -> None:
    """FINISHED counts from its end, however it ended; a deleted one ended when that was noticed."""
    queue.schedule("s", "work", repeat="FINISHED, +1 HOUR")
    clock.advance(HOUR_MS)
    upkeep(queue)
    clock.advance(HOUR_MS)
    upkeep(queue)
    assert len(fired(queue)) == 1

    queue.delete(fired(queue)[0])
    clock.advance(1_000)
    upkeep(queue)
    clock.advance(HOUR_MS)
    upkeep(queue)

    assert len(fired(queue)) == 1
    assert queue.schedules()[0].fired == 2


# ── once, whoever does the upkeep ────────────────────────────────────────────────────────────────


def test_every_firing_is_added_once_however_many_queues_do_the_upkeep(
    make_queue: MakeQueue, clock: MovedClock
) -> None:
    """One after the other and at the same moment."""
    queues = [make_queue() for _ in range(3)]
    queues[0].schedule("s", "work", every="1m", overlap="allow")

    for _ in range(10):
        clock.advance(MINUTE_MS)
        together([partial(upkeep, queue) for queue in queues])

    moments = [job.run_at for job in fired(queues[0])]
    assert moments == [START_MS + n * MINUTE_MS for n in range(1, 11)]


def test_a_firing_is_not_repeated_after_its_job_has_ended(queue: Queue, clock: MovedClock) -> None:
    """Its number is the moment's: what the archive has is not added again."""
    queue.schedule("s", "work", every="1h", catch_up="all", overlap="allow")
    clock.advance(HOUR_MS)
    take(queue).done()
    queue.pause_schedule("s")
    clock.advance(-10 * MINUTE_MS)
    queue.pause_schedule("s", on=False)
    clock.advance(10 * MINUTE_MS)

    assert nothing(queue)
    assert queue.counts()["work"] == {"FINISHED": 1}


# ── declaring ────────────────────────────────────────────────────────────────────────────────────


def test_to_declare_a_schedule_again_changes_nothing(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Every process may do so at every start."""
    queue = make_queue()
    queue.schedule("s", "work", {"n": 1}, every="1h")
    clock.advance(90 * MINUTE_MS)
    upkeep(queue)

    with unchanged(queue):
        again = make_queue().schedule("s", "work", {"n": 1}, every="1h")

    assert again.next_at == START_MS + 2 * HOUR_MS


def test_to_declare_other_times_starts_anew(queue: Queue, clock: MovedClock) -> None:
    """After now; other data and options keep the times."""
    queue.schedule("s", "work", {"n": 1}, every="1h")
    clock.advance(30 * MINUTE_MS)
    assert queue.schedule("s", "work", {"n": 2}, every="1h").next_at == START_MS + HOUR_MS
    clock.advance(30 * MINUTE_MS)
    assert take(queue).data == {"n": 2}

    assert iso(queue.schedule("s", "work", cron="15 * * * *").next_at)[11:16] == "14:15"
    assert len(queue.schedules()) == 1


def test_a_task_may_bring_its_schedule(queue: Queue, clock: MovedClock) -> None:
    """`@queue.task(every=…)` declares it under the task's name."""

    @queue.task(every="10m")
    def sweep(deep: bool = False) -> bool:
        return deep

    assert sweep() is False
    queue.sync()
    clock.advance(10 * MINUTE_MS)
    job = take(queue)
    job.run()
    assert (job.record.schedule, queue.result(job.id)) == ("sweep", False)


def test_a_time_zone_without_a_time_is_refused(queue: Queue) -> None:
    """Not ignored."""
    with pytest.raises(BadInput, match="exactly one of cron, every and repeat"):

        @queue.task(tz="Europe/Berlin")
        def sweep() -> None:
            """Nothing."""


def test_a_task_whose_schedule_was_refused_can_be_declared_again(queue: Queue) -> None:
    with pytest.raises(BadInput, match="cron minute"):
        queue.task("tick", cron="61 * * * *")(lambda: None)

    assert queue.task("tick", cron="1 * * * *")(lambda: None).name == "tick"


def test_a_task_with_arguments_is_scheduled_by_a_prepared_call(queue: Queue, clock: MovedClock) -> None:
    """With the options of the call."""

    @queue.task
    def greet(name: str) -> str:
        return f"hello {name}"

    queue.schedule("s", greet.using(priority=7).call("you"), every="1m")
    clock.advance(MINUTE_MS)
    job = take(queue)
    job.run()

    assert (queue.result(job.id), job.record.priority) == ("hello you", 7)


# ── pausing and deleting ─────────────────────────────────────────────────────────────────────────


def test_a_paused_schedule_does_not_fire(queue: Queue, clock: MovedClock) -> None:
    """What came due meanwhile is dropped, and its phase is kept."""
    queue.schedule("s", "work", every="1h", catch_up="all", overlap="allow")
    assert queue.pause_schedule("s").paused
    clock.advance(2 * HOUR_MS + 30 * MINUTE_MS)
    upkeep(queue)
    assert fired(queue) == []

    queue.pause_schedule("s", on=False)
    upkeep(queue)
    assert fired(queue) == []
    clock.advance(30 * MINUTE_MS)
    upkeep(queue)

    assert [job.run_at for job in fired(queue)] == [START_MS + 3 * HOUR_MS]


def test_what_a_deleted_schedule_has_added_stays(queue: Queue, clock: MovedClock) -> None:
    """And one of the same name that is made later fires anew, also for the same moments."""
    queue.schedule("s", "work", {"n": 1}, cron="0 * * * *", overlap="allow")
    clock.advance(HOUR_MS)
    upkeep(queue)
    queue.unschedule("s")
    assert queue.schedules() == []
    clock.advance(-MINUTE_MS)

    queue.schedule("s", "work", {"n": 2}, cron="0 * * * *", overlap="allow")
    clock.advance(MINUTE_MS)
    upkeep(queue)

    assert sorted(queue.data(job)["n"] for job in fired(queue)) == [1, 2]


def test_a_schedule_is_run_now(queue: Queue, clock: MovedClock) -> None:
    """With its data and options, paused or not, beside its last job; the schedule stays as it is."""
    queue.schedule("s", "work", {"n": 1}, every="1h", priority=7, domain="api", delay="5m")
    queue.pause_schedule("s")
    before = queue.schedules()

    made = [queue.run_schedule("s").id for _ in range(2)]

    assert queue.schedules() == before
    jobs = [take(queue) for _ in made]
    assert {job.id for job in jobs} == set(made)
    assert [(job.data, job.record.schedule, job.record.priority) for job in jobs] == [({"n": 1}, "s", 7)] * 2
    queue.pause_schedule("s", on=False)
    clock.advance(HOUR_MS)
    upkeep(queue)
    assert len(fired(queue)) == 3


def test_the_unique_job_of_a_schedule_is_run_once(queue: Queue) -> None:
    """The job that waits already is the one."""
    queue.schedule("s", "work", every="1h", unique="only")

    assert queue.run_schedule("s").id == queue.run_schedule("s").id
    assert queue.counts()["work"] == {"QUEUED": 1}


def test_a_schedule_that_never_was_is_not_found(queue: Queue) -> None:
    """By its name."""
    for verb in (queue.unschedule, queue.pause_schedule, queue.run_schedule):
        with unchanged(queue), pytest.raises(NotFound, match="schedule nightly"):
            verb("nightly")


def test_schedules_are_those_of_a_tenant(make_queue: MakeQueue, clock: MovedClock) -> None:
    """Their jobs too."""
    acme, zeta = make_queue(tenant="acme"), make_queue(tenant="zeta")
    acme.schedule("s", "work", every="1m")
    clock.advance(MINUTE_MS)
    upkeep(zeta)

    assert (len(acme.schedules()), zeta.schedules()) == (1, [])
    assert (len(fired(acme)), fired(zeta)) == (1, [])
