"""The engine of several shards: an engine for each, and multi-shard operations above them.

It runs one command after the other in the caller's thread; `router` runs them concurrently.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ...core import commands as c
from ...core.errors import BadInput, Closed, HoldfastError, StoreError
from ...core.job import Job
from ...core.slots import shard_of
from ...store.contract import ReadTxn
from ...store.sharded.store import ShardedStore
from ..done import Done
from ..engine import Engine
from ..metrics import CommitMeter
from ..shard_info import ShardInfo
from .operations import ShardOperations
from .places import slot_of
from .shared_ids import SharedIds


class ShardedEngine(Engine):
    """Turns commands into transactions on several stores. Queries read all of them."""

    def __init__(
        self, store: ShardedStore, *, retention_ms: int | None = None, rng: Callable[[], float]
    ) -> None:
        self._shared = SharedIds(store.shards)
        super().__init__(store, retention_ms=retention_ms, rng=rng, ids=self._shared)
        self.sharded = store
        of = len(store.shards)
        self.engines = [
            Engine(
                shard,
                retention_ms=retention_ms,
                rng=rng,
                shard_info=ShardInfo(shard.number, of, self._look),
                ids=self._shared,
            )
            for shard in store.shards
        ]

        self._operations = self.operations(self._ask)
        # The results of the transactions of the current command.
        self._steps: list[Done] = []

    def measure(self, meter: CommitMeter) -> None:
        """Have the commits of all shards measured."""
        for engine in self.engines:
            engine.measure(meter)

    def operations(self, ask: Callable[[int, c.Command], Any]) -> ShardOperations:
        """The multi-shard operations, given a function that runs a command on one shard."""
        return ShardOperations(self.sharded.shards, self._shared, ask)

    def _look(self, job_id: int) -> Job | None:
        """A job of any shard, live or archived."""

        def see(txn: ReadTxn) -> Job | None:
            return txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)

        return self.sharded.shard_of(job_id).read(see)

    def execute(self, commands: Sequence[c.Command], done: Done | None = None) -> Done:
        """Run commands one after the other; the error of a command is its reply."""
        whole = done or Done()
        for command in commands:
            whole.replies.append(self._outcome(command))
            while self._steps:
                done = self._steps.pop(0)
                self._operations.deliver(done.outbox)
                self._operations.freed(done.freed)
                _join(whole, done)
        return whole

    def _ask(self, at: int, command: c.Command) -> Any:
        done = self.engines[at].execute([command])
        self._steps.append(done)
        (reply,) = done.replies
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _outcome(self, command: c.Command) -> Any:
        try:
            return self._operations.do(command)
        except StoreError:
            raise
        except HoldfastError as error:
            return error

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, on the shard of that connection."""
        slot = None if isinstance(command, c.Add) else slot_of(command)
        if slot is not None:
            return self.engines[shard_of(slot, len(self.engines))].execute_in(connection, command)
        refused: BadInput | None = None
        for engine in self.engines:
            try:
                return engine.execute_in(connection, command)
            except BadInput as error:
                if error.name != "connection":
                    raise
                refused = refused or error
        assert refused is not None
        raise refused

    def close(self) -> None:
        """Release the sysid and close the stores."""
        try:
            self._shared.give_back(self.store)
        except (StoreError, Closed):
            # Its shard is down: the number is free again when its lease expires.
            pass
        finally:
            self.store.close()


def _join(whole: Done, done: Done) -> None:
    whole.woke = whole.woke or done.woke
    whole.news = whole.news or done.news
    whole.ended |= done.ended
    moments = [moment for moment in (whole.next_ms, done.next_ms) if moment is not None]
    whole.next_ms = min(moments, default=None)
