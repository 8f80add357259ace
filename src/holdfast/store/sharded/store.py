"""Several stores as one: a power of two of them, behind the contract. See docs/decisions/0010.

    shards   each a store of its own, with its own batches; a job is in shard slot mod N
    read     a view that opens the shards that it needs, and merges what is about all (`reads`)

Any stores may be mixed. Which shard a store is it keeps itself, so that a wrong order is noticed.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...core.counting import counted
from ...core.errors import BadInput, StoreError
from ...core.slots import SHARDS, shard_of
from ..common.clock import monotonic_s
from ..common.lending import nothing_to_lend
from ..contract import Capabilities, Changes, ReadTxn, Report, Store, Txn
from .reads import Missing, ShardedReads, Wanted
from .shard import Shard

T = TypeVar("T")

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

    capabilities = Capabilities(is_sharded=True)

    def __init__(self, openers: Sequence[Opener]) -> None:
        self.check_count(len(openers))
        of = len(openers)
        self.shards = tuple(Shard(at, of, *opener, self._exists) for at, opener in enumerate(openers))
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

    def run(self, fn: Callable[[Txn], tuple[Changes, T]], *, blind: bool = False) -> T:
        """Refused: a batch is of one shard."""
        raise NotImplementedError("a batch is of one shard: run it there")

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on a view, consistent in each shard; begun anew with what it turns out to need."""
        wanted: frozenset[int] = frozenset()
        while True:
            try:
                return self._view(sorted(wanted), {}, {}, fn, hint=hint)
            except Wanted as more:
                wanted |= more.shards

    def _view(
        self,
        wanted: list[int],
        views: dict[int, ReadTxn],
        missing: Missing,
        fn: Callable[[ReadTxn], T],
        *,
        hint: bool,
    ) -> T:
        if not wanted:
            return fn(ShardedReads(len(self.shards), views, missing))
        shard, rest = wanted[0], wanted[1:]
        entered = False

        def go_on(txn: ReadTxn) -> T:
            nonlocal entered
            entered = True
            return self._view(rest, views | {shard: txn}, missing, fn, hint=hint)

        try:
            return self.shards[shard].read(go_on, hint=hint)
        except StoreError as error:
            if entered:
                raise
            return self._view(rest, views, missing | {shard: error}, fn, hint=hint)

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Refused, as `run`."""
        needed = "absent: ask the shard that it leads to"
        raise BadInput("connection", type(connection).__name__, needed=needed)

    async def lend(self, connection: Any) -> Any:
        """Refused: which shard a connection leads to is not known before it is used."""
        raise nothing_to_lend(connection)

    def now_ms(self) -> int:
        """The clock of the first shard that is there; each command goes by that of its own."""
        return next((shard for shard in self.shards if shard.is_up), self.shards[0]).now_ms()

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until a shard may have changed, or until interrupted. Lanes wait for their own."""
        until_s = monotonic_s() + timeout_s
        while True:
            for shard in self.shards:
                left_s = min(LISTENED_S, max(until_s - monotonic_s(), 0.0))
                if self._woken.is_set() or shard.wait(left_s, ends=ends):
                    self._woken.clear()
                    return True
            if monotonic_s() >= until_s:
                return False

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

    def report(self) -> Report:
        """What there is to say of each; where none can be used, the first one's error."""
        facts = {"store": counted(len(self.shards), "shard")}
        complaints: list[str] = []
        faults: list[StoreError] = []
        for shard in self.shards:
            try:
                found = shard.report()
                facts |= {f"{shard.number}: {name}": text for name, text in found.facts.items()}
                complaints += found.complaints
            except StoreError as error:
                facts[f"{shard.number}: down"] = str(error)
                complaints.append(str(error))
                faults.append(error)
        if len(faults) == len(self.shards):
            raise faults[0]
        return Report(facts, complaints)

    def close(self) -> None:
        """Let go of all of them."""
        for shard in self.shards:
            shard.close()
