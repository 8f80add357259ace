"""What stands before a store: one lane of commits, or one for each shard."""

from collections.abc import Callable

from ..store.contract import Store
from ..store.sharded import ShardedStore
from .asking import Committing
from .committer import Committer
from .engine import Engine
from .lanes import Lanes
from .sharded import ShardedEngine


def open_engine(store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> Engine:
    """The engine of a store."""
    if isinstance(store, ShardedStore):
        return ShardedEngine(store, retention_ms=retention_ms, dice=dice)
    return Engine(store, retention_ms=retention_ms, dice=dice)


def open_committer(store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> Committing:
    """The way to a store."""
    engine = open_engine(store, retention_ms=retention_ms, dice=dice)
    return Lanes(engine) if isinstance(engine, ShardedEngine) else Committer(engine)
