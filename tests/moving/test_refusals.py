"""What a move refuses, what takes it back, and who may not go on with it."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import ids
from holdfast.core.defaults import Defaults
from holdfast.core.errors import BadInput, Stopped, StoreCorrupt, StoreError, Unavailable
from holdfast.core.moving import Standing
from holdfast.engine.migrate.move import StoreMove, undo
from holdfast.queue.queue import Queue
from holdfast.store.contract import Changes, Txn
from holdfast.store.sqlite.store import SqliteStore
from tests.doubles import Passing
from tests.moving.conftest import shards
from tests.moving.filled import check_same, fill, make_queue, seen, standing_of

T = TypeVar("T")


def test_nobody_can_use_a_store_that_is_being_filled(some, opened):
    """Neither look nor write, before it is open."""
    fill(opened(make_queue(some.open_source)))
    move = some.move(opened(some.open_source()), opened(some.open_target()))
    move.begin()
    queue = opened(make_queue(some.open_target))

    for verb in (queue.jobs, queue.next, lambda: queue.add("x")):
        with pytest.raises(Unavailable, match="being filled from here"):
            verb()


def test_a_run_that_was_taken_for_dead_writes_nothing_more(some, opened):
    """The second run goes on in its place; the first is told so at its next write, also after the end."""
    fill(opened(make_queue(some.open_source)))
    source, target = opened(some.open_source()), opened(some.open_target())
    sleeper = some.move(source, target)
    sleeper.begin()
    some.move(source, target).run()
    opened(make_queue(some.open_target)).add("since then")
    before = seen(target)

    with pytest.raises(Unavailable, match="another process goes on"):
        sleeper._copier.walk(deep=True)
    with pytest.raises(Unavailable, match="taken back, or another"):
        sleeper._stop()

    assert seen(target) == before


def test_a_move_can_be_taken_back_until_it_is_handed_over(some, opened, impatient):
    """All goes on in the old store, and the move that was under way ends there."""
    queue = opened(make_queue(some.open_source))
    fill(queue)
    source, target = opened(some.open_source()), opened(some.open_target())
    move = some.move(source, target)
    move.begin()
    move._stop()
    with pytest.raises(Stopped):
        queue.add("x")

    assert undo(source, here="here").other == "there"

    queue.add("goes on")
    with pytest.raises(Unavailable, match="taken back"):
        move._hand_over("digest")
    with pytest.raises(BadInput, match="unfinished move"):
        undo(source, here="here")
    with pytest.raises(BadInput, match="empty, or the same move's"):
        some.move(source, target).run()
    assert standing_of(source) == ""
    queue.add("still goes on")


def test_a_store_that_has_moved_stays_so(some, opened):
    """It cannot be taken back, moved again, or moved into."""
    fill(opened(make_queue(some.open_source)))
    source, target = opened(some.open_source()), opened(some.open_target())
    some.move(source, target).run()

    with pytest.raises(BadInput, match="has moved to there"):
        undo(source, here="here")
    with pytest.raises(BadInput, match="there, where it has moved to"):
        StoreMove(source, target, here="here", there="elsewhere").run()
    with pytest.raises(BadInput, match="empty"):
        StoreMove(target, source, here="there", there="here").run()
    assert standing_of(target) == Standing.OPEN


def test_a_store_that_holds_anything_is_not_filled(two, opened):
    """Not even where it is one job, and nothing has begun then."""
    fill(opened(make_queue(two.open_source)))
    opened(make_queue(two.open_target)).add("mine")
    source, target = opened(two.open_source()), opened(two.open_target())

    for attempt in (two.move(source, target).check, two.move(source, target).run):
        with pytest.raises(BadInput, match="the store to move to is 'there', and must be empty"):
            attempt()

    assert (standing_of(source), standing_of(target)) == ("", "")


def test_a_store_is_not_moved_into_itself(two, opened):
    """By whichever address."""
    fill(opened(make_queue(two.open_source)))
    one, same = opened(two.open_source()), opened(two.open_source())

    with pytest.raises(BadInput, match="another than the one to move from"):
        two.move(one, same).run()

    assert standing_of(one) == ""


def test_clocks_that_differ_are_refused(files, opened):
    """Leases and rates are moments: they would not hold."""
    source, target = opened(files.open_source()), opened(files.open_target())
    target._clock = lambda: files.clock() + 11_000

    with pytest.raises(StoreError, match=r"differ by \+11,000 ms"):
        files.move(source, target).run()

    assert standing_of(source) == ""


FORGETFUL: dict[str, Callable[[Changes], dict[str, Any]]] = {
    "results": lambda changes: {"results": dict.fromkeys(changes.results, "0")},
    "rows": lambda changes: {"rows": dict.fromkeys(changes.rows, b"0")},
    "counts": lambda changes: {"counts": dict.fromkeys(changes.counts, 1)},
    "archive": lambda changes: {"archived": changes.archived[1:]},
}


@pytest.mark.parametrize("part", FORGETFUL)
def test_a_copy_that_is_not_one_is_found_out(files, opened, part):
    """Then nothing has happened: the old store goes on, and the move is run again."""
    fill(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(files.open_target())

    class Forgetful(Passing):
        def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
            def forgets(txn: Txn) -> tuple[Changes, T]:
                changes, result = fn(txn)
                return replace(changes, **FORGETFUL[part](changes)), result

            return self.store.run(forgets)

    with pytest.raises(StoreCorrupt, match=r"is not what it is a copy of|the copy of .* has"):
        files.move(source, Forgetful(target)).run()

    assert (standing_of(source), standing_of(target)) == (Standing.COPYING, Standing.FILLING)
    files.move(source, target).run()
    check_same(target, source)


def _child_elsewhere(queue: Queue) -> tuple[Any, int]:
    """A job that runs, and its child, whose domain is at home in another shard, of however many."""
    queue.add("parent")
    parent = queue.next(["parent"], renew=False)
    assert parent is not None
    slot = ids.unpack(parent.id).slot
    domain = next(name for name in map(str, range(99)) if ids.slot_of("", name.encode()) % 2 != slot % 2)
    return parent, parent.add("child", domain=domain).id


def test_a_job_that_would_be_in_two_places_is_refused_before_anything_is_written(tmp_path, files, opened):
    """It is named; when it has ended, it can be done."""
    queue = opened(make_queue(files.open_source))
    fill(queue)
    parent, child = _child_elsewhere(queue)
    source, target = opened(files.open_source()), opened(shards(tmp_path / "new", 4, files.clock)())

    for attempt in (files.move(source, target).check, files.move(source, target).run):
        with pytest.raises(BadInput, match=f"the domain of job {child} is .*its parent's.* 4 shards"):
            attempt()
    assert (standing_of(source), standing_of(target)) == ("", "")

    queue.cancel(child)
    parent.done()
    files.move(source, target).run()
    check_same(target, source)


def _followed_elsewhere(queue: Queue) -> str:
    queue.add("work", domain="a", then=queue.call("then", domain="b"))
    return "the job that follows [0-9]+ is .*the domain of a follow-up job"


def _keyed_follower(queue: Queue) -> str:
    queue.add("work", domain="a", then=queue.call("keyed", unique="k"))
    job = queue.next(["work"], renew=False)
    assert job is not None
    job.done()
    return "the unique key of job [0-9]+"


def _schedule_elsewhere(queue: Queue) -> str:
    queue.schedule("tick", "work", every="1h", domain="a", then=queue.call("then", domain="b"))
    return "the schedule is 'tick'"


def _published_elsewhere(queue: Queue) -> str:
    then = msgspec.json.encode(c.NewJob(task="then", unique=b"k")).decode()
    queue.connection.ask(c.Publish(tasks=((None, "work", Defaults(then=then)),)))
    return "the follow-up job of the task"


@pytest.mark.parametrize(
    "make", [_followed_elsewhere, _keyed_follower, _schedule_elsewhere, _published_elsewhere]
)
def test_what_shards_would_refuse_is_not_moved_to_them(tmp_path, files, opened, make):
    """It is said before anything is written; to one store it moves."""
    message = make(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(shards(tmp_path / "new", 4, files.clock)())

    for attempt in (files.move(source, target).check, files.move(source, target).run):
        with pytest.raises(BadInput, match=message):
            attempt()

    assert (standing_of(source), standing_of(target)) == ("", "")
    files.move(source, opened(files.open_target())).run()


def test_one_that_comes_while_all_is_copied_lets_the_source_go_on(tmp_path, files, opened):
    """Whoever is there does not wait for its end; the same move goes on later."""
    queue = opened(make_queue(files.open_source))
    fill(queue)
    source, target = opened(files.open_source()), opened(shards(tmp_path / "new", 4, files.clock)())
    families: list[tuple[Any, int]] = []

    def stops(phase: str) -> None:
        if phase == "stopping":
            families.append(_child_elsewhere(queue))

    with pytest.raises(BadInput, match="the domain of job"):
        files.move(source, target, phase=stops).run()

    assert (standing_of(source), standing_of(target)) == (Standing.COPYING, Standing.FILLING)
    queue.add("goes on")
    ((parent, child),) = families
    queue.cancel(child)
    parent.done()
    files.move(source, target).run()
    check_same(target, source)


def test_a_shard_is_not_moved_without_the_others(tmp_path, files, opened):
    """Nor filled as if it were a store alone."""
    four = opened(shards(tmp_path / "of4", 4, files.clock)())
    four.now_ms()
    for shard in four.shards:
        shard.now_ms()
    one, other = (
        opened(SqliteStore(tmp_path / "of4" / "1.db", clock=files.clock)),
        opened(files.open_target()),
    )

    with pytest.raises(BadInput, match="all shards of the queue: it is 1 of 4 of them"):
        files.move(one, other).run()
    with pytest.raises(BadInput, match="empty"):
        files.move(other, one).run()


def test_an_undo_that_was_killed_between_two_shards_is_said_again(tmp_path, files, opened):
    """The first decides; a move that begins anew finds all of them."""
    queue = opened(make_queue(shards(tmp_path / "of4", 4, files.clock)))
    fill(queue)
    source, target = queue.connection.engine.store, opened(files.open_target())
    move = files.move(source, target)
    move.begin()
    move._stop()
    source.shards[0].run(lambda _txn: (Changes(notice=None), None))

    with pytest.raises(Unavailable, match="taken back"):
        move._hand_over("digest")
    assert undo(source, here="here").other == "there"

    assert [standing_of(shard) for shard in source.shards] == [""] * 4
    queue.add("goes on")


@pytest.mark.parametrize("standing", [Standing.STOPPED, Standing.MOVED])
def test_killed_between_two_shards_the_second_run_brings_the_others_along(tmp_path, files, opened, standing):
    """What the first has is what holds."""
    queue = opened(make_queue(shards(tmp_path / "of4", 4, files.clock)))
    fill(queue)
    source, target = queue.connection.engine.store, opened(shards(tmp_path / "of2", 2, files.clock)())
    move = files.move(source, target)
    move.begin()
    move._walk()
    if standing is Standing.MOVED:
        move._stop()
        digest = move._finish(deep=False)
    lonely = files.move(source, target)
    lonely._run, lonely._token, lonely._sources = move._run, move._token, move._sources[:1]
    lonely._set(standing, digest if standing is Standing.MOVED else "")
    assert [standing_of(shard) for shard in source.shards[1:]] != [standing] * 3

    files.move(source, target).run()

    assert [standing_of(shard) for shard in source.shards] == [Standing.MOVED] * 4
    assert [standing_of(shard) for shard in target.shards] == [Standing.OPEN] * 2
    check_same(target, source)
