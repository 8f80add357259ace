"""Whose job is next: a table of cases for each policy, and what holds for all."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import BadInput
from holdfast.store.contract import Waiting
from holdfast.work import scheduler as module
from holdfast.work.capacity import (
    MAX_PREFETCH_JOBS,
    PREFETCH_S,
    Capacity,
    TaskDurations,
    executor_capacity,
    total_capacity,
)
from holdfast.work.scheduler import SchedulerSettings, choose, make_scheduler, read_weights

A1, A2, B1, B2, C1 = ("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("c", "1")
OWN = ("", "1")


def made(name="fair", *, rolled=(), weights=None, running=None):
    """A scheduler whose rng fall as told, in a worker that has some jobs."""
    rng = iter(rolled).__next__ if rolled else random.Random(1).random
    scheduler = make_scheduler(name, SchedulerSettings(rng=rng, weights=weights or {}))
    for pair, count in (running or {}).items():
        scheduler.jobs_started(pair, count)
    return scheduler


CASES = [
    # policy, waiting in the store's order, running here, selected
    ("fair", [], {}, None),
    ("fair", [A1], {}, A1),
    ("fair", [A1], {A1: 100}, A1),
    ("fair", [B1, A1], {}, B1),
    ("fair", [A1, B1], {A1: 1}, B1),
    ("fair", [A1, B1], {A1: 1, B1: 1}, A1),
    ("fair", [A1, B1], {A2: 1}, B1),
    ("fair", [A2, B1, B2], {A1: 1, B1: 1}, A2),
    ("fair", [B1, B2, A1], {A1: 2, B1: 1}, B2),
    ("fair", [A1, A2], {A1: 3, A2: 2}, A2),
    ("fair", [A1, A2, B1, C1], {A1: 9, B1: 2, C1: 1}, C1),
    # Eight of ten slots: no more, while somebody else waits.
    ("fair", [A1, B1], {A1: 8, B1: 2}, B1),
    ("fair", [A1, A2], {A1: 8, A2: 2}, A2),
    ("fair", [A1], {A1: 8, B1: 2}, A1),
    ("first", [B1, A1], {B1: 100}, B1),
    ("first", [], {}, None),
    ("random", [], {}, None),
    ("weighted", [], {}, None),
]


@pytest.mark.parametrize(("name", "waiting", "running", "selected"), CASES)
def test_what_is_selected(name, waiting, running, selected):
    """The tenant with the least here, then its task with the least, then by turn."""
    scheduler = made(name, rolled=[0.5], running=running)

    assert scheduler.select(waiting, Counter(waiting)) == selected


@pytest.mark.parametrize(
    ("rolled", "selected"), [(0.0, A1), (0.3, A1), (0.34, B1), (0.66, B1), (0.67, C1), (0.999999, C1)]
)
def test_random_selects_each_as_likely(rolled, selected):
    assert made("random", rolled=[rolled]).select([A1, B1, C1], {}) == selected


@pytest.mark.parametrize(
    ("rolled", "selected"), [(0.0, A1), (0.49, A1), (0.51, B1), (0.59, B1), (0.61, OWN), (0.999999, OWN)]
)
def test_weighted_selects_by_chance(rolled, selected):
    """By the weight of the tenant's task, else of the task, else one; of ten here 5, 1 and 4."""
    scheduler = made("weighted", rolled=[rolled], weights={"1": 5, "b-1": 1, "-1": 4})

    assert scheduler.select([A1, B1, OWN], {}) == selected


def test_what_stops_is_never_below_none_and_then_forgotten():
    scheduler = made(running={A1: 2, A2: 1})

    scheduler.jobs_stopped(A1, 5)
    scheduler.jobs_stopped(B1, 1)

    assert scheduler.running == {A2: 1}
    assert scheduler.tenants == {"a": 1}
    assert list(scheduler.running) == [A2]


def test_a_scheduler_that_nobody_knows_is_refused_with_those_that_are_known():
    with pytest.raises(
        BadInput, match=r"scheduler.*'fare'.*fair, first, random, weighted.*holdfast\.schedulers"
    ):
        made("fare")


def test_a_package_can_bring_its_own(monkeypatch):
    """By an entry point, which is given the setting."""

    class Point:
        name = "mine"

        def load(self):
            return module.Random

    points = {module.GROUP: [Point()]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points.get(group, []))

    assert isinstance(made("mine"), module.Random)
    with pytest.raises(BadInput, match="mine"):
        made("yours")


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_weight_that_is_no_chance_is_refused(weight):
    with pytest.raises(BadInput, match="weight of mail"):
        made("weighted", weights={"mail": weight})


def test_weights_are_read_as_people_write_them():
    assert read_weights(["mail=5", "acme-mail=0.5", "a=b=1"]) == {"mail": 5, "acme-mail": 0.5, "a=b": 1}
    for bad in ("mail", "mail=", "=5", "mail=x"):
        with pytest.raises(BadInput, match="weight"):
            read_weights([bad])


