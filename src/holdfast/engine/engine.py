"""The engine: a batch of commands becomes one transaction and a list of replies.

    load what the batch touches ─▶ let the rules decide each command ─▶ write once ─▶ claims ─▶ reply

A command that breaks a rule fails alone. A reply means *durably committed*. Claims come last, after
upkeep has let what is due be so.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import sleep
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core import checks
from ..core import commands as c
from ..core.bounds import DEFAULT_RETENTION_MS
from ..core.errors import BadInput, Moved, Stopped
from ..core.moving import check_open
from ..store.common.clock import monotonic_s
from ..store.common.gifts import (
    ADDS,
    CLAIMS,
    ENDS,
    Run,
    Sought,
    has_told,
    lender_of,
    lends_apart,
    may_end,
    peek,
    quick_run_of,
    seek_run_of,
    sight_of,
)
from ..store.contract import ReadTxn, Store, Txn
from . import joblog, upkeep
from .batch.batch import Batch
from .batch.task_defaults import KnownDefaults
from .commands.claims import claim, query_of
from .commands.deciding import decided
from .commands.ending import plain_ends
from .commands.joining import insert_scheduled
from .commands.plain import add_plain, plain
from .commands.verbs import Ref
from .done import Done
from .prospects import Prospects, prospects
from .records import SETTING
from .site import ALONE, Site
from .sysid import IdMaker, IdSource, OutOfNumbers

T = TypeVar("T")
RETENTION = "retention_ms"
# How long a batch waits for a store that stands still because it is being moved, and looks how often.
STOPPED_S, STOPPED_NAP_S = 30.0, 0.05


class Engine:
    """Turns commands into transactions on one store."""

    def __init__(
        self,
        store: Store,
        *,
        retention_ms: int | None = None,
        dice: Callable[[], float],
        site: Site = ALONE,
        ids: IdSource | None = None,
    ) -> None:
        self.store = store
        self.site = site
        self.ids = ids or IdSource()
        self._dice = dice
        self._retention_wanted = retention_ms
        self._retention_ms: int | None = None
        # When that was last looked up: whoever only adds has no upkeep to go by.
        self._retention_seen_ms = 0
        self._known = KnownDefaults()
        # When the rest of upkeep is due, at first use at once, and when it was last done.
        self.next_upkeep_ms = self._upkept_ms = 0

    def execute(self, commands: Sequence[c.Command]) -> Done:
        """Run commands as one transaction; what a command raised is its reply."""
        return self.execute_by(commands, None)

    def execute_by(self, commands: Sequence[c.Command], by: Run[Done] | None) -> Done:
        """The same by one of the store's ways; None: by the best for what they are."""
        attempts = 0
        maker: IdMaker | None = None

        def fn(txn: Txn) -> Done:
            nonlocal attempts, maker
            if by is not None and (sight := sight_of(txn)) is not None:
                check_open(txn.notice(), writes=False)
                found = self._hoped(sight, commands)
                if not found.any and may_end(txn):
                    maker = self.ids.begin(txn)
                    return self._hopeless(found, txn.now_ms)
            check_open(txn.notice(), writes=True)
            attempts += 1
            maker = self.ids.begin(txn, self.site.slots)
            if adds is not None:
                return _telling(txn, _add_plain(txn, maker, adds))
            # What a holder says it has is believed once: a swap refuses it if it is not so.
            return _telling(txn, self._transact(txn, maker, commands, ends if attempts == 1 else None))

        adds = plain(commands) if self._retention_wanted is None else None
        ends = plain_ends(commands) if adds is None else {}
        runner = by or self._runner(commands, adds, ends)
        done = self._numbered(lambda: self._run(fn, runner))
        assert maker is not None
        self._committed(done, maker)
        return done

    def _runner(
        self, commands: Sequence[c.Command], adds: Sequence[c.Add] | None, ends: dict[int, c.Answer]
    ) -> Run[Done]:
        """What runs a batch: a store may have a quicker way for its sort."""
        claims = any(isinstance(command, c.Claim | c.Upkeep) for command in commands)
        sort = CLAIMS if claims else ENDS if adds is None else ADDS
        quick: Run[Done] | None = quick_run_of(self.store, sort)
        if quick is None or not (claims or self._is_blind(adds, only_ends=len(ends) == len(commands))):
            return self.store.run
        return quick

    def _is_blind(self, adds: Sequence[c.Add] | None, *, only_ends: bool) -> bool:
        """Whether a batch most likely reads nothing."""
        if self.ids.held is None:
            return False
        if adds is not None:
            return self.ids.reaches(sum(command.count for command in adds), self.store.now_ms())
        # One that finds its retention out of date looks it up, and so is done again.
        known = self._retention_wanted is None and bool(self._retention_ms)
        return known and only_ends

    def seeker(self, command: c.Command) -> Run[Done] | None:
        """What runs the claim of one who waits, and was woken, so that it needs no look before.

        Where there is nothing for him it ends as a look does. None: there is no such way, or not for this.
        """
        if not isinstance(command, c.Claim) or not (owner := command.owner or self.ids.number):
            return None
        if command.glob or command.priority is not None or command.mock or command.picks:
            return None
        if command.tenant is not None and command.tenants is not None:
            return None
        return seek_run_of(
            self.store, Sought(query_of(command, owner=owner, now_ms=0), command.lease_ms or 0)
        )

    def hopes(self, commands: Sequence[c.Command]) -> Prospects:
        """What there is for claims that wait, by a look beside whoever writes."""
        return self.peek(lambda txn: self._hoped(txn, commands))

    def _hoped(self, txn: ReadTxn, commands: Sequence[c.Command]) -> Prospects:
        found = prospects(txn, commands, self.site)
        if found.rest:
            self.next_upkeep_ms = 0
        elif found.rest_ms is not None:
            self.next_upkeep_ms = min(self.next_upkeep_ms, found.rest_ms)
        return found

    def _hopeless(self, found: Prospects, now_ms: int) -> Done:
        """What becomes of a claim for which there is nothing."""
        done = Done()
        done.replies = [[]]
        done.now_ms, done.next_ms = now_ms, found.next_ms or self.next_upkeep_ms
        return done

    def _numbered(self, run: Callable[[], T]) -> T:
        """Run a transaction, again where it needs a number that is not lent in it."""
        while True:
            try:
                return run()
            except OutOfNumbers as error:
                self.ids.ahead(self.store, error.held)

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, which he commits or rolls back."""

        def fn(txn: Txn) -> Any:
            check_open(txn.notice(), writes=True)
            maker = self.ids.begin(txn, self.site.slots)
            if isinstance(command, c.Add):
                reply: Any = insert_scheduled(txn, maker, command, self.site)
            else:
                reply = self._transact(txn, maker, [command], None).replies[0]
            if maker.held != self.ids.held:
                # Only the caller's commit makes it ours.
                self.ids.tentative = maker.held
            return reply

        count = command.count if isinstance(command, c.Add) else 1
        if lends_apart(self.store) and self.ids.is_low(count, self.store.now_ms()):
            # Taken inside the caller's transaction the number would be locked for as long as that lasts;
            # where he has the only lock that there is, it must be.
            self.ids.ahead(self.store, self.ids.held)
        reply = self._numbered(lambda: self.store.borrow(connection, fn))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def execute_in_async(self, connection: Any, command: c.Command) -> Any:
        """The same on a connection of asyncio's kind, where the store knows such."""
        lend = lender_of(self.store)
        if lend is None:
            needed = (
                "absent: only PostgreSQL has connections to await; others go to a queue of holdfast.connect"
            )
            raise BadInput("connection", f"a {type(connection).__name__}", needed=needed)
        link = await lend(connection)
        work = asyncio.create_task(asyncio.to_thread(self.execute_in, link, command))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The connection is the caller's again only when nobody else speaks on it.
            await asyncio.wait([work])
            work.exception()
            raise

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Look at the store, beside writers."""
        return self.store.read(_open_to(fn))

    def peek(self, fn: Callable[[ReadTxn], T]) -> T:
        """The same for a hint: not all that is seen need be of the same moment."""
        return peek(self.store, _open_to(fn))

    def _run(self, fn: Callable[[Txn], T], run: Callable[[Callable[[Txn], T]], T] | None = None) -> T:
        """Run a batch; a store that stands still is waited for."""
        until_s = monotonic_s() + STOPPED_S
        while True:
            try:
                return (run or self.store.run)(fn)
            except Stopped:
                if monotonic_s() >= until_s:
                    raise
            sleep(STOPPED_NAP_S)

    def close(self) -> None:
        """Give the sysid back and let go of the store; of several shards, whoever has them all does so."""
        if not self.site.is_alone:
            return
        try:
            self.ids.give_back(self.store)
        except (Moved, Stopped):
            # The number is in the other store too, and free there when its lease has run out.
            pass
        finally:
            self.store.close()

    def _transact(
        self, txn: Txn, maker: IdMaker, commands: Sequence[c.Command], ends: dict[int, c.Answer] | None
    ) -> Done:
        done = Done()
        done.now_ms = txn.now_ms

        def retention() -> int:
            done.retention_ms = self._retention(txn)
            return done.retention_ms

        batch = Batch(txn, maker, site=self.site, retention=retention, dice=self._dice, known=self._known)
        if self._retention_wanted is not None:
            retention()
        if added := sum(command.count for command in commands if isinstance(command, c.Add)):
            maker.expect(added)
        replies = decided(batch, commands, ends)
        claims = any(isinstance(command, c.Claim | c.Upkeep) for command in commands)
        if claims:
            # After the commands: who answers in time is not late because others claim.
            done.next_upkeep_ms = self._upkeep(batch, commands, done)
        _settled(batch)
        replies |= _claimed(batch, commands)
        if claims:
            _settled(batch)
        batch.finish()
        if claims:
            # Not before the domains are written, which have moments too.
            done.next_ms = _next_ms(txn, done.next_upkeep_ms)
        if batch.wants_upkeep:
            done.next_upkeep_ms = 0
        done.replies = [_reply(batch, replies.get(at)) for at in range(len(commands))]
        for at, command in enumerate(commands):
            if isinstance(command, c.Upkeep):
                done.replies[at] = done.next_ms
        done.woke, done.ended, done.news = batch.woke, batch.ended, batch.news
        done.letters, done.freed = batch.letters, batch.holders.freed
        done.unreported, done.published = batch.unreported, batch.published
        return done

    def _upkeep(self, batch: Batch, commands: Sequence[c.Command], done: Done) -> int:
        upkeep.promote(batch)
        # What is past stays so, unless the clock was set back.
        back = batch.now_ms < self._upkept_ms
        if back:
            upkeep.clock_went_back(batch)
        due = back or batch.now_ms >= self.next_upkeep_ms
        next_ms = self.next_upkeep_ms
        if due or any(isinstance(x, c.Upkeep) for x in commands):
            next_ms, done.upkept_ms = upkeep.rest(batch), batch.now_ms
        batch.keep()
        return next_ms

    def _retention(self, txn: Txn) -> int:
        """How long the archive keeps jobs: what was said last, by anybody, holds for all."""
        known = self._retention_ms if self._retention_wanted is None else None
        if known is not None and self._is_fresh(txn.now_ms):
            return known
        raw = txn.records(SETTING, [RETENTION]).get(RETENTION)
        stored = int(raw) if raw else DEFAULT_RETENTION_MS
        wanted = self._retention_wanted
        if wanted is None or wanted == stored:
            return stored
        txn.put_records(SETTING, {RETENTION: str(wanted).encode()})
        return wanted

    def _is_fresh(self, now_ms: int) -> bool:
        """Whether the retention was looked up not long ago."""
        return abs(now_ms - self._retention_seen_ms) < upkeep.PERIOD_MS

    def _committed(self, done: Done, maker: IdMaker) -> None:
        """What a transaction decided for this engine holds only now."""
        self.ids.adopt(maker)
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
        if done.woke or done.ended or done.letters:
            # While jobs come and go there is more to tidy away.
            self.next_upkeep_ms = min(self.next_upkeep_ms, done.now_ms + upkeep.PERIOD_MS)
        if done.is_news and not done.told:
            self.store.notify(ends=not done.brings)


def _open_to(fn: Callable[[ReadTxn], T]) -> Callable[[ReadTxn], T]:
    def look(txn: ReadTxn) -> T:
        check_open(txn.notice(), writes=False)
        return fn(txn)

    return look


def _telling(txn: Txn, done: Done) -> Done:
    """Let the commit tell those who wait, where a store has it do so; else `notify` does."""
    done.told = done.is_news and has_told(txn, ends=not done.brings)
    return done


def _add_plain(txn: Txn, maker: IdMaker, commands: Sequence[c.Add]) -> Done:
    done = Done()
    done.now_ms = txn.now_ms
    done.replies = add_plain(txn, maker, commands)
    done.woke = any(isinstance(reply, list) and reply for reply in done.replies)
    return done


def _claimed(batch: Batch, commands: Sequence[c.Command]) -> dict[int, list[c.Claimed]]:
    """The replies to all claims. Hundreds may wait for the same: once one got nothing, none after it will."""
    replies: dict[int, list[c.Claimed]] = {}
    barren: set[c.Claim] = set()
    for at, command in enumerate(commands):
        if isinstance(command, c.Claim):
            wanted = replace(command, limit=1, lease_ms=None, owner=0)
            replies[at] = [] if wanted in barren else claim(batch, command)
            if not replies[at]:
                barren.add(wanted)
    return replies


def _next_ms(txn: Txn, next_upkeep_ms: int | None) -> int | None:
    first = txn.moments().first
    return min((moment for moment in (first, next_upkeep_ms) if moment is not None), default=None)


def check(command: c.Command) -> None:
    """Refuse bad input before it goes anywhere."""
    if isinstance(command, c.Add):
        checks.check_add(command)
    else:
        checks.check_command(command)


def _settled(batch: Batch) -> None:
    batch.flush()
    if batch.domains:
        batch.domains.settle()
        batch.keep()
        batch.flush()


def _reply(batch: Batch, reply: Any) -> Any:
    return batch.final(reply.job_id) if isinstance(reply, Ref) else reply
