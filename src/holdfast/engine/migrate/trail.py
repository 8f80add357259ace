"""The way to a store that moves: when its jobs are in one of another shape, the way there is made anew.

    ticket ──▶ the way at hand ──Moved──▶ make one to where it has moved ──▶ the same ticket goes that way
                                          (lanes and routes for so many)     cannot: it is answered Moved

What the old way has under way ends there, with an answer or with `Moved`; nothing can be written to a store
that has moved, so whatever is asked again was not done. The process keeps its number, and its ids go on.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ...core import commands as c
from ...core.errors import Closed, Moved
from ...store.contract import ReadTxn, Store
from ..asking import Asking, Committing
from ..engine import Engine
from ..ticket import Ticket
from .following import HOPS, Following

T = TypeVar("T")
# What makes a way to a store: an engine, and what commits by it.
Make = Callable[[Following, "Trail"], tuple[Engine, Committing | None]]


class Trail(Asking):
    """The way to the store at hand, which may become another. `make` makes one."""

    def __init__(self, store: Following, make: Make) -> None:
        self._make, self._store = make, store
        self._left: list[tuple[Engine, Committing | None]] = []
        self._listeners: list[Callable[[], None]] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._engine = FollowingEngine(self)
        self._inner, self._way = make(store, self)

    def __getattr__(self, name: str) -> Any:
        # What else the way at hand has, for those who look into it.
        return getattr(self._way, name)

    @property
    def engine(self) -> Engine:
        """The engine of the store at hand, whichever that is by then."""
        return cast(Engine, self._engine)

    @property
    def inner(self) -> Engine:
        """The engine of the store at hand as it is now."""
        return self._inner

    @property
    def store(self) -> Store:
        """The store at hand, under which names are remembered."""
        return cast(Store, self._store)

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        self._at_hand().submit(ticket)

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Put in many; one that cannot be is answered so."""
        self._at_hand().submit_all(tickets)

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for somebody who is gone."""
        cast(Asking, self._at_hand()).give_back(ticket)

    def _at_hand(self) -> Committing:
        assert self._way is not None
        return self._way

    def listen(self, listener: Callable[[], None]) -> None:
        """See `Committing.listen`; in the next store too."""
        with self._lock:
            self._listeners.append(listener)
            self._at_hand().listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            self._at_hand().unlisten(listener)

    def close(self) -> None:
        """Commit what was put in, and let go of all stores."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            ways = [(self._inner, self._way), *self._left]
        for engine, way in ways:
            (way or engine).close()

    # Where a store has moved to one of another shape

    def take(self, ticket: Ticket, moved: Moved, *, by: Engine) -> bool:
        """Put a command in anew which an engine has answered `Moved`; False: there is no way."""
        try:
            self.go(by, moved)
            self.submit(ticket)
        except (Moved, Closed):
            return False
        return True

    def ask_there(self, command: c.Command, moved: Moved, *, by: Engine) -> Any:
        """The reply to a command which an engine has answered `Moved`."""
        self.go(by, moved)
        return self.ask(command)

    def go(self, left: Engine, moved: Moved) -> None:
        """Leave the way of an engine, if it is the one at hand; raises `moved` if there is no other."""
        with self._lock:
            if self._inner is not left:
                # Another thread was faster.
                return
            if self._is_closed:
                raise moved
            store = self._store.successor(moved)
            engine, way = self._make(store, self)
            engine.ids.go_on(left.ids)
            for listener in self._listeners:
                self._at_hand().unlisten(listener)
                cast(Committing, way).listen(listener)
            # Not closed: another thread may be at it, or wait there.
            self._left.append((self._inner, self._way))
            self._store, self._inner, self._way = store, engine, way


class FollowingEngine:
    """The engine at hand. What only looks is looked up where the jobs are by then; the rest is its own."""

    _trail: Trail

    def __init__(self, trail: Trail) -> None:
        self.__dict__["_trail"] = trail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trail.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._trail.inner, name, value)

    @property
    def store(self) -> Store:
        """The store at hand."""
        return self._trail.store

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """See `Engine.read`."""
        for _ in range(HOPS):
            engine = self._trail.inner
            try:
                return engine.read(fn)
            except Moved as moved:
                self._trail.go(engine, moved)
        return self._trail.inner.read(fn)

    def close(self) -> None:
        """See `Engine.close`."""
        self._trail.close()
