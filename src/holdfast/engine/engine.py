"""The engine: a batch of commands becomes one transaction and a list of replies.

    load what the batch touches ─▶ let the rules decide each command ─▶ claims ─▶ Changes ─▶ commit ─▶ replies

A command that breaks a rule fails alone. A reply means *durably committed*. Claims come last, after upkeep
has promoted due jobs; a write before the last one is needed where a claim or a limited domain must see it.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ..core import commands as c
from ..core import kinds, rank
from ..core.defaults import Defaults
from ..core.errors import Conflict, HoldfastError, Stopped, StoreError
from ..core.handler import Handler
from ..core.indexed import LogMark, Mark
from ..core.job import Job, Place
from ..core.kinds import DOMAIN
from ..core.layout import ROW_RECORDS
from ..core.limits import Domain, Limit
from ..core.moving import check_open
from ..core.notes import JobLog, StepResult
from ..core.queries import Query
from ..core.token import Token
from ..core.unique import Unique
from ..core.worker import Worker
from ..store.common.clock import monotonic_s
from ..store.common.pointers import Pointer
from ..store.contract import Changes, Leased, ReadTxn, Store, Txn
from . import joblog, plain, upkeep
from .batch.batch import Batch
from .batch.task_defaults import FRESH_MS, KnownDefaults
from .claim_hint import ClaimHint, read_claim_hint
from .commands.adding import insert_scheduled, is_free
from .commands.chores import Chore
from .commands.claims import claim
from .commands.governing import get_retention, put_retention
from .commands.handlers import HandlerHead
from .commands.outbox import OutboxMessage
from .commands.requests import RequestNote
from .commands.schedules import Kept
from .commands.verbs import VERBS, JobRef
from .done import Done
from .queries import QUERIES, STORE_QUERIES
from .records import Patterns
from .shard_info import UNSHARDED, ShardInfo
from .sysid import RENEW_MS, IdMaker, IdSource, OutOfNumbers, StopPeriod, Sysid

if TYPE_CHECKING:
    from .metrics import CommitMeter

T = TypeVar("T")
CLAIMING = (c.Claim, c.Upkeep)
# Of the rows of these tables, a process of an older version keeps the fields that it does not know.
ROW_RECORDS.update(
    {
        kinds.UNIQUE: Unique,
        kinds.DOMAIN: Domain,
        kinds.LIMIT: Limit,
        kinds.PATTERNS: Patterns,
        kinds.SCHEDULE: Kept,
        kinds.SYSID: Sysid,
        kinds.WORKER: Worker,
        kinds.TOKEN: Token,
        kinds.REQUEST: RequestNote,
        kinds.TASK: Defaults,
        kinds.HANDLER: HandlerHead,
        kinds.HANDLER_VERSION: Handler,
        kinds.STEPS: StepResult,
        kinds.JOB_LOG: JobLog,
        kinds.CHORE: Chore,
        kinds.PROGRESS: Mark,
        kinds.LOG: LogMark,
        kinds.POINTER: Pointer,
        kinds.OUTBOX: OutboxMessage,
    }
)


class Engine:
    """Turns commands into transactions on one store."""

    def __init__(
        self,
        store: Store,
        *,
        retention_ms: int | None = None,
        rng: Callable[[], float],
        shard_info: ShardInfo = UNSHARDED,
        ids: IdSource | None = None,
    ) -> None:
        self.store = store
        self._sends_blind = store.capabilities.sends_blind
        self.shard_info = shard_info
        self.ids = ids or IdSource()
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
            made = plain.changes_of_adds(commands, self.ids, self.shard_info.slots, now_ms)
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
        if changes.rows or changes.dues or changes.forgotten or maker.rows:
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
        try:
            if not self.store.lease(query, leased) or not leased:
                return False
        finally:
            # Also after an interrupt.
            done.replies = [plain.reply_of(leased, query)]
        if not plain.are_plain(leased, published):
            # Rare, and probably so for the next jobs too.
            self._leases_from_ms = now_ms + FRESH_MS
            releases = plain.releases(done.replies[0])
            done.reset()
            self._run_batch(releases, Done())
            return False
        done.now_ms = now_ms
        return True

    def _run_batch(self, commands: Sequence[c.Command], done: Done) -> None:
        """Run commands as one transaction that reads what they need."""
        attempts, maker, claims = 0, None, False
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
            # The records that holders send are trusted once: the swap fails if they are out of date.
            return self._transact(txn, maker, commands, done, claims=claims, trust=attempts == 1), None

        blind = self._sends_blind and not claims and self._is_blind(commands)
        out_of: OutOfNumbers | None = None
        stop: StopPeriod | None = None
        while True:
            try:
                if out_of is not None:
                    self.ids.lease_apart(self.store, out_of.held)
                self.store.run(fn, blind=blind)
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

    def _is_blind(self, commands: Sequence[c.Command]) -> bool:
        """Whether a batch most likely needs no read."""
        if self.ids.held is None or self._retention_wanted is not None:
            return False
        ends = False
        for command in commands:
            if type(command) is c.Add:
                if command.hold is not None:
                    return False
                for new in command.jobs:
                    if not is_free(new):
                        return False
            elif _brings_records(command):
                ends = True
                for job in command.held if type(command) is c.AnswerAll else (command.held,):  # type: ignore[attr-defined]
                    if job.unique is not None or job.domain is not None or job.parent_id or job.then:
                        # Its key, its domain or its family is read, and its follow-up job may have these.
                        return False
            else:
                return False
        # A job that ends is archived if the retention says so.
        return not ends or (self._retention_ms is not None and self._is_fresh(self.store.now_ms()))

    def claim_hint(self, commands: Sequence[c.Command]) -> ClaimHint:
        """Read whether waiting claims may find a job; see `read_claim_hint`."""
        found = self.read(lambda txn: read_claim_hint(txn, commands, self.shard_info), hint=True)
        if found.is_upkeep_due:
            self.next_upkeep_ms = 0
        elif found.upkeep_ms is not None:
            self.next_upkeep_ms = min(self.next_upkeep_ms, found.upkeep_ms)
        return found

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, which the caller commits or rolls back."""

        def fn(txn: Txn) -> tuple[Changes, Any]:
            check_open(txn.notice(), writes=True)
            maker = IdMaker(self.ids, txn, self.shard_info.slots)
            if isinstance(command, c.Add):
                changes, reply = insert_scheduled(txn, maker, command, self.shard_info)
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

    async def execute_in_async(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's asyncio transaction, if the store supports that."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

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
        if (ask := STORE_QUERIES.get(type(query))) is not None:
            return ask(self.store)
        execute = QUERIES[type(query)]
        return self.read(lambda txn: execute(txn, query))

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
        batch = Batch(
            txn=txn,
            now_ms=txn.now_ms,
            ids=maker,
            rng=self._rng,
            known=self._known,
            read_retention=self._retention,
            shard_info=self.shard_info,
            trusts=trust,
        )
        if self._retention_wanted is not None:
            batch.set_retention(self._retention(batch))
        _preload(batch, commands, trust=trust)
        replies = decide(batch, commands, trust=trust)
        if claims:
            # After the commands: an answer that came in time is not late because of a claim.
            done.next_upkeep_ms = self._upkeep(batch, commands, done)
            _claim(batch, commands, replies)
        if batch.touched or batch.known_domains is not None:
            batch.settle()
        changes = batch.finish(more=done.next_upkeep_ms == 0)
        done.added = (*batch.flushed_new, *changes.added) if batch.flushed_new else changes.added
        if claims:
            done.next_ms = next_ms = _next_ms(batch, changes, done.next_upkeep_ms)
            pairs = zip(commands, replies, strict=True)
            replies = [next_ms if type(command) is c.Upkeep else reply for command, reply in pairs]
        if batch.wants_upkeep:
            done.next_upkeep_ms = 0
        _fill(done, batch, replies)
        return changes

    def _upkeep(self, batch: Batch, commands: Sequence[c.Command], done: Done) -> int:
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

    def _retention(self, batch: Batch) -> int:
        """How long the archive keeps jobs: the last value that any process has set."""
        known = self._retention_ms if self._retention_wanted is None else None
        if known is not None and self._is_fresh(batch.now_ms):
            return known
        stored = get_retention(batch.txn)
        wanted = stored if self._retention_wanted is None else self._retention_wanted
        if wanted != stored:
            put_retention(batch, wanted)
        return wanted

    def _is_fresh(self, now_ms: int) -> bool:
        """Whether the retention was read recently."""
        return abs(now_ms - self._retention_seen_ms) < upkeep.PERIOD_MS

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
        soon_ms = done.now_ms + upkeep.PERIOD_MS
        if (done.woke or done.ended or done.outbox) and self.next_upkeep_ms > soon_ms:
            # While jobs come and go there is more to clean up.
            self.next_upkeep_ms = soon_ms


def decide(batch: Batch, commands: Sequence[c.Command], *, trust: bool) -> list[Any]:
    """The replies of the verbs, in order; None for claims, which come later.

    `trust`: the records that holders send are taken for current.
    """
    replies: list[Any] = [None] * len(commands)
    new_jobs, undo = batch.new_jobs, batch.undo
    for at, command in enumerate(commands):
        if type(command) is c.AnswerAll:
            # Each answer by itself, as if it were a command.
            replies[at] = decide(batch, command.answers, trust=trust)
            batch.parts.append(replies[at])
            continue
        verb = VERBS[type(command)]
        if verb is None:
            continue
        try:
            replies[at] = verb(batch, command)
        except Conflict:
            raise
        except HoldfastError as error:
            if trust and isinstance(command, c.Answer):
                # The record may be out of date.
                raise Conflict("read again") from None
            batch.drop()
            replies[at] = error
        # What it has left, after an error nothing, stays: `batch.keep`, inlined to save a call.
        new_jobs.kept = new_jobs.size
        if undo:
            undo.clear()
    return replies


def _brings_records(command: c.Command) -> bool:
    """Whether a command brings the records of the jobs that it answers."""
    return type(command) in (c.Answer, c.AnswerAll) and bool(command.held)  # type: ignore[attr-defined]


def _preload(batch: Batch, commands: Sequence[c.Command], *, trust: bool) -> None:
    """Load the jobs that the batch needs in one read."""
    wanted: set[int] = set()
    brought: dict[int, Job] = {}
    for command in commands:
        kind = type(command)
        if kind is c.Answer:
            held = command.held  # type: ignore[attr-defined]
            if trust and held is not None and not held.parent_id:
                brought[held.id] = held
            else:
                wanted.add(command.hold.job_id)  # type: ignore[attr-defined]
        elif kind is c.AnswerAll:
            own = [held for held in command.held if trust and not held.parent_id]  # type: ignore[attr-defined]
            brought |= {held.id: held for held in own}
            if len(own) < len(command.answers):  # type: ignore[attr-defined]
                wanted |= {one.hold.job_id for one in command.answers} - brought.keys()  # type: ignore[attr-defined]
        elif kind is c.Add:
            for new in command.jobs:  # type: ignore[attr-defined]
                if new.parent_id:
                    wanted.add(new.parent_id)
        elif hold := getattr(command, "hold", None):
            wanted.add(hold.job_id)
        elif job_id := getattr(command, "job_id", 0):
            wanted.add(job_id)
    if brought:
        batch.bring_all(brought)
    if wanted:
        batch.load(wanted)


def _claim(batch: Batch, commands: Sequence[c.Command], replies: list[Any]) -> None:
    """Reply to all claims. Hundreds may wait for the same: once one got nothing, none after it will."""
    without_jobs: set[c.Claim] = set()
    for at, command in enumerate(commands):
        if isinstance(command, c.Claim):
            # What another claim has put back, or its domain's spent allowance, counts for this one.
            batch.settle()
            batch.flush()
            is_known_empty = bool(without_jobs) and _wanted(command) in without_jobs
            replies[at] = [] if is_known_empty else claim(batch, command)
            if not replies[at]:
                without_jobs.add(_wanted(command))


def _wanted(command: c.Claim) -> c.Claim:
    """A claim without what does not decide whether a job is found."""
    return replace(command, limit=1, lease_ms=None, owner=0)


def _next_ms(batch: Batch, changes: Changes, next_upkeep_ms: int | None) -> int | None:
    """When something next becomes true by itself: by what is stored, and by what is about to be."""
    moments = [batch.txn.moments().first, next_upkeep_ms]
    moments += [due_ms for (table, _), due_ms in changes.dues.items() if table == DOMAIN]
    for job in (*changes.swapped, *(new.template for new in changes.added)):
        if job.place in (Place.SCHEDULED, Place.RUNNING) and job.rank < rank.LAST:
            moments.append(job.rank)
        if job.expires_at and job.place is not Place.RUNNING:
            moments.append(job.expires_at)
    return min([moment for moment in moments if moment is not None], default=None)


def _fill(done: Done, batch: Batch, replies: list[Any]) -> None:
    """Note what a transaction leaves. A reply that is a `JobRef` is the job as the transaction leaves it."""
    jobs, finals = batch.jobs, batch.finals
    for some in (replies, *batch.parts) if jobs else ():
        for at, reply in enumerate(some):
            if type(reply) is JobRef:
                job = jobs[reply] if reply in jobs else None  # noqa: SIM401 - a call less
                some[at] = finals[reply] if job is None and reply in finals else job
            elif finals and type(reply) is list and reply and type(reply[0]) is c.Claimed:
                # What the rules changed in a leased job is written after it was replied, with a version more.
                some[at] = [replace(one, job=jobs.get(one.job.id) or one.job) for one in reply]
    done.replies, done.now_ms, done.retention_ms = replies, batch.now_ms, batch.known_retention_ms
    done.woke, done.ended, done.news = batch.woke, batch.ended, batch.news
    done.outbox, done.published, done.unreported = batch.outbox, batch.published, batch.unreported
    if batch.shard_info is not UNSHARDED:
        done.freed = batch.freed
