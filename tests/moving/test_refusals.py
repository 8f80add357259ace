"""What a move refuses, what takes it back, and who may not go on with it."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from holdfast.core.errors import BadInput, Stopped, StoreCorrupt, StoreError, Unavailable
from holdfast.core.moving import Standing
from holdfast.engine.move import Move, undo
from holdfast.store.contract import Txn
from holdfast.store.sharded import Opener, ShardedStore
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.doubles import Passing
from tests.moving.filled import fill, make_queue, seen, standing_of

T = TypeVar("T")


def test_nobody_can_use_a_store_that_is_being_filled(files, opened):
    """Neither look nor write, before it is open."""
    fill(opened(make_queue(files.open_source)))
    move = files.move(opened(files.open_source()), opened(files.open_target()))
    move.begin()
    queue = opened(make_queue(files.open_target))

    for verb in (queue.jobs, queue.next, lambda: queue.add("x")):
        with pytest.raises(Unavailable, match="being filled from here"):
            verb()


def test_a_run_that_was_taken_for_dead_writes_nothing_more(files, opened):
    """The second run goes on in its place; the first is told so at its next write, also after the end."""
    fill(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(files.open_target())
    sleeper = files.move(source, target)
    sleeper.begin()
    files.move(source, target).run()
    opened(make_queue(files.open_target)).add("since then")
    before = seen(target)

    with pytest.raises(Unavailable, match="another process goes on"):
        sleeper._copier.walk(deep=True)
    with pytest.raises(Unavailable, match="taken back, or another"):
        sleeper._stop()

    assert seen(target) == before


def test_a_move_can_be_taken_back_until_it_is_handed_over(files, opened, impatient):
    """All goes on in the old store, and the move that was under way ends there."""
    queue = opened(make_queue(files.open_source))
    fill(queue)
    source, target = opened(files.open_source()), opened(files.open_target())
    move = files.move(source, target)
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
        files.move(source, target).run()
    assert standing_of(source) == ""
    queue.add("still goes on")


def test_a_store_that_has_moved_stays_so(files, opened):
    """It cannot be taken back, moved again, or moved into."""
    fill(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(files.open_target())
    files.move(source, target).run()

    with pytest.raises(BadInput, match="has moved to there"):
        undo(source, here="here")
    with pytest.raises(BadInput, match="there, where it has moved to"):
        Move(source, target, here="here", there="elsewhere").run()
    with pytest.raises(BadInput, match="empty"):
        Move(target, source, here="there", there="here").run()
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


def test_a_copy_that_is_not_one_is_found_out(files, opened):
    """Then nothing has happened: the old store is told to go on, or the move is run again."""
    fill(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(files.open_target())

    class Forgetful(Passing):
        def run(self, fn: Callable[[Txn], T]) -> T:
            def forgets(txn: Txn) -> T:
                put = txn.put_bodies

                def put_zeros(bodies: Any, *, result: bool = False) -> None:
                    put(dict.fromkeys(bodies, "0"), result=result)

                txn.put_bodies = put_zeros  # type: ignore[method-assign]
                return fn(txn)

            return self.store.run(forgets)

    with pytest.raises(StoreCorrupt, match="is not what it is a copy of"):
        files.move(source, Forgetful(target)).run()

    assert (standing_of(source), standing_of(target)) == (Standing.STOPPED, Standing.FILLING)
    files.move(source, target).run()
    assert seen(target) == seen(source)


@pytest.mark.parametrize("sharded", [0, 1])
def test_shards_are_not_moved(tmp_path, opened, sharded):
    """Neither from nor to: what belongs to a shard would have to be given anew."""
    stores = [opened(SqliteStore(tmp_path / "one.db"))]
    stores.insert(sharded, opened(ShardedStore([Opener("0", lambda: SqliteStore(tmp_path / "0.db"))])))

    with pytest.raises(BadInput, match="shards"):
        Move(*stores, here="here", there="there")
