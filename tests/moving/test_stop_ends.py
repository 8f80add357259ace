"""An error while the source is stopped: its users do not wait until the reason has gone."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from holdfast.core.errors import HoldfastError, Unavailable
from holdfast.core.moving import Standing
from holdfast.store.contract import AnyStore, Changes, Store, Txn
from holdfast.store.sharded.store import Opener, ShardedStore
from tests.doubles import Passing
from tests.moving.filled import check_same, fill, make_queue, standing_of

T = TypeVar("T")


class Failing(Passing):
    """A store whose transactions fail from a moment on."""

    def __init__(self, store: Store, faults: list[BaseException]) -> None:
        super().__init__(store)
        self.faults = faults

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Fails if there is a fault."""
        for fault in self.faults:
            raise fault
        return self.store.run(fn)


def failing(store: AnyStore, faults: list[BaseException]) -> AnyStore:
    """The same of each shard, where there are several."""
    if not isinstance(store, ShardedStore):
        return Failing(store.shards[0], faults)

    def open_shard(shard: Store) -> Opener:
        return Opener("failing", lambda: Failing(shard, faults))

    return ShardedStore([open_shard(shard) for shard in store.shards])


@pytest.mark.parametrize(
    "fault", [Unavailable("the target is away"), KeyboardInterrupt()], ids=["away", "Ctrl-C"]
)
def test_a_target_that_fails_in_the_last_pass_lets_the_source_go_on(some, opened, fault):
    """The same move goes on later."""
    queue = opened(make_queue(some.open_source))
    fill(queue)
    source, target = opened(some.open_source()), opened(some.open_target())
    faults: list[BaseException] = []

    def fails(phase: str) -> None:
        if phase == "stopping":
            queue.add("not copied yet")
            faults.append(fault)

    with pytest.raises(type(fault)):
        some.move(source, failing(target, faults), phase=fails).run()

    assert [standing_of(shard) for shard in source.shards] == [Standing.COPYING] * len(source.shards)
    queue.add("goes on")
    some.move(source, target).run()
    check_same(target, source)


def test_a_shard_of_the_source_that_fails_at_the_handover_undoes_nothing(some, opened, monkeypatch):
    """What the first shard says holds: it has moved, and the same move opens the target."""
    fill(opened(make_queue(some.open_source)))
    source, target = opened(some.open_source()), opened(some.open_target())
    move = some.move(source, target)

    def fails(digest: str) -> None:
        lonely = some.move(source, target)
        lonely._run, lonely._sources = move._run, move._sources[:1]
        lonely._set(Standing.MOVED, digest)
        raise HoldfastError("the next shard is down")

    monkeypatch.setattr(move, "_hand_over", fails)
    with pytest.raises(HoldfastError, match="next shard"):
        move.run()

    assert standing_of(source) == Standing.MOVED
    some.move(source, target).run()
    check_same(target, source)


def test_a_shard_of_the_source_that_is_down_leaves_no_other_stopped(some, opened, monkeypatch):
    """It is stopped itself until the same move goes on, or is undone."""
    fill(opened(make_queue(some.open_source)))
    source, target = opened(some.open_source()), opened(some.open_target())
    move, faults = some.move(source, target), list[BaseException]()
    move._sources = [Failing(shard, faults) if at == 1 else shard for at, shard in enumerate(move._sources)]

    def fails(*, deep: bool) -> str:
        faults.append(Unavailable("the shard is down"))
        raise faults[0]

    monkeypatch.setattr(move, "_finish", fails)
    with pytest.raises(Unavailable, match="the shard is down"):
        move.run()

    wanted = [Standing.COPYING] * len(source.shards)
    wanted[1:2] = [Standing.STOPPED] * len(wanted[1:2])
    assert [standing_of(shard) for shard in source.shards] == wanted
    some.move(source, target).run()
    check_same(target, source)
