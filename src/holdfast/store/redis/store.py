"""The Redis store: one server, Valkey, or a Redis Cluster.

    run      fn(RedisTxn) reads and decides ▶ one script checks all that was read, and writes all or nothing
             ▶ (durability=replicated: wait for the replicas); again after a conflict
    read     fn(RedisView), again if another batch was committed between its round trips

Nothing is locked: batches run concurrently, and after a conflict the later one is run again. How that works,
and what a crash between any two steps leaves, is in docs/decisions/0009.
"""

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import sleep
from typing import Any, TypeVar

from ...core.bounds import LATE_S
from ...core.damage import UNREADABLE
from ...core.errors import (
    BadInput,
    Closed,
    Conflict,
    Contended,
    HoldfastError,
    StoreError,
    Unsettled,
)
from ...core.job import Job
from ...core.layout import Layout, unreadable_newer
from ..common.clock import Clock, Time, monotonic_s
from ..common.lending import lend_nothing
from ..common.outage import RETRIED_IF_OPENED, Outages, RetryPeriod, Unreachable, unsettled
from ..common.records import beyond_repair
from ..contract import (
    TRIES,
    UNCHANGED,
    Capabilities,
    Changes,
    ClaimQuery,
    Leased,
    NewJobs,
    OneStore,
    ReadTxn,
    StoreReport,
    Txn,
    leased_all,
    only_add,
)
from .connection import COMMIT, SETTLE, Command, server_of
from .doctor import repair_records, report
from .errors import FAULTS, ReplyError, first_line, is_lost, translated
from .keys import (
    Keys,
    Pair,
    new_stamp,
    pair_of,
    written_at,
)
from .notify import RedisListener, RedisPresence
from .open import LAYOUT, ServerInfo, is_replicated, open_server, waiting_commands
from .plain import MOST_PAIRS, Adding, find_leased, is_single, lease_command, leased_of
from .reads import RedisHint, RedisView
from .rows import ClockBehind, KnownVersion, VersionChanged
from .txn import HeldJobs, RedisKeepingTxn, RedisTxn
from .url import parse

T = TypeVar("T")
# Calls a function on a batch or a view, or commits; the second argument: whether the time is the server's.
Attempt = Callable[[Any, bool], Any]

# How long a batch waits for a server that is down.
PATIENCE_S = 30.0
# The first and the longest random pause after a conflict, so that the same batches do not collide again.
CONFLICT_NAP_S, LONGEST_CONFLICT_NAP_S = 0.001, 0.02
# How often a view is started again because another batch was committed meanwhile; then it is used as it is.
VIEW_TRIES = 5
# What `_send` returns if the reply was lost, and the commit was executed.
DONE = b"DONE"
# What the scripts reply if the layout or the notice has changed.
VERSION = b"VERSION"
# What a lease replies that must name more pairs, and how often it is sent.
PAIRS = b"PAIRS"
LEASE_TRIES = 3
# If the oldest mark of a commit is not older than a lost commit by this, that commit may have had one.
MARK_SLACK_MS = 2_000
REPLICAS_MS = 10_000
# How many jobs that this process wrote are cached.
REMEMBERED = 10_000