def quick(*tasks):
    """A durations at which these tasks take a little less than a millisecond."""
    durations = TaskDurations()
    for task in tasks:
        for _ in range(100):
            durations.add_samples(task, [0.000999])
    return durations


def chosen(scheduler, waiting, room):
    """What is picked, by pair."""
    picks = choose(
        scheduler, [Waiting(tenant, task, count) for (tenant, task), count in waiting.items()], room
    )
    return {(tenant, task): most for tenant, task, most in picks}


SLOTS = [
    # slots, waiting, running here, picked
    (10, {A1: 100, B1: 100}, {}, {A1: 5, B1: 5}),
    (10, {A1: 100, B1: 2}, {}, {A1: 8, B1: 2}),
    (10, {A1: 100, B1: 100, C1: 100}, {}, {A1: 4, B1: 3, C1: 3}),
    (10, {A1: 100, A2: 100, B1: 100}, {}, {A1: 3, A2: 2, B1: 5}),
    (10, {A1: 100, B1: 100}, {A1: 6}, {A1: 2, B1: 8}),
    (1, {A1: 100, B1: 100}, {}, {A1: 1}),
    (10, {A1: 1}, {}, {A1: 1}),
    (10, {}, {}, {}),
    (0, {A1: 5}, {}, {}),
]


@pytest.mark.parametrize(("slots", "waiting", "running", "picked"), SLOTS)
def test_the_room_is_shared(slots, waiting, running, picked):
    """Until it is full or nothing is left; and the scheduler is told of nothing that has not come."""
    scheduler = made(running=running)

    assert chosen(scheduler, waiting, Capacity(TaskDurations(), free_slots=slots)) == picked
    assert scheduler.running == running


lanes = st.dictionaries(st.sampled_from([A1, A2, B1, B2, C1]), st.integers(1, 50), min_size=2)


@given(slots=st.integers(5, 60), waiting=lanes, running=lanes)
def test_no_task_has_more_than_most_slots_while_others_wait(slots, waiting, running):
    """At most four fifths, or its share of what waits, unless it had more before."""
    running = {pair: count for pair, count in running.items() if sum(running.values()) <= slots}
    scheduler = made(running=running)

    picked = chosen(scheduler, waiting, Capacity(TaskDurations(), free_slots=slots - sum(running.values())))

    left = {pair: count - picked.get(pair, 0) for pair, count in waiting.items()}
    for pair, count in picked.items():
        others = sum(n for other, n in left.items() if other != pair)
        share = waiting[pair] / sum(waiting.values())
        assert not others or running.get(pair, 0) + count <= max(0.8, share) * slots + 1


def test_nothing_of_a_slow_task_is_picked_ahead():
    """Of short ones as many as make fifty milliseconds; of those never measured as many as can start."""
    durations = quick("1")
    for _ in range(20):
        durations.add_samples("2", [10.0])

    capacity = executor_capacity(durations, 2, [], {})
    assert (capacity.fits("1"), capacity.fits("2"), capacity.fits("new")) == (102, 2, 2)

    assert chosen(made(), {A2: 1000, B1: 1000}, executor_capacity(durations, 2, [], {})) == {A2: 1, B1: 51}


def test_behind_a_slow_job_nothing_waits():
    """Whether it is known to be slow, or has been running for long."""
    durations = quick("1")

    assert executor_capacity(durations, 1, [("slow", 0.0)], {}).fits("1") == 0
    assert executor_capacity(durations, 1, [("1", 0.01)], {}).fits("1") == 50
    assert executor_capacity(durations, 1, [("1", 2 * PREFETCH_S)], {}).fits("1") == 0
    assert executor_capacity(durations, 2, [("slow", 0.0), ("1", 0.0)], {"1": 10}).fits("1") == 40


def test_more_is_handed_over_when_half_of_it_is_done():
    """One or two at a time would be a commit for each."""
    durations = quick("1")

    assert executor_capacity(durations, 1, [("1", 0.0)], {"1": 26}).fits("1") == 0
    assert executor_capacity(durations, 1, [("1", 0.0)], {"1": 24}).fits("1") == 26
    assert executor_capacity(durations, 2, [("1", 0.0)], {"1": 90}).fits("1") == 0


def test_no_executor_has_more_ahead_than_so_many():
    durations = TaskDurations()
    for _ in range(100):
        durations.add_samples("1", [0.0])

    assert executor_capacity(durations, 1, [], {}).fits("1") == 1 + MAX_PREFETCH_JOBS
    assert total_capacity(durations, [executor_capacity(durations, 1, [], {})] * 3).fits("1") == 3 * (
        1 + MAX_PREFETCH_JOBS
    )
    assert executor_capacity(durations, 1, [("1", 0.0)], {"1": MAX_PREFETCH_JOBS}).fits("1") == 0
