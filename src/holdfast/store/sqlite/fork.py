"""Forks: no connection of SQLite may live through one, as the child would believe to hold its parent's locks.

All stores close theirs before a fork, and open others on either side when they are next needed.
"""

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A store with connections."""

    def before_fork(self) -> None:
        """Close all connections, and let nobody open one until `after_fork`."""

    def after_fork(self) -> None:
        """Go on, in the parent or in the child."""


_stores: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_frozen: list[Forkable] = []
_left_behind: list[object] = []


def close_before_forks(store: Forkable) -> None:
    """Have a store's connections closed before each fork, as long as there is the store."""
    _stores.add(store)


def leave_behind(*connections: object) -> None:
    """Never close these connections, not even when nothing leads to them any more."""
    _left_behind.append(connections)


def _before_fork() -> None:
    _frozen[:] = sorted(_stores, key=id)
    for store in _frozen:
        store.before_fork()


def _after_fork() -> None:
    while _frozen:
        _frozen.pop().after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
