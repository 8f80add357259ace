"""What stands before a store: one lane of commits, or one for each shard; and what leads to the next."""

from collections.abc import Callable

from ..core.errors import Moved
from ..store.contract import Store
from ..store.sharded.store import ShardedStore
from .asking import Committing
from .committer import Committer
from .engine import Engine
from .migrate.following import Following
from .migrate.trail import Trail
from .sharding.lanes import Lanes
from .sharding.sharded import ShardedEngine
from .ticket import Ticket


def open_engine(store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> Engine:
    """The engine of a store."""
    # Once: in the next store it is what the last who spoke has said.
    said = iter([retention_ms])
    if isinstance(store, Following):

        def make(found: Following, _trail: Trail) -> tuple[Engine, None]:
            return _engine(found.sharded or found, next(said, None), dice), None

        return Trail(store, make).engine
    return _engine(store, retention_ms, dice)


def open_committer(store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> Committing:
    """The way to a store."""
    said = iter([retention_ms])
    if isinstance(store, Following):

        def make(found: Following, trail: Trail) -> tuple[Engine, Committing]:
            engine = _engine(found.sharded or found, next(said, None), dice)
            return engine, _committer(engine, trail)

        return Trail(store, make)
    return _committer(_engine(store, retention_ms, dice), None)


def _engine(store: Store, retention_ms: int | None, dice: Callable[[], float]) -> Engine:
    if isinstance(store, ShardedStore):
        return ShardedEngine(store, retention_ms=retention_ms, dice=dice)
    return Engine(store, retention_ms=retention_ms, dice=dice)


def _committer(engine: Engine, trail: Trail | None) -> Committing:
    if isinstance(engine, ShardedEngine):
        return Lanes(engine, trail)
    if trail is None:
        return Committer(engine)

    def divert(ticket: Ticket, error: Exception) -> bool:
        return isinstance(error, Moved) and trail.take(ticket, error, by=engine)

    return Committer(engine, divert=divert)
