"""A store that goes along when its jobs move: what is asked of it is asked of the new one from then on.

    verb ──▶ the store at hand ──Moved──▶ open the address it names ──▶ does that bear the move's token?
                                                                         yes: it is the store at hand
                                                                         no, or it is not there: Moved

A store alone becomes another store alone in place, and nobody above knows. Where either is several, lanes
and routes are made for so many: then the verb is answered `Moved`, and whoever has the way to the store makes
another way, to the one that it has moved to (`successor`, `trail`).

An owner keeps its number, its claims and its ids, all of which have moved too. The address in a notice has no
password. One's own is used for the same user on the same server, and never sent anywhere else; where another
is needed the verb answers `Moved`, and people say the new address.
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from time import sleep
from typing import Any, TypeVar

from ...core.errors import HoldfastError, Moved
from ...core.moving import Notice, Standing, read_notice
from ...store.common.clock import monotonic_s
from ...store.common.gifts import (
    Run,
    Sought,
    heed,
    lanes_of,
    lender_of,
    lends_apart,
    peek,
    quick_run_of,
    seek_run_of,
)
from ...store.contract import ReadTxn, Store, Txn
from ...store.sharded.store import ShardedStore

T = TypeVar("T")
# From one store to the next, and the next: more is a circle.
HOPS = 8
# How long a new store is waited for that is about to be opened.
PATIENCE_S, NAP_S = 30.0, 0.05

log = logging.getLogger("holdfast")


class Following:
    """The store at hand, which may become another. `reopen` opens the one of an address, if it is there."""

    def __init__(self, store: Store, reopen: Callable[[str], Store | None]) -> None:
        self._store, self._reopen = store, reopen
        self._left: list[Store] = []
        self._names: list[str] = []
        # The store of another shape that this one has moved to, not yet used; and whether it is.
        self._beyond: Store | None = None
        self._is_over = False
        self._lock = threading.Lock()

    @property
    def sharded(self) -> ShardedStore | None:
        """The store at hand, if it is several."""
        return self._store if isinstance(self._store, ShardedStore) else None

    def run(self, fn: Callable[[Txn], T]) -> T:
        """See `Store.run`."""
        return self._follow(lambda store: store.run(fn))

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """See `Store.read`."""
        return self._follow(lambda store: store.read(fn))

    def _follow(self, ask: Callable[[Store], T]) -> T:
        for _ in range(HOPS):
            store = self._store
            try:
                return ask(store)
            except Moved as moved:
                self._go(store, moved)
        return ask(self._store)

    def _go(self, store: Store, moved: Moved) -> None:
        """Let the store that this one has moved to be the one at hand, or raise `moved`."""
        with self._lock:
            if self._store is not store:
                # Another thread was faster.
                return
            if self._is_over:
                raise moved
            found = self._beyond or self._found(moved)
            if isinstance(found, ShardedStore):
                self._beyond = found
                raise moved
            for name in self._names:
                found.appear(name)
            # Not closed: another thread may be at it, or wait there.
            self._left.append(store)
            self._store = found
            store.interrupt()

    def _found(self, moved: Moved) -> Store:
        """The store that this one has moved to, or raise `moved`."""
        try:
            found = self._reopen(moved.address)
        except HoldfastError:
            found = None
        if found is None:
            raise moved
        if not _is_the_one(found, moved):
            found.close()
            raise moved
        log.warning("the store has moved to %s, and is used there; change its address", moved.address)
        return found

    def successor(self, moved: Moved) -> "Following":
        """What this store has become, where it cannot become so in place; or raise `moved`."""
        with self._lock:
            after = Following(self._beyond or self._found(moved), self._reopen)
            self._beyond, self._is_over = None, True
        for name in self._names:
            after.appear(name)
        return after

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """See `Store.borrow`. A caller's connection leads where it leads: it cannot follow."""
        return self._store.borrow(connection, fn)

    # What some stores have besides the contract: `store.gifts`.

    @property
    def lanes(self) -> int:
        """How many commits may be under way at once."""
        return lanes_of(self._store)

    def quick(self, sort: str) -> Run[Any] | None:
        """A quicker way for batches of a sort, where there is one."""
        if quick_run_of(self._store, sort) is None:
            return None
        return lambda fn: self._follow(lambda store: (quick_run_of(store, sort) or store.run)(fn))

    def peek(self, fn: Callable[[ReadTxn], T]) -> T:
        """A look for a hint."""
        return self._follow(lambda store: peek(store, fn))

    def seek(self, sought: Sought) -> Run[Any] | None:
        """What runs a claim without a look before it, where there is such."""
        if seek_run_of(self._store, sought) is None:
            return None
        return lambda fn: self._follow(lambda store: (seek_run_of(store, sought) or store.run)(fn))

    @property
    def lend(self) -> Callable[[Any], Awaitable[Any]] | None:
        """What makes a connection to await one that can be borrowed, where there is such."""
        return lender_of(self._store)

    @property
    def lends_apart(self) -> bool:
        """Whether numbers are to be had before a connection is borrowed."""
        return lends_apart(self._store)

    def now_ms(self) -> int:
        """See `Store.now_ms`."""
        return self._store.now_ms()

    def wait(self, timeout_s: float) -> bool:
        """See `Store.wait`."""
        return self._store.wait(timeout_s)

    def notify(self, *, ends: bool = False) -> None:
        """See `Store.notify`."""
        self._store.notify(ends=ends)

    def heed(self, *, ends: bool) -> None:
        """Which words `wait` returns for; the next store hears all until it is told."""
        heed(self._store, ends=ends)

    def interrupt(self) -> None:
        """See `Store.interrupt`."""
        for store in (*self._left, self._store):
            store.interrupt()

    def appear(self, name: str) -> bool:
        """See `Store.appear`; in the next store too."""
        with self._lock:
            self._names.append(name)
            return self._store.appear(name)

    def check(self) -> list[str]:
        """See `Store.check`."""
        return self._store.check()

    def facts(self) -> dict[str, str]:
        """See `Store.facts`."""
        return self._store.facts()

    def close(self) -> None:
        """See `Store.close`."""
        for store in (self._store, *self._left, self._beyond):
            if store is not None:
                store.close()


def _is_the_one(store: Store, moved: Moved) -> bool:
    """Whether a store was filled by that move; one that is about to be opened is waited for."""
    until_s = monotonic_s() + PATIENCE_S
    doors = store.shards if isinstance(store, ShardedStore) else (store,)
    return all(_is_filled(door, moved, until_s) for door in doors)


def _is_filled(store: Store, moved: Moved, until_s: float) -> bool:
    while True:
        try:
            notice = store.read(_notice)
        except HoldfastError:
            return False
        if notice is None or not moved.token:
            return False
        if notice.standing is not Standing.FILLING:
            return notice.origin == moved.token
        if notice.token != moved.token or monotonic_s() >= until_s:
            return False
        sleep(NAP_S)


def _notice(txn: ReadTxn) -> Notice | None:
    raw = txn.notice()
    return read_notice(raw) if raw else None
