"""Several stores, a power of two, as one `AnyStore`. See docs/decisions/0010.

    shards   each is a store with its own batches; a job is in shard slot mod N
    read     a view that opens the shards that it needs, and merges their results (`reads`)

Stores of any kind may be mixed. Each store keeps its shard number, so that a wrong order is an error.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ...core.errors import BadInput, SchemaMismatch, StoreError
from ...core.slots import SHARDS
from ...core.units import counted
from ..contract import AnyStore, Capabilities, ReadTxn, StoreReport
from .reads import Missing, ShardedReads, ShardsWanted
from .shard import Shard

T = TypeVar("T")


class Opener(NamedTuple):
    """A store's name for messages, and the functions that open and create it.

    `create` is used where `open` does not create the store: a shard exists only after the first write.
    """

    name: str
    open: Callable[[], AnyStore]
    create: Callable[[], AnyStore] | None = None


class ShardedStore:
    """N stores as one."""

    capabilities = Capabilities()

    def __init__(self, openers: Sequence[Opener]) -> None:
        self.check_count(len(openers))
        of = len(openers)
        self.shards = tuple(Shard(at, of, *opener, self._exists) for at, opener in enumerate(openers))

    @staticmethod
    def check_count(count: int) -> None:
        """Raise `BadInput` unless `count` is a power of two and at most the number of slots."""
        if count not in SHARDS:
            raise BadInput("shards", count, needed=f"one of {', '.join(map(str, SHARDS))}")

    def _exists(self) -> bool:
        """Whether any shard exists."""
        return any(shard.exists() for shard in self.shards)

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on a view that is consistent within each shard; again when it needs more shards."""
        wanted: frozenset[int] = frozenset()
        while True:
            try:
                return self._view(sorted(wanted), {}, {}, fn, hint=hint)
            except ShardsWanted as more:
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
            if entered or isinstance(error, SchemaMismatch):
                raise
            return self._view(rest, views, missing | {shard: error}, fn, hint=hint)

    async def lend(self, connection: Any) -> Any:
        """Wrap an asyncio connection by the first shard that can; `borrow` of the others refuses it."""
        refused: BadInput | None = None
        for shard in self.shards:
            try:
                return await shard.lend(connection)
            except BadInput as error:
                refused = refused or error
        assert refused is not None
        raise refused

    def now_ms(self) -> int:
        """The clock of the first shard that is up; each command uses the clock of its own shard."""
        return next((shard for shard in self.shards if shard.is_up), self.shards[0]).now_ms()

    def appear(self, name: str) -> bool:
        """Announce a name in all shards that are up; False if one of them cannot."""
        seen: list[bool] = []
        for shard in self.shards:
            with suppress(StoreError):
                seen.append(shard.appear(name))
        return bool(seen) and all(seen)

    def report(self) -> StoreReport:
        """The reports of all shards; if none can be used, the error of the first is raised."""
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
        return StoreReport(facts, complaints)

    def close(self) -> None:
        """Close all shards."""
        for shard in self.shards:
            shard.close()
