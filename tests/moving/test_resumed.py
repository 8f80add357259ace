"""A move that is killed at any transaction, and started again."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.core.moving import Standing
from holdfast.engine.move import Move
from holdfast.queue.queue import Queue
from holdfast.store.contract import Store, Txn
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.clock import MovedClock
from holdfast.testing.doubles import Passing
from holdfast.testing.queue_suite.fixtures import START_MS
from tests.moving.filled import fill, make_queue, seen, standing_of

T = TypeVar("T")


class Killed(BaseException):
    """What a process meets that is killed."""


class Deadly(Passing):
    """A store that lets a process live for so many transactions; the last one is committed, or not."""

    def __init__(self, store: Store, lives: list[int], *, commits: bool) -> None:
        super().__init__(store)
        self.lives, self.commits = lives, commits

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Passed on, as long as there is life."""
        self.lives[0] -= 1
        if self.lives[0] < 0:
            raise Killed
        if self.lives[0] == 0:
            if self.commits:
                self.store.run(fn)
            raise Killed
        return self.store.run(fn)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("commits", [False, True], ids=["undone", "committed"])
def test_killed_after_any_transaction_a_second_run_goes_on(files, opened, commits):
    """At every one of them: the last was committed, or it was not."""
    fill(opened(make_queue(files.open_source)))
    source, target = opened(files.open_source()), opened(files.open_target())
    expected = seen(source)

    kills = 0
    while True:
        kills += 1
        # Each run lives a little longer than the one before, and begins where that one was killed.
        lives = [kills]
        try:
            files.move(
                Deadly(source, lives, commits=commits), Deadly(target, lives, commits=commits), batch=3
            ).run()
            break
        except Killed:
            continue

    assert kills > 5
    assert {**seen(target), "records": []} == {**expected, "records": []}
    assert seen(target) == seen(source)
    assert (standing_of(source), standing_of(target)) == (Standing.MOVED, Standing.OPEN)


@pytest.mark.timeout(600)
def test_killed_at_each_transaction_of_a_fresh_move(tmp_path):
    """One kill each, at the first, the second, the third transaction and so on, then a second run."""
    number = 1
    while _is_killed(tmp_path / f"{number}", number):
        number += 1

    assert number > 10


def _is_killed(folder: Path, number: int) -> bool:
    """Move a store by a process that is killed at a transaction, and again; whether there was such a one."""
    folder.mkdir()
    clock = MovedClock(START_MS)
    source, target = (SqliteStore(folder / name, clock=clock) for name in ("a.db", "b.db"))
    queue = Queue(lambda: source, url="x")
    fill(queue)
    lives, commits = [number], number % 2 == 0
    deadly = [Deadly(store, lives, commits=commits) for store in (source, target)]
    try:
        Move(*deadly, here="here", there="there", batch=20).run()
        return False
    except Killed:
        Move(source, target, here="here", there="there").run()
        return True
    finally:
        assert seen(target) == seen(source)
        queue.close()
        target.close()