class RedisStore(OneStore):
    """A store under one prefix of a Redis database; `url.Address` says what `durability` promises."""

    capabilities = Capabilities(answers_beside=True)

    def __init__(
        self,
        url: str,
        *,
        shard: int = 0,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        create: bool = True,
    ) -> None:
        self.address = parse(url)
        self._clock = clock
        self._patience_s = patience_s
        self._outages = Outages(self.address.shown)
        self._keys = Keys(self.address.prefix, shard)
        self._adding = Adding(self._keys)
        self._server = server_of(self.address, self._keys.base)
        self._listener = RedisListener(self._server, self._keys)
        self._presence = RedisPresence(self._server, self._keys)
        # Of the server; None: not read yet, or the server may have changed.
        self._info: ServerInfo | None = None
        self._create = create
        self._was_open = False
        self._closed = False
        self._time = Time(clock)
        self._held: HeldJobs = {}
        # The pairs with READY jobs, as last read, and those of added jobs; a few at most.
        self._pairs: dict[Pair, None] = {}
        # The layout and the notice, as last read.
        self._known = KnownVersion(b"")
        self._layout = Layout(0, 0)
        self._txn_type = RedisTxn
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RedisStore({self.address.shown!r})"

    def _open(self) -> ServerInfo:
        """Check the server, the first time and whenever it may have changed."""
        info = self._info
        if info is None:
            with self._lock:
                if self._closed:
                    raise Closed(f"the store {self.address.shown} was closed; open it again")
                how = {"create": self._create, "was_open": self._was_open}
                info, self._layout, self._known = open_server(self._server, self._keys, self.address, **how)
                self._txn_type = RedisKeepingTxn if self._layout.version > LAYOUT else RedisTxn
                self._time.note(info.now_ms)
                if not self._was_open:
                    self._listener.begin(info.mark)
                self._info, self._was_open = info, True
        return info

    # Batches

    def commit(self, changes: Changes) -> bool:
        """Write changes for which nothing was read, in one message; in two if a job is not cached."""
        done: bool = self._retry(self._commit_unread, changes)
        return done

    def _commit_unread(self, changes: Changes, _timed: bool) -> bool:
        if not self._is_open():
            return False
        try:
            if (group := only_add(changes)) is not None and is_single(group):
                self._add(group, changes)
                return True
            txn = self._txn_type(
                self._server, self._keys, self.now_ms(), self._known, held=self._held, timed=False
            )
            self._commit(txn, changes)
        except VersionChanged:
            raise
        except Conflict:
            return False
        return True

    def _is_open(self) -> bool:
        """Whether there is no notice, as far as is known; opens the store."""
        if self._info is None:
            self._open()
        if (
            self._known.notice is not None
            and self._server.call(b"GET", self._keys.version) != self._known.version
        ):
            # Perhaps it is gone.
            self._info = None
            self._open()
        if self._presence.names:
            self._presence.keep()
        return self._known.notice is None

    def _add(self, group: NewJobs, changes: Changes) -> None:
        """Add a READY job."""
        job, pairs = group.template, self._pairs
        stamp = new_stamp(job.created_at or self.now_ms())
        message = self._listener.messages[changes.wake]
        command = self._adding.command(group, changes.counts, self._known.version, message, stamp)
        self._check(self._send(command, stamp))
        if (job.tenant, job.task) not in pairs and len(pairs) <= MOST_PAIRS:
            pairs[job.tenant, job.task] = None

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Lease plain jobs in one message, if nothing else has to be decided."""
        until_s = monotonic_s() + LATE_S
        for _ in range(LEASE_TRIES):
            reply = self._retry(self._lease, (query, leased, until_s))
            if reply != PAIRS:
                return reply is not None
            self._pairs = self._retry(self._read_pairs, self._keys.pairs)
        return False

    def _lease(self, asked: tuple[ClaimQuery, list[Leased], float], _timed: bool) -> Any:
        query, leased, until_s = asked
        if not self._is_open() or self._layout.version > LAYOUT or monotonic_s() > until_s:
            return None
        stamp = new_stamp(query.now_ms)
        command = lease_command(self._keys, query, tuple(self._pairs), self._known.version, stamp)
        if command is None:
            return None

        def find(*_: Any) -> list[Leased]:
            return find_leased(self._server, self._keys, query, stamp)

        reply = b""
        try:
            reply = self._send(command, stamp)
            if reply == DONE:
                leased[:] = self._retry(find, None)
            elif reply not in (None, PAIRS, VERSION):
                leased[:] = leased_of(reply)
        except FAULTS:
            # It was not executed.
            raise
        except BaseException:
            if reply not in (None, PAIRS, VERSION):
                # It was interrupted, or the replicas do not have it.
                with suppress(*FAULTS):
                    self._server.call(*self._settling(stamp))
                    leased[:] = find()
            raise
        if reply == VERSION:
            raise VersionChanged
        if leased:
            self._remember(leased_all([job for job, _ in leased], query), stamp)
        return reply

    def _read_pairs(self, key: bytes, _timed: bool) -> dict[Pair, None]:
        return dict.fromkeys(map(pair_of, self._server.call(b"ZRANGE", key, 0, MOST_PAIRS)))

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Call `fn` as one atomic batch, with the durability asked for when this returns."""
        result: T = self._retry(self._attempt, fn)
        return result

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on a view, again if another batch is committed between its round trips."""
        result: T = self._retry(self._read_hint if hint else self._read_view, fn)
        return result

    def _retry(self, attempt: Attempt, fn: Any) -> Any:
        """Call until it succeeds or cannot succeed."""
        tries, timed = 0, self._clock is None
        patience: RetryPeriod | None = None
        damage: Exception | None = None
        is_repaired = False
        while True:
            try:
                if damage is not None and not is_repaired:
                    is_repaired = self._repair(damage)
                result = attempt(fn, timed)
                if patience is not None:
                    self._outages.log_recovery()
                return result
            except Conflict as error:
                tries, patience = tries + 1, patience or RetryPeriod(self._outages, self._patience_s)
                timed = self._note_conflict(error, timed)
                if tries >= TRIES or patience.is_over:
                    text = f"a batch was done {tries} times, and each time something had changed ({error})"
                    raise Contended(f"{self.address.shown}: {text}") from None
                sleep(random.uniform(0, min(CONFLICT_NAP_S * tries, LONGEST_CONFLICT_NAP_S)))
            except UNREADABLE as error:
                if is_repaired:
                    raise beyond_repair(self.address.shown, error) from error
                damage = error
            except (*FAULTS, Unreachable, *RETRIED_IF_OPENED) as error:
                patience = patience or RetryPeriod(self._outages, self._patience_s)
                self._await_server(error, patience)

    def _repair(self, damage: Exception) -> bool:
        """Repair unreadable records; `StoreCorrupt` if there are none."""
        if self._layout.version <= LAYOUT and repair_records(self._server, self._keys, self._known.layout):
            return True
        # A newer version may have written them: then opening the store raises the error, or this does.
        self._info = None
        self._open()
        if self._layout.version > LAYOUT:
            raise unreadable_newer(self.address.shown, self._layout, LAYOUT) from damage
        raise beyond_repair(self.address.shown, damage) from damage

    def _note_conflict(self, error: Conflict, timed: bool) -> bool:
        """Refresh the cached value that caused a conflict; return whether the server's time is used next."""
        if isinstance(error, VersionChanged):
            # The next try opens the store again, which reads both.
            self._info = None
        if isinstance(error, ClockBehind):
            return timed and self._time.caught_up(error.at_ms, self._ask_time)
        return timed

    def _await_server(self, error: Exception, patience: RetryPeriod) -> None:
        """Wait for a server that is down; raise an error that waiting does not resolve."""
        fault = error if isinstance(error, StoreError) else translated(error, self.address)
        is_known = self._was_open or self._server.is_found
        if self._closed or not (
            isinstance(fault, Unreachable) or (isinstance(fault, RETRIED_IF_OPENED) and is_known)
        ):
            raise fault from None
        self._drop()
        patience.sleep(fault)

    def _drop(self) -> None:
        """Close all connections and forget the server's state: it may have changed."""
        self._info = None
        self._server.drop()

    def _attempt(self, fn: Callable[[Any], Any], timed: bool) -> Any:
        if self._info is None:
            self._open()
        if self._presence.names:
            self._presence.keep()
        now_ms = self.now_ms()
        txn = self._txn_type(self._server, self._keys, now_ms, self._known, held=self._held, timed=timed)
        try:
            changes, result = self._call(fn, txn)
            self._commit(txn, changes)
        except BaseException as error:
            if isinstance(error, Conflict):
                for job_id in txn.seen.stamps:
                    self._held.pop(job_id, None)
            if txn.taken or txn.unanswered_ms:
                self._give_back(txn, error)
            raise
        return result

    def _call(self, fn: Callable[[Any], T], view: RedisTxn | RedisView) -> T:
        """The result of `fn`; before an error of `fn` is raised, the notice that it used is verified."""
        try:
            return fn(view)
        except HoldfastError:
            if not view.trips:
                view.begin()
            raise

    def _commit(self, txn: RedisTxn, changes: Changes) -> None:
        groups, stamp = txn.note_last(changes), new_stamp(txn.now_ms)
        plan = txn.plan(groups, stamp)
        words = (txn.known.version, *plan.words())
        if plan.writes:
            message = self._listener.messages[changes.wake]
            self._check(self._send(COMMIT.command(plan.keys, stamp, message, *words), stamp))
        elif txn.trips > 1 or txn.seen.jobs:
            # Check only: what was read must be consistent, and jobs unchanged.
            self._check(self._server.call(*COMMIT.command(plan.keys, b"", b"", *words)))
        elif not txn.trips:
            txn.begin()
        # Committed: taken jobs must not be put back.
        txn.taken.clear()
        if txn.ready_pairs is not None:
            self._pairs = dict.fromkeys(txn.ready_pairs)
        if txn.written.jobs:
            self._remember(txn.written.jobs.values(), stamp)
            for job_id, job in txn.written.jobs.items():
                if job is None:
                    self._held.pop(job_id, None)
        if txn.written.notice != UNCHANGED:
            notice, version = txn.written.notice, txn.known.layout + stamp.hex().encode()
            self._known = KnownVersion(version, None if notice is None else stamp + notice)

    def _send(self, command: Command, stamp: bytes) -> Any:
        """Send a commit; the reply, or DONE if that was lost. What is done is replicated if asked for."""
        waiting: list[Command] = []
        if self.address.durability == "replicated":
            waiting = waiting_commands(self._open(), self.address, REPLICAS_MS)
        connection = self._server.acquire()
        try:
            reply, *waited = self._server.send(connection, [command, *waiting])
        except FAULTS as error:
            if isinstance(error, ReplyError) and not error.position:
                # The reply to the commit itself: it was not executed.
                raise
            if not is_lost(error):
                raise self._perhaps_lost(f"replicas cannot be waited for ({first_line(error)})") from None
            is_done, waited = self._settle(stamp, waiting)
            if not is_done:
                raise
            reply = DONE
        finally:
            self._server.release(connection)
        if waited and not is_replicated(waited[-1], self.address):
            where = " on their disks (is appendonly set there, too?)" if len(waited) > 1 else ""
            count = f"fewer than {self.address.replicas} replicas had it"
            raise self._perhaps_lost(f"{count}{where} after {REPLICAS_MS // 1000} s")
        return reply

    def _perhaps_lost(self, reason: str) -> Unsettled:
        """The error of a commit that was executed, and may not be replicated."""
        return Unsettled(
            f"{self.address.shown} has done what was asked for, but {reason}: it may be lost with the "
            "master; look before you ask again"
        )

    def _check(self, reply: bytes) -> None:
        """Raise `Conflict` if the reply of a commit names something that has changed."""
        if reply in (b"OK", DONE):
            return
        if reply == VERSION:
            raise VersionChanged
        text = reply.decode(errors="replace").rpartition("}:")[2][:80]
        raise Conflict(f"{text} has changed")

    def _settle(self, stamp: bytes, waiting: list[Command]) -> tuple[bool, list[Any]]:
        """Settle whether a commit without a reply was executed (else it never will be) and replicated."""
        period = RetryPeriod(self._outages, self._patience_s)
        settle = self._settling(stamp)
        while not self._closed:
            try:
                self._drop()
                (is_done, oldest), *waited = self._server.call_many([settle, *waiting])
                self._outages.log_recovery()
            except (*FAULTS, StoreError) as error:
                # The server is still down.
                fault = error if isinstance(error, StoreError) else translated(error, self.address)
                if period.sleep_if_time_is_left(fault):
                    continue
                break
            if not is_done and oldest and written_at(oldest) > written_at(stamp) - MARK_SLACK_MS:
                break
            return bool(is_done), waited
        raise unsettled(self.address.shown)

    def _settling(self, stamp: bytes) -> Command:
        keys = self._keys
        return SETTLE.command([keys.marks, keys.version], stamp, new_stamp(written_at(stamp)).hex())

    def _remember(self, jobs: Iterable[Job | None], stamp: bytes) -> None:
        """Cache the jobs that this process wrote; a commit that uses a stale one fails."""
        held = self._held
        if len(held) > REMEMBERED:
            held = self._held = {}
        for job in jobs:
            if job is not None and job.owner:
                held[job.id] = (stamp, job)
            elif job is not None and job.id in held:
                held.pop(job.id, None)

    def _give_back(self, txn: RedisTxn, error: BaseException) -> None:
        try:
            if isinstance(error, FAULTS) and is_lost(error):
                # Other connections are probably lost too.
                self._drop()
            txn.give_back()
        except FAULTS:
            # Upkeep puts them back later.
            pass

    def _read_view(self, fn: Callable[[Any], T], _timed: bool) -> T:
        for left in reversed(range(VIEW_TRIES)):
            view = self._view(RedisView)
            result = self._call_view(fn, view)
            if view.is_of_one_moment or not left:
                break
        return result

    def _read_hint(self, fn: Callable[[Any], T], _timed: bool) -> T:
        return self._call_view(fn, self._view(RedisHint))

    def _view(self, kind: type[RedisView]) -> RedisView:
        self._open()
        return kind(self._server, self._keys, self.now_ms(), self._known)

    def _call_view(self, fn: Callable[[Any], T], view: RedisView) -> T:
        result = self._call(fn, view)
        if not view.trips:
            view.begin()
        return result

    def borrow(self, connection: Any, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Refused: Redis has no transactions that could be joined."""
        raise BadInput(
            "connection",
            type(connection).__name__,
            needed="absent: Redis has no transactions to join; use SQLite or PostgreSQL for connection=",
        )

    lend = staticmethod(lend_nothing)

    def now_ms(self) -> int:
        """The server's clock, read now and then and estimated in between."""
        return self._time.now_ms(self._ask_time)

    def _ask_time(self) -> int:
        try:
            self._open()
            seconds, micros = self._server.call(b"TIME")
        except FAULTS as error:
            raise translated(error, self.address) from None
        return int(seconds) * 1000 + int(micros) // 1000

    # Waiting

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until another store of this prefix has committed, or until interrupted."""
        if self._presence.names:
            self._presence.keep()
        return self._closed or self._listener.wait(timeout_s, ends=ends)

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._listener.interrupt()

    def stop_retrying(self) -> None:
        """See `Store.stop_retrying`."""
        self._outages.end_soon()

    def appear(self, name: str) -> bool:
        """Announce a name by a key that expires, and is renewed while this process waits or commits."""
        try:
            self._open()
            self._presence.appear(name)
        except FAULTS as error:
            raise translated(error, self.address) from None
        return True

    def report(self) -> StoreReport:
        """Facts and problems of the store."""
        try:
            return report(self._server, self._keys, self.address, own=self._clock is None)
        except FAULTS as error:
            return StoreReport({}, [str(translated(error, self.address))])

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            if self._closed:
                return
            # Without it the next call opens the store again, and raises `Closed`.
            self._closed, self._info = True, None
        self._presence.close()
        self._listener.close()
        self._server.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._server.close()
