"""What only shards have, and what becomes of it in a store of another number of them."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.core.errors import Moved
from holdfast.core.kinds import CHORE, FLOOR, NUMBER, SCHEDULE, WORKER, name_of
from holdfast.core.worker import Worker
from holdfast.engine.commands.chores import Chore
from holdfast.engine.commands.schedules import read_kept
from holdfast.engine.sharding.router import ShardRouter
from holdfast.queue.connect import store_maker
from holdfast.queue.queue import Queue
from holdfast.store.contract import AnyStore, Changes
from holdfast.testing.clock import MovedClock
from tests.moving.conftest import shards
from tests.moving.filled import Two, check_same, fill, make_queue
from tests.moving.test_following import FOUR, TWO, move
from tests.moving.test_resumed import in_memory
from tests.queue_suite.fixtures import START_MS
from tests.queue_suite.tools import complaints


def pairs(*counts: tuple[int, int]) -> Any:
    """Two stores in memory, of so many shards."""
    return pytest.mark.parametrize("two", counts, indirect=True, ids=str)


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Two:
    """The stores of a pair of numbers."""
    clock = MovedClock(START_MS)
    source, target = (in_memory(clock, count) for count in request.param)
    return Two(source, target, clock)


def moved(two: Two, opened: Callable[[Any], Any]) -> tuple[Queue, AnyStore]:
    """Move, and look that all is there; a queue on the target, and the target."""
    source, target = opened(two.open_source()), opened(two.open_target())
    two.move(source, target).run()
    check_same(target, source)
    return opened(make_queue(two.open_target)), target


def records(store: AnyStore, kind: str) -> dict[str, bytes]:
    """All of a kind, in any shard."""
    return store.read(lambda txn: txn.rows(kind))


@pairs((1, 4), (2, 8), (4, 1), (4, 2))
def test_schedules_keep_their_numbers_and_no_other_gets_one(two, opened):
    """So each firing has an id of its own, whoever is new, and whoever is gone."""
    queue = opened(make_queue(two.open_source))
    for n in range(10):
        queue.schedule(f"old{n}", "tick", {"old": n}, every="1h", domain="d")
    queue.unschedule("old3")
    numbers = _numbers(two.open_source())

    new, target = moved(two, opened)

    assert _numbers(target) == numbers
    for n in range(20):
        new.schedule(f"new{n}", "tick", {"new": n}, every="1h", domain="d")
    assert max(Counter(_numbers(target).values()).values()) == 1
    two.clock.advance(3_600_000)
    new.connection.ask(c.Upkeep())
    jobs = [job for job in new.jobs(limit=100) if job.task == "tick"]
    assert sorted(msgspec.json.encode(new.data(job)).decode() for job in jobs) == sorted(
        [f'{{"old":{n}}}' for n in range(10) if n != 3] + [f'{{"new":{n}}}' for n in range(20)]
    )


def _numbers(store: AnyStore) -> dict[str, int]:
    kept = (read_kept(raw).schedule for raw in records(store, SCHEDULE).values())
    return {schedule.name: schedule.number for schedule in kept}


@pairs((4, 2), (4, 1))
def test_what_several_shards_say_of_one_thing_is_one(two, opened):
    """Of a floor the later, of a worker what was said last."""
    source = opened(two.open_source())
    for at, shard in enumerate(source.shards):
        worker = Worker(name="w", host="h", pid=1, started_at=1, said_at=(at + 2) % 4)
        values = {FLOOR: str(100 + (at + 1) % 4).encode(), WORKER: msgspec.json.encode(worker)}
        chore = msgspec.json.encode(Chore(after=b"%d" % ((at + 3) % 4)))

        written = {
            (FLOOR, "7"): values[FLOOR],
            (WORKER, "w"): values[WORKER],
            (CHORE, name_of("domains", "")): chore,
        }
        shard.run(lambda _txn, rows=written: (Changes(rows=rows), None))
    target = opened(two.open_target())

    two.move(source, target).run()

    assert records(target, FLOOR) == {"7": b"103"}
    assert msgspec.json.decode(records(target, WORKER)["w"], type=Worker).said_at == 3
    (chore,) = {*records(target, CHORE).values()}
    assert msgspec.json.decode(chore, type=Chore).after == b"0"


@pairs((1, 4))
def test_what_has_moved_on_is_noted_no_more(two, opened):
    """Numbers that are noted for schedules of another shard go when the queue is on one store again."""
    queue = opened(make_queue(two.open_source))
    fill(queue)
    _, target = moved(two, opened)
    assert records(target, NUMBER)
    back = opened(in_memory(two.clock, 1)())

    two.move(target, back).run()

    check_same(back, target)
    assert records(back, NUMBER) == {}


def test_of_a_call_that_goes_to_several_shards_only_the_rest_is_asked_for_there(tmp_path, monkeypatch):
    """What was added before the store moved is not added again."""
    monkeypatch.chdir(tmp_path)
    ask = ShardRouter._ask
    parts: list[int] = []

    def moves_at_the_third(router: ShardRouter, at: int, command: c.Command) -> Any:
        parts.append(at)
        if len(parts) == 3:
            move(FOUR, TWO)
        return ask(router, at, command)

    monkeypatch.setattr(ShardRouter, "_ask", moves_at_the_third)
    with holdfast.connect(FOUR) as queue:
        keyed = [queue.call("keyed", {"n": n}, domain=f"d{n}", unique="k") for n in [*range(30), *range(10)]]
        plain = [queue.call("plain", {"n": n}, domain=f"d{n}") for n in range(40)]
        made = [job.id for job in queue.add_many([*keyed, *plain])]

    assert len(parts) >= 4
    with holdfast.connect(TWO, follow=False) as queue:
        assert queue.counts() == {"keyed": {"QUEUED": 30}, "plain": {"QUEUED": 40}}
        assert {job.id for job in queue.jobs(limit=100)} == set(made)
        assert made[:10] == made[30:40]
        assert complaints(queue) == []


@pytest.mark.proof
def test_a_queue_goes_along_to_a_cluster_and_back(tmp_path, redis_cluster, opened):
    """To four hash tags of it, to eight of them, to a file; nobody holds anything twice."""
    urls = [
        str(tmp_path / "a.db"),
        redis_cluster.url(prefix="four", shards="4"),
        redis_cluster.url(prefix="eight", shards="8"),
        str(tmp_path / "b.db"),
    ]
    with holdfast.connect(urls[0]) as queue:
        running = fill(queue)
        for here, there in pairwise(urls):
            move(here, there)
            stores = [opened(store_maker(url, follow=False)()) for url in (here, there)]
            check_same(stores[1], stores[0])
            queue.add("fresh", unique="fresh", domain="fresh")
        for job in running:
            queue.connection.ask(c.Answer(hold=c.hold_of(job), result='"done"'))

        assert [queue.result(job.id) for job in running] == ["done"] * len(running)
        assert queue.counts()["fresh"] == {"QUEUED": 1}
        assert complaints(queue) == []


def test_nobody_follows_to_shards_of_which_one_is_not_there(tmp_path, monkeypatch):
    """It is not made, and nothing is written to the others."""
    monkeypatch.chdir(tmp_path)
    with holdfast.connect("a.db") as queue:
        queue.add("greet")
        move("a.db", TWO)
        (gone,) = (tmp_path / "two").glob("shard-1-of-2.db")
        gone.unlink()

        with pytest.raises(Moved):
            queue.add("greet")
    assert not gone.exists()


def test_shards_that_are_filled_are_not_used(tmp_path, opened):
    """Neither looked at nor written to, any of them, before all are open."""
    clock = MovedClock(START_MS)
    source = opened(shards(tmp_path / "of1", 1, clock)())
    open_target = shards(tmp_path / "of4", 4, clock)
    two = Two(lambda: source, open_target, clock)
    queue = opened(make_queue(open_target))
    two.move(source, opened(open_target())).begin()

    verbs = [queue.counts, lambda: queue.add("x"), lambda: queue.add("x", domain="d"), queue.next]
    for verb in verbs:
        with pytest.raises(holdfast.HoldfastError, match="being filled from here"):
            verb()
