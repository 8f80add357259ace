"""The engine of several shards, and the shard that a command belongs to. See docs/decisions/0010.

Queries read all shards. Commands go to the engine of a shard (`router`).
"""

import threading
from collections.abc import Callable
from typing import Any

from ...core import commands as c
from ...core import ids, slots
from ...core.commands import TakeSysid
from ...core.errors import BadInput, Closed, HoldfastError, StoreError, WouldBlock
from ...core.kinds import TOKEN
from ...core.limits import is_pattern
from ...core.slots import shard_of
from ...store.contract import AnyStore, Store
from ...store.sharded.store import ShardedStore
from ..commands import requests
from ..engine import AnyEngine, Engine
from ..metrics import CommitMeter
from ..shard_info import ShardInfo
from ..sysid import IdMaker, IdSource, OwnSysid


class SharedIds(IdSource):
    """The sysid of one process on several shards: one number, with which it makes ids for all of them.

    Sysid n is leased by shard n mod N. So no two shards lease the same one, and no single shard is needed by
    all processes: while the shard that leased ours is down, another shard leases another number. It is never
    leased inside a transaction of jobs, which may be in another shard.
    """

    lends_inside = False

    def __init__(self, store: ShardedStore) -> None:
        super().__init__()
        self._shards = store.shards
        self._renewing = threading.Lock()

    def adopt(self, maker: IdMaker) -> None:
        """Do nothing: a shard's transaction neither takes nor renews a number."""

    def lease_apart(self, store: Store, seen: OwnSysid | None) -> None:
        """Renew the sysid in the shard that leased it, or else lease another, first from `store`."""
        with self._renewing:
            if self.held is not seen:
                return
            fault: HoldfastError | None = None
            for at in self._order(store):
                try:
                    self._lease(self._shards[at], self._numbers(at))
                    return
                except (StoreError, WouldBlock) as error:
                    fault = fault or error
            assert fault is not None
            raise fault

    def _order(self, store: Store) -> list[int]:
        first = next((at for at, shard in enumerate(self._shards) if shard is store), 0)
        rest = [(first + step) % len(self._shards) for step in range(len(self._shards))]
        return rest if self.held is None else [self.held.number % len(self._shards), *rest]

    def _numbers(self, at: int) -> range:
        of = len(self._shards)
        first = next(n for n in range(ids.FIRST_SYSID, ids.SYSIDS) if n % of == at)
        return range(first, ids.FIRST_JOURNAL_SYSID, of)

    def give_back(self, store: AnyStore) -> None:
        """Release the sysid in the shard that leased it, if that is up; otherwise the lease expires."""
        if self.held is not None:
            super().give_back(self._shards[self.held.number % len(self._shards)])


class ShardedEngine(AnyEngine):
    """Has an engine for each shard. Queries, and commands in a caller's transaction, find their shards."""

    store: ShardedStore
    ids: SharedIds

    def __init__(self, store: AnyStore, *, retention_ms: int | None = None, rng: Callable[[], float]) -> None:
        assert isinstance(store, ShardedStore)
        super().__init__(store, SharedIds(store))
        of = len(store.shards)
        self.engines = [
            Engine(
                shard,
                retention_ms=retention_ms,
                rng=rng,
                shard_info=ShardInfo(shard.number, of),
                ids=self.ids,
            )
            for shard in store.shards
        ]

    def measure(self, meter: CommitMeter) -> None:
        """Have the commits of all shards measured."""
        for engine in self.engines:
            engine.measure(meter)

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, on the shard of that connection.

        Shards that are down are tried last, and do not refuse a connection to another one.
        """
        slot = None if isinstance(command, c.Add) else slot_of(command)
        if slot is not None:
            return self.engines[shard_of(slot, len(self.engines))].execute_in(connection, command)
        refused: list[BadInput] = []
        faults: list[StoreError] = []
        shards = self.store.shards
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


def _job(command: Any) -> int:
    hold = getattr(command, "hold", None)
    return int(hold.job_id if hold is not None else command.job_id)


def _limit(command: c.SetLimit) -> int | None:
    return None if is_pattern(command.domain) else ids.slot_of(command.tenant, command.domain)


def _pause(command: c.Pause) -> int | None:
    return None if command.domain is None else ids.slot_of(command.tenant or "", command.domain)


def _indexed(command: Any) -> int:
    return slots.slot_of_indexed(command.tenant)


# The slot of a command, or the id of its job, whose slot it is; None: all shards.
_SLOTS: dict[type[c.Command], Callable[[Any], int | None]] = {
    **dict.fromkeys((c.Answer, c.Release, c.Extend, c.Report, c.Step, c.WriteLog, c.Update), _job),
    **dict.fromkeys((c.Cancel, c.Requeue, c.Delete, c.Await, c.SendSignal), _job),
    c.SetLimit: _limit,
    c.Pause: _pause,
    **dict.fromkeys((c.StartProgress, c.MoveProgress, c.SetProgress, c.Append, c.TrimLog), _indexed),
    c.CreateToken: lambda command: slots.slot_of_record(TOKEN, command.token.name),
    c.RevokeToken: lambda command: slots.slot_of_record(TOKEN, command.name),
    # The shard that leases a number.
    TakeSysid: lambda command: command.number,
    requests.NoteRequest: requests.slot_of_request,
}


def slot_of(command: c.Command) -> int | None:
    """The slot of a command, or the id of its job; None: there is none."""
    find = _SLOTS.get(type(command))
    return None if find is None else find(command)


def slot_of_new(new: c.NewJob) -> int | None:
    """The slot of a new job, or its id if it has one; None: any slot."""
    return new.id & (ids.SLOTS - 1) if new.id else slots.slot_for(new)
