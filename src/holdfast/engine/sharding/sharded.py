"""The engine of several shards: queries read all of them. Commands go to the engine of a shard (`router`)."""

from collections.abc import Callable
from typing import Any

from ...core import commands as c
from ...core.errors import BadInput, Closed, StoreError
from ...core.job import Job
from ...core.slots import shard_of
from ...store.contract import ReadTxn
from ...store.sharded.store import ShardedStore
from ..engine import Engine
from ..metrics import CommitMeter
from ..shard_info import ShardInfo
from .places import slot_of
from .shared_ids import SharedIds


class ShardedEngine(Engine):
    """Has an engine for each shard. Queries, and commands in a caller's transaction, find their shards."""

    ids: SharedIds

    def __init__(
        self, store: ShardedStore, *, retention_ms: int | None = None, rng: Callable[[], float]
    ) -> None:
        super().__init__(store, retention_ms=retention_ms, rng=rng, ids=SharedIds(store.shards))
        self.sharded = store
        of = len(store.shards)
        self.engines = [
            Engine(
                shard,
                retention_ms=retention_ms,
                rng=rng,
                shard_info=ShardInfo(shard.number, of, self._look),
                ids=self.ids,
            )
            for shard in store.shards
        ]

    def measure(self, meter: CommitMeter) -> None:
        """Have the commits of all shards measured."""
        for engine in self.engines:
            engine.measure(meter)

    def _look(self, job_id: int) -> Job | None:
        """A job of any shard, live or archived."""

        def see(txn: ReadTxn) -> Job | None:
            return txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)

        return self.sharded.shard_of(job_id).read(see)

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, on the shard of that connection.

        Shards that are down are tried last, and do not refuse a connection to another one.
        """
        slot = None if isinstance(command, c.Add) else slot_of(command)
        if slot is not None:
            return self.engines[shard_of(slot, len(self.engines))].execute_in(connection, command)
        refused: list[BadInput] = []
        faults: list[StoreError] = []
        shards = self.sharded.shards
        for engine in sorted(self.engines, key=lambda one: not shards[one.shard_info.number].is_up):
            try:
                return engine.execute_in(connection, command)
            except BadInput as error:
                if error.name != "connection":
                    raise
                refused.append(error)
            except StoreError as error:
                faults.append(error)
        raise (faults or refused)[0]

    def close(self) -> None:
        """Release the sysid and close the stores."""
        try:
            self.ids.give_back(self.store)
        except (StoreError, Closed):
            # Its shard is down: the number is free again when its lease expires.
            pass
        finally:
            self.store.close()
