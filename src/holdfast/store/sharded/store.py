"""Several stores as one: a power of two of them, behind the contract. See docs/decisions/0010.

    shards   each a store of its own, for the lanes of the engine; a job is in shard slot mod N
    read     a view that opens the shards that it needs, and merges what is about all (sharded_reads)
    run      one batch over all of them, atomic in each (sharded_txn); not what the engine does

Any stores may be mixed. Which shard a store is it keeps itself, so that a wrong order is noticed.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...core.counting import counted
from ...core.errors import BadInput, Conflict, Contended, StoreError
from ...core.slots import SHARDS, shard_of
from ..common.clock import monotonic_s
from ..contract import ReadTxn, Store, Txn
from .reads import Missing, ShardedReads, Wanted
from .shard import Shard
from .txn import ShardedTxn

T = TypeVar("T")

TRIES = 100
# How long `wait` listens to one shard before it turns to the next.
LISTENED_S = 0.02


class Opener(NamedTuple):
    """A store by name, for people, and what opens it.

    Where `open` creates no store, `create` does: a shard that nothing was added to yet is not there.
    """

    name: str
    open: Callable[[], Store]
    create: Callable[[], Store] | None = None


class ShardedStore:
    """N stores that together are one."""

    def __init__(self, openers: Sequence[Opener]) -> None:
        self.check_count(len(openers))
        of = len(openers)
        self.shards = tuple(Shard(at, of, *opener, self._exists) for at, opener in enumerate(openers))
        self._turn = 0
        self._woken = threading.Event()

    @staticmethod
    def check_count(count: int) -> None:
        """Refuse what is no power of two, or more than there are slots."""
        if count not in SHARDS:
            raise BadInput("shards", count, needed=f"one of {', '.join(map(str, SHARDS))}")

    def _exists(self) -> bool:
        """Whether any shard is there."""
        return any(shard.exists() for shard in self.shards)

    def shard_of(self, job_id: int) -> Shard:
        """Where a job lives."""
        return self.shards[shard_of(job_id, len(self.shards))]

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` as one batch over all shards: nothing if it raises, atomic in each if a crash comes.

        What is committed first is the last shard. Whoever needs more than that uses one shard.
        """
        self._turn += 1
        for tries in range(TRIES):
            try:
                return self._inside([], fn, again=tries > 0)
            except _Again:
                continue
        raise Contended(f"a batch was done {TRIES} times, and each time something had changed")

    def _inside(self, txns: list[Txn], fn: Callable[[Txn], T], *, again: bool) -> T:
        if len(txns) == len(self.shards):
            try:
                return fn(ShardedTxn(txns, self._turn))
            except Conflict:
                # Not by the innermost shard alone: what the others have must be undone too.
                raise _Again from None
        entered = False

        def go_on(txn: Txn) -> T:
            nonlocal entered
            if entered:
                raise _Again
            entered = True
            return self._inside([*txns, txn], fn, again=again)

        shard = self.shards[len(txns)]
        return (shard.run_carefully if again else shard.run)(go_on)

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on a view, consistent in each shard; begun anew with what it turns out to need."""
        wanted: frozenset[int] = frozenset()
        while True:
            try:
                return self._view(sorted(wanted), {}, {}, fn)
            except Wanted as more:
                wanted |= more.shards

    def _view(
        self, wanted: list[int], views: dict[int, ReadTxn], missing: Missing, fn: Callable[[ReadTxn], T]
    ) -> T:
        if not wanted:
            return fn(ShardedReads(len(self.shards), views, missing))
        shard, rest = wanted[0], wanted[1:]
        entered = False

        def go_on(txn: ReadTxn) -> T:
            nonlocal entered
            entered = True
            return self._view(rest, views | {shard: txn}, missing, fn)

        try:
            return self.shards[shard].read(go_on)
        except StoreError as error:
            if entered:
                raise
            return self._view(rest, views, missing | {shard: error}, fn)

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Refused: a transaction of the caller's is on one shard, and a batch on all."""
        needed = "absent: ask the shard that it leads to"
        raise BadInput("connection", type(connection).__name__, needed=needed)

    def now_ms(self) -> int:
        """The clock of the first shard that is there; each command goes by that of its own."""
        return next((shard for shard in self.shards if shard.is_up), self.shards[0]).now_ms()

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a shard may have changed, or until interrupted. Lanes wait for their own."""
        until_s = monotonic_s() + timeout_s
        while True:
            for shard in self.shards:
                if self._woken.is_set() or shard.wait(min(LISTENED_S, max(until_s - monotonic_s(), 0.0))):
                    self._woken.clear()
                    return True
            if monotonic_s() >= until_s:
                return False

    def notify(self, *, ends: bool = False) -> None:
        """Tell those who wait at any shard."""
        for shard in self.shards:
            shard.notify(ends=ends)

    def interrupt(self) -> None:
        """Wake `wait`."""
        self._woken.set()

    def appear(self, name: str) -> bool:
        """Be seen at all shards that are there; False where one of them cannot tell."""
        seen: list[bool] = []
        for shard in self.shards:
            with suppress(StoreError):
                seen.append(shard.appear(name))
        return bool(seen) and all(seen)

    def check(self) -> list[str]:
        """What is wrong with any of them."""
        return [text for shard in self.shards for text in shard.check()]

    def facts(self) -> dict[str, str]:
        """What there is to say of each; where none can be used, the first one's error."""
        found = {"store": counted(len(self.shards), "shard")}
        faults: list[StoreError] = []
        for shard in self.shards:
            try:
                found |= {f"{shard.number}: {name}": text for name, text in shard.facts().items()}
            except StoreError as error:
                found[f"{shard.number}: down"] = str(error)
                faults.append(error)
        if len(faults) == len(self.shards):
            raise faults[0]
        return found

    def close(self) -> None:
        """Let go of all of them."""
        for shard in self.shards:
            shard.close()


class _Again(Exception):
    """Somebody else was faster in one shard: the batch begins anew in all."""
