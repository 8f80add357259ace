"""The engine: a batch of commands becomes one transaction and a list of replies.

    load what the batch touches ─▶ let the rules decide each command ─▶ claims ─▶ Changes ─▶ commit ─▶ replies

A command that breaks a rule fails alone. A reply means *durably committed*. Claims come last, after upkeep
has promoted due jobs; a write before the last one is needed where a claim or a limited domain must see it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ..core import bounds
from ..core import commands as c
from ..core.errors import Conflict, Stopped, StoreError
from ..core.kinds import STEPS
from ..core.moving import check_open
from ..core.queries import Query
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import import_all
from ..store.contract import AnyStore, Changes, Leased, ReadTxn, Store, Txn
from . import joblog, plain
from .batch.task_defaults import FRESH_MS, KnownDefaults
from .shard_info import UNSHARDED, ShardInfo
from .sysid import RENEW_MS, IdMaker, IdSource, OutOfNumbers, StopPeriod
from .ticket import Done

if TYPE_CHECKING:
    from .batch.batch import Batch
    from .metrics import CommitMeter
    from .upkeep import ClaimHint

T = TypeVar("T")
CLAIMING = (c.Claim, c.Upkeep)
# What a plain add does not need is imported where it is used: many processes do nothing else.
BATCHES, READS = ("transaction", "upkeep"), ("queries",)


@cache
def _import(modules: tuple[str, ...]) -> None:
    """Import modules of this package first, so that an import in a function only looks them up."""
    import_all([f"{__package__}.{name}" for name in modules])


class AnyEngine(ABC):
    """What a connection needs of the engine of one store, or of several shards, beside commands."""

    def __init__(self, store: AnyStore, ids: IdSource) -> None:
        self.store, self.ids = store, ids

    @abstractmethod
    def measure(self, meter: "CommitMeter") -> None:
        """Have commits measured."""

    @abstractmethod
    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, which the caller commits or rolls back."""

    async def execute_in_async(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's asyncio transaction, if the store supports that."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        from contextvars import copy_context

        lent = await self.store.lend(connection)
        # A thread of its own: all threads of a shared pool could wait for locks of a transaction whose next
        # command waits for a thread.
        thread = ThreadPoolExecutor(1, "holdfast-borrow")
        work = asyncio.get_running_loop().run_in_executor(
            thread, copy_context().run, self.execute_in, lent, command
        )
        thread.shutdown(wait=False)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The caller may use the connection again only when the thread is done with it: also if it is
            # cancelled again meanwhile, as anyio does all the time.
            while not work.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            work.exception()
            raise

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Run a read without blocking writers; see `Store.read`."""

        def read(txn: ReadTxn) -> T:
            check_open(txn.notice(), writes=False)
            return fn(txn)

        return self.store.read(read, hint=hint)

    def query(self, query: Query) -> Any:
        """Run a query on one consistent snapshot; returns its reply."""
        _import(READS)
        from .queries import QUERIES, STORE_QUERIES

        if (ask := STORE_QUERIES.get(type(query))) is not None:
            return ask(self.store)
        execute = QUERIES[type(query)]
        return self.read(lambda txn: execute(txn, query))

    @abstractmethod
    def close(self) -> None:
        """Release the sysid and close the store."""


class Engine(AnyEngine):
    """Turns commands into transactions on one store."""

    store: Store

    def __init__(
        self,
        store: Store,
        *,
        retention_ms: int | None = None,
        rng: Callable[[], float],
        shard_info: ShardInfo = UNSHARDED,
        ids: IdSource | None = None,
    ) -> None:
        super().__init__(store, ids or IdSource())
        self.shard_info = shard_info
        self._rng = rng
        self._retention_wanted = retention_ms
        self._retention_ms: int | None = None
        # When that was last read: a process that only adds runs no upkeep.
        self._retention_seen_ms = 0
        self._known = KnownDefaults()
        self._meter: CommitMeter | None = None
        # When the rest of upkeep is due (at first use: now), and when it last ran.
        self.next_upkeep_ms = self._upkept_ms = 0
        # Claims are batches until then.
        self._leases_from_ms = 0

    def measure(self, meter: "CommitMeter") -> None:
        """Have commits measured."""
        self._meter = meter

    def execute(self, commands: Sequence[c.Command], done: Done | None = None) -> Done:
        """Run commands as one transaction; the error of a command is its reply.

        `done` is filled along the way: after an interrupt it has what may have been committed.
        """
        done = Done() if done is None else done
        started_s = 0.0 if self._meter is None else monotonic_s()
        if not self._run_plainly(commands, done):
            self._run_batch(commands, done)
        if self._meter is not None:
            self._meter.note_commit(commands, monotonic_s() - started_s, done.unreported)
        return done

    def _run_plainly(self, commands: Sequence[c.Command], done: Done) -> bool:
        """Run commands that need no batch (`plain`); False: nothing was done."""
        if self.ids.held is None or self._retention_wanted is not None:
            return False
        if type(commands[0]) is c.Claim:
            return len(commands) == 1 and self._lease(commands[0], done)
        now_ms = self.store.now_ms()
        if plain.are_adds(commands):
            made = plain.changes_of_adds(commands, self.ids, self.ids.held, self.shard_info.slots, now_ms)
            if made is None:
                return False
            changes, done.replies = made
            done.now_ms, done.woke, done.added = now_ms, True, changes.added
        elif self._is_fresh(now_ms) and plain.are_answers(commands):
            try:
                changes = self._changes_of_answers(commands, done, now_ms)
            except (plain.NeedsRead, Conflict):
                done.reset()
                return False
        else:
            return False
        if not self.store.commit(changes):
            done.reset()
            return False
        self._committed(done)
        return True

    def _changes_of_answers(self, commands: Sequence[c.Command], done: Done, now_ms: int) -> Changes:
        """What plain answers write: those of a batch that reads nothing."""
        txn: Any = plain.NothingToRead(now_ms)
        maker = IdMaker(self.ids, txn, self.shard_info.slots)
        changes = self._transact(txn, maker, commands, done, claims=False, trust=True)
        if changes.dues or changes.forgotten or maker.rows:
            raise plain.NeedsRead
        if changes.rows and any(table != STEPS for table, _ in changes.rows):
            raise plain.NeedsRead
        return changes

    def _lease(self, command: c.Claim, done: Done) -> bool:
        """Run a plain claim; False: it needs a batch, or has found nothing."""
        now_ms, held = self.store.now_ms(), self.ids.held
        published = self._known.fresh(now_ms)
        if held is None or published is None or now_ms > held.lease.until_ms - RENEW_MS:
            return False
        if not self._upkept_ms <= now_ms < self.next_upkeep_ms or now_ms < self._leases_from_ms:
            return False
        if command.taken_bytes or (command.handled and not command.picks):
            return False
        query = plain.query_of(command, owner=command.owner or held.number, now_ms=now_ms)
        leased: list[Leased] = []
        sent_s = monotonic_s()
        try:
            if not self.store.lease(query, leased) or not leased:
                return False
        finally:
            # Also after an interrupt.
            done.replies = [plain.reply_of(leased, query)]
        took_s = monotonic_s() - sent_s
        is_late = took_s > bounds.LATE_S and took_s * 2_000 > query.lease_ms
        if is_late or not plain.are_plain(leased, published):
            # Rare, and probably so for the next jobs too.
            self._leases_from_ms = now_ms + FRESH_MS
            self._run_batch(plain.releases(done.replies[0]), Done())
            done.reset()
            return False
        if any([one.job.steps for one in done.replies[0]]):  # noqa: C419 - a call for each less
            done.replies = [self._with_steps(done.replies[0])]
        done.now_ms = now_ms
        return True

    def _with_steps(self, claimed: list[c.Claimed]) -> list[c.Claimed]:
        """Claimed jobs with their steps, which do not change under the claim."""
        from .batch.notes import with_steps

        try:
            return self.store.read(lambda txn: with_steps(txn.rows, claimed))
        except StoreError:
            # They are claimed, and their runs can ask for them.
            return claimed

    def _run_batch(self, commands: Sequence[c.Command], done: Done) -> None:
        """Run commands as one transaction that reads what they need."""
        attempts, maker, claims = 0, None, False
        are_adds = self._retention_wanted is None and plain.are_adds(commands)
        if not are_adds:
            # Not while other writers wait.
            _import(BATCHES)
        for command in commands:
            claims = claims or type(command) in CLAIMING

        def fn(txn: Txn) -> tuple[Changes, None]:
            nonlocal attempts, maker
            if (notice := txn.notice()) is not None:
                check_open(notice, writes=True)
            if attempts:
                done.reset()
            attempts += 1
            maker = IdMaker(self.ids, txn, self.shard_info.slots)
            if are_adds and attempts == 1 and (changes := self._changes_of_adds(maker, commands, done, txn)):
                return changes, None
            # The records that holders send are trusted once: the swap fails if they are out of date.
            return self._transact(txn, maker, commands, done, claims=claims, trust=attempts == 1), None

        out_of: OutOfNumbers | None = None
        stop: StopPeriod | None = None
        while True:
            try:
                if out_of is not None:
                    self.ids.lease_apart(self.store, out_of.held)
                self.store.run(fn)
                break
            except OutOfNumbers as error:
                out_of = error
            except Stopped as error:
                stop = stop or StopPeriod()
                stop.sleep(error)
        assert maker is not None
        if maker.rows:
            self.ids.adopt(maker)
        self._committed(done)

    def _changes_of_adds(
        self, maker: IdMaker, commands: Sequence[c.Command], done: Done, txn: Txn
    ) -> Changes | None:
        """What plain adds write, with the lease of the sysid if that is taken or renewed; else None."""
        maker.owner()
        made = plain.changes_of_adds(commands, self.ids, maker.held, self.shard_info.slots, txn.now_ms)
        if made is None:
            return None
        changes, done.replies = made
        done.now_ms, done.woke, done.added = txn.now_ms, True, changes.added
        return replace(changes, rows=maker.rows)

    def claim_hint(self, commands: Sequence[c.Command]) -> "ClaimHint":
        """Read whether waiting claims may find a job; see `read_claim_hint`."""
        _import(BATCHES)
        from .upkeep import read_claim_hint

        found = self.read(lambda txn: read_claim_hint(txn, commands), hint=True)
        if found.is_upkeep_due:
            self.next_upkeep_ms = 0
        elif found.upkeep_ms is not None:
            self.next_upkeep_ms = min(self.next_upkeep_ms, found.upkeep_ms)
        return found

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, which the caller commits or rolls back."""
        _import(BATCHES)
        from .commands.adding import can_schedule, check_shard, insert_scheduled

        def fn(txn: Txn) -> tuple[Changes, Any]:
            check_open(txn.notice(), writes=True)
            if isinstance(command, c.Add):
                check_shard(command, self.shard_info)
            maker = IdMaker(self.ids, txn, self.shard_info.slots)
            if isinstance(command, c.Add) and can_schedule(command):
                changes, reply = insert_scheduled(txn, maker, command)
            else:
                done = Done()
                changes = self._transact(txn, maker, [command], done, claims=False, trust=False)
                reply = done.replies[0]
            if maker.held != self.ids.held:
                # Valid only after the caller's commit.
                self.ids.tentative = maker.held
            return changes, reply

        count = command.count if isinstance(command, c.Add) else 1
        if self.store.capabilities.ids_apart and self.ids.is_low(count, self.store.now_ms()):
            # Taken inside the caller's transaction, the number would be locked until that ends. It is
            # taken there only where the caller has the store's only lock.
            self.ids.lease_apart(self.store, self.ids.held)
        while True:
            try:
                reply = self.store.borrow(connection, fn)
                break
            except OutOfNumbers as error:
                self.ids.lease_apart(self.store, error.held)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        """Release the sysid and close the store; with several shards `ShardedEngine` does so."""
        if not self.shard_info.is_only_store:
            return
        try:
            self.ids.give_back(self.store)
        except StoreError:
            # The store has moved or is down: the number is free again when its lease expires.
            pass
        finally:
            self.store.close()

    def _transact(
        self,
        txn: Txn,
        maker: IdMaker,
        commands: Sequence[c.Command],
        done: Done,
        *,
        claims: bool,
        trust: bool,
    ) -> Changes:
        _import(BATCHES)
        from .transaction import claim_all, decide, fill, next_due_ms, preload

        batch = self._make_batch(txn, maker, trust=trust)
        if self._retention_wanted is not None:
            batch.set_retention(self._retention(batch))
        preload(batch, commands, trust=trust)
        replies = decide(batch, commands, trust=trust)
        if claims:
            # After the commands: an answer that came in time is not late because of a claim.
            done.next_upkeep_ms = self._upkeep(batch, commands, done)
            claim_all(batch, commands, replies)
        if batch.failed:
            from .commands.verbs import follow_failures

            follow_failures(batch)
        if batch.touched or batch.known_domains is not None:
            batch.settle()
        changes = batch.finish(more=done.next_upkeep_ms == 0)
        done.added = (*batch.flushed_new, *changes.added) if batch.flushed_new else changes.added
        if claims:
            done.next_ms = next_ms = next_due_ms(batch, changes, done.next_upkeep_ms)
            pairs = zip(commands, replies, strict=True)
            replies = [next_ms if type(command) is c.Upkeep else reply for command, reply in pairs]
        if batch.wants_upkeep:
            done.next_upkeep_ms = 0
        fill(done, batch, replies)
        return changes

    def _make_batch(self, txn: Txn, maker: IdMaker, *, trust: bool) -> "Batch":
        from .batch.batch import Batch

        return Batch(
            txn=txn,
            now_ms=txn.now_ms,
            ids=maker,
            rng=self._rng,
            known=self._known,
            read_retention=self._retention,
            shard_info=self.shard_info,
            trusts=trust,
        )

    def _upkeep(self, batch: "Batch", commands: Sequence[c.Command], done: Done) -> int:
        from . import upkeep

        upkeep.promote(batch)
        back = batch.now_ms < self._upkept_ms
        if back:
            upkeep.clock_went_back(batch)
        due = back or batch.now_ms >= self.next_upkeep_ms
        next_ms = self.next_upkeep_ms
        if due or c.Upkeep in [type(command) for command in commands]:
            next_ms, done.upkept_ms = upkeep.rest(batch), batch.now_ms
        batch.keep()
        return next_ms

    def _retention(self, batch: "Batch") -> int:
        """How long the archive keeps jobs: the last value that any process has set."""
        known = self._retention_ms if self._retention_wanted is None else None
        if known is not None and self._is_fresh(batch.now_ms):
            return known
        from .commands.governing import get_retention, put_retention

        stored = get_retention(batch.txn)
        wanted = stored if self._retention_wanted is None else self._retention_wanted
        if wanted != stored:
            put_retention(batch, wanted)
        return wanted

    def _is_fresh(self, now_ms: int) -> bool:
        """Whether the retention was read recently."""
        return abs(now_ms - self._retention_seen_ms) < bounds.UPKEEP_PERIOD_MS

    def _committed(self, done: Done) -> None:
        """Update the engine's caches after a commit."""
        if done.added and joblog.LOG.isEnabledFor(joblog.ADDED):
            joblog.added(done.added)
        if done.unreported:
            joblog.unreported(done.unreported, now_ms=done.now_ms)
        if done.retention_ms is not None:
            if self._retention_ms is None or not self._is_fresh(done.now_ms):
                self._retention_seen_ms = done.now_ms
            self._retention_ms, self._retention_wanted = done.retention_ms, None
        if done.published:
            self._known.forget()
        if done.upkept_ms is not None:
            self._upkept_ms = done.upkept_ms
        if done.next_upkeep_ms is not None:
            self.next_upkeep_ms = done.next_upkeep_ms
        soon_ms = done.now_ms + bounds.UPKEEP_PERIOD_MS
        if (done.woke or done.ended) and self.next_upkeep_ms > soon_ms:
            # While jobs come and go there is more to clean up.
            self.next_upkeep_ms = soon_ms
