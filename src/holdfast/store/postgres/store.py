"""The PostgreSQL store: one schema, any number of machines.

    commit   one statement, which is its own transaction
    lease    likewise
    run      a connection of the pool ▶ BEGIN, first_reads ▶ fn(PostgresTxn) ▶ the changes, COMMIT;
             again after a conflict or a lost connection
    read     a connection of the pool ▶ BEGIN REPEATABLE READ READ ONLY ▶ fn(PostgresReads) ▶ ROLLBACK
    borrow   the caller's connection ▶ SAVEPOINT ▶ fn(PostgresTxn) ▶ the changes; the caller commits

Batches run concurrently; docs/decisions/0007 describes their locks. The first call opens a connection. The
store relies on no session state, so that it works behind a transaction pooler.
"""

import random
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg

from ...core.bounds import LATE_S
from ...core.damage import UNREADABLE
from ...core.errors import BadInput, Conflict, StoreError, Unsettled
from ...core.job import MISSING
from ...core.kinds import PAUSE
from ...core.layout import Layout, unreadable_newer
from ..common.clock import Clock, Time, monotonic_s
from ..common.lending import InAutocommit
from ..common.outage import Outages, RetryPeriod, unsettled
from ..contract import ENDS, Capabilities, Changes, ClaimQuery, Leased, OneStore, ReadTxn, StoreReport, Txn
from .borrow import Database, OldSnapshot, SessionInfo, borrowed, check_database, lend, session_of
from .changes import Parameters, as_bytes, numbered_statement, parameters_of, put_counts, statement_of
from .claim import leased_of, values_of
from .connection import OwnConnection, PostgresConnection
from .counts import FOLD_ROWS, Folding
from .doctor import complaints, facts, repair_records
from .errors import LOCKED, POOLED, code_of, is_lost, translated
from .locks import Locks, Wants, lock_number
from .notify import NEWEST, PostgresListener, PostgresNotifier, PostgresPresence
from .open import layout_of, make_ready, migrate, script
from .pool import Pool
from .reads import FEW_PAIRS, FIRST_TABLES, PostgresReads, for_first_reads
from .starts import SLOW_S, SLOW_WALKS, Starts, Walks
from .statements import LAYOUT, channel, numbered, numbers, statements
from .tries import RETRIED, Tries, settle
from .txn import PostgresKeepingTxn, PostgresTxn, note_starts
from .url import parse

T = TypeVar("T")
Fn = Callable[[Txn], tuple[Changes, T]]

# How long a batch waits for locks, or for a server that is down.
PATIENCE_S = 30.0
# How long the time is estimated from the last reading of the server's clock.
CLOCK_TRUSTED_S = 60.0

_BATCH = "BEGIN ISOLATION LEVEL READ COMMITTED;"
_VIEW = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"


class PostgresStore(OneStore):
    """A store in one schema of a PostgreSQL database."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
        create: bool = True,
    ) -> None:
        self.address = parse(url)
        # Ids are allocated before joining a caller's transaction: inside it, the row of their sysid would be
        # locked until it ends.
        self.capabilities = Capabilities(parallel_commits=self.address.commits, ids_apart=True)
        # Whether a missing schema is created.
        self._create = create
        self._clock, self._time = clock, Time(clock, CLOCK_TRUSTED_S)
        self._patience_s = patience_s
        self._outages = Outages(self.address.shown)
        self.pool = Pool(self.address, self._make_ready, patience_s)
        self._listener = PostgresListener(self.address, self.pool)
        self._notifier = PostgresNotifier(self.address, self.pool, self._listener.name)
        self._presence = PostgresPresence(self.address, self.pool)
        schema = self._schema = self.address.schema
        self._use_layout(Layout(LAYOUT, LAYOUT))
        # Where index scans start, see `starts`.
        self.starts = Starts()
        self._first_reads_sql, _ = numbered(self._writing["first_reads"])
        self._pause_lock = lock_number(schema, "table", PAUSE)
        self._closed = False
        # How many leases in a row were slow.
        self._slow_leases = 0
        self.folding = Folding(self._writing, self.pool, _BATCH)
        self._database: Database | None = None
        self._closing = threading.Lock()

    def __repr__(self) -> str:
        return f"PostgresStore({self.address.shown!r})"

    def _make_ready(self, connection: OwnConnection) -> None:
        layout = make_ready(connection, self.address, create=self._create)
        if layout != self._layout:
            self._use_layout(layout)
        self._listener.begin(connection.value(NEWEST))

    def _use_layout(self, layout: Layout) -> None:
        """Use the names of a layout; on one that is newer than this version, records keep unknown fields."""
        version = layout.version
        self._writing = statements(self._schema, locking=True, version=version)
        self._reading = statements(self._schema, locking=False, version=version)
        self._txn_type = PostgresKeepingTxn if version > LAYOUT else PostgresTxn
        self._layout = layout

    def migrate(self) -> list[int]:
        """Migrate the schema; return the new versions."""

        def attempt() -> list[int]:
            connection = self.pool.connect()
            try:
                return migrate(connection, self.address)
            finally:
                connection.close()

        return self._patiently(attempt)

    def migrations(self) -> str:
        """The SQL that creates the schema, for users who run it by hand."""
        return script(self._schema)

    # Batches

    def commit(self, changes: Changes) -> bool:
        """Write changes for which nothing was read: one statement, which is its own transaction."""
        statements = parameters_of(changes)
        if not statements:
            return not changes.counts and not changes.tallies
        if self._layout.version > LAYOUT:
            # A batch keeps the fields that this version does not know.
            return False
        appended = put_counts(statements[-1], changes.counts, changes.tallies)
        if not self._send_plainly(statements, changes):
            return False
        if self.starts:
            note_starts(self.starts, changes)
        self._wrote(appended, changes.wake)
        return True

    def _send_plainly(self, statements: list[Parameters], changes: Changes) -> bool:
        """Send plain statements; False: nothing was written."""
        try:
            connection = self.pool.take()
        except RETRIED:
            # A batch tries again, or says what is wrong.
            return False
        sent_s = monotonic_s()
        try:
            self._write(connection, statements, plain=True)
        except psycopg.Error as error:
            if isinstance(error, POOLED):
                self.pool.behind_a_pooler()
            if not is_lost(error):
                connection.roll_back()
                self.pool.give(connection)
                return False
            self._give_lost(connection)
        except BaseException as error:
            self._give_back(connection, error)
            raise
        else:
            self.pool.give(connection)
            return True
        return self._asked_until_known(connection, self._resend(changes, sent_s, connection))

    def _write(self, connection: OwnConnection, statements: list[Parameters], *, plain: bool) -> None:
        """Send all statements in one message: a transaction of their own, or the end of one."""
        schema, version = self._schema, self._layout.version
        if plain and len(statements) == 1 and connection.prepares:
            parameters = statements[0]
            sql, names = numbered_statement(schema, tuple(parameters), version, plain=True)
            connection.call(sql, as_bytes([parameters[name] for name in names]))
            return
        texts = [_BATCH, self.pool.settings] if plain else []
        for parameters in statements:
            sql, names = numbered_statement(schema, tuple(parameters), version, plain=plain)
            texts.append(connection.written(sql, [parameters[name] for name in names]) + ";")
        connection.execute(f"{''.join(texts)}COMMIT")

    def _resend(
        self, changes: Changes, sent_s: float, lost: OwnConnection
    ) -> Callable[[OwnConnection], bool]:
        """What settles a commit that got no reply; see `settle`."""
        is_over = bool(lost.session[1])

        def ask(connection: OwnConnection) -> bool:
            view = PostgresReads(connection, self._reading, 0, schema=self._schema, starts=self.starts)
            for_s, shown = monotonic_s() - sent_s, self.address.shown
            return settle(view, changes, partial(send, connection), for_s=for_s, is_over=is_over, shown=shown)

        def send(connection: OwnConnection, statements: list[Parameters]) -> bool:
            nonlocal is_over
            try:
                self._write(connection, statements, plain=True)
            except psycopg.Error as error:
                if is_lost(error):
                    # What was sent again may still arrive.
                    is_over = False
                    raise
                connection.roll_back()
                return False
            return True

        return ask

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """Claim plain jobs in one message, if nothing else has to be decided."""
        if self._slow_leases >= SLOW_WALKS or self.starts:
            # A batch finds out where index scans start that are slow because of dead entries.
            self._slow_leases = 0
            return False
        values = values_of(query, pause_lock=self._pause_lock, token=random.getrandbits(63))
        if values is None or self.pool.pooled or self._layout.version > LAYOUT:
            return False
        asked_s = monotonic_s()
        try:
            connection = self.pool.take()
        except RETRIED:
            return False
        sent_s = monotonic_s()
        if sent_s - asked_s > LATE_S:
            self.pool.give(connection)
            return False
        try:
            ((refused, *reply),) = connection.rows(self._writing["lease_jobs"], values)
            leased.extend(leased_of(*reply))
        except (psycopg.Error, *UNREADABLE) as error:
            if isinstance(error, psycopg.Error) and not is_lost(error):
                connection.roll_back()
                self.pool.give(connection)
                return False
            self._give_lost(connection)
            leased.extend(self._find_leased(connection, values, damaged=not isinstance(error, psycopg.Error)))
            return True
        except BaseException:
            # An interrupt: what was leased is for the caller to release.
            self._give_lost(connection)
            if not leased:
                with suppress(StoreError):
                    leased.extend(self._find_leased(connection, values))
            raise
        self.pool.give(connection)
        self._slow_leases = self._slow_leases + 1 if monotonic_s() - sent_s > SLOW_S else 0
        if leased:
            self._wrote(2)
        return not refused

    def _find_leased(
        self, lost: OwnConnection, values: dict[str, Any], *, damaged: bool = False
    ) -> list[Leased]:
        """What was leased by a statement that got no reply, or one with a damaged job."""

        def find(connection: OwnConnection) -> list[Leased]:
            (found,) = connection.rows(self._reading["leased_jobs"], values)
            return leased_of(*found)

        if damaged:
            self._repair()
        leased: list[Leased] = self._asked_until_known(lost, find)
        # The engine releases jobs without data, and a batch decides about them.
        return [(job, MISSING) for job, _ in leased] if damaged else leased

    def _give_lost(self, connection: OwnConnection) -> None:
        """Close a connection whose last statement got no reply."""
        connection.close()
        self.pool.give(connection)

    def run(self, fn: Fn[T]) -> T:
        """Call `fn` as one transaction, which is on the server's disk when this returns."""
        wants: Wants = {}
        tries: Tries | None = None
        while True:
            try:
                changes, result = self._run(fn, wants)
                break
            except RETRIED as error:
                tries = tries or self._tries()
                tries.again(error)
        if tries is not None:
            tries.succeeded()
        self._wrote(0, changes.wake)
        return result

    def _wrote(self, appended: int, wake: str = "") -> None:
        """After a commit: wake up other processes, and sum up the counts now and then."""
        if wake and self.address.notify:
            self._notifier.notify(ends=wake == ENDS)
        self.folding.appended += appended
        if self.folding.appended >= FOLD_ROWS:
            self.folding.fold(self.now_ms)

    def _run(self, fn: Fn[T], wants: Wants) -> tuple[Changes, T]:
        connection = self.pool.take()
        locks = Locks(wants)
        try:
            txn = self._begin(connection, locks)
            changes, result = fn(txn)
            self._commit(connection, txn, txn.last_statements(changes))
        except BaseException as error:
            if isinstance(error, psycopg.Error) and code_of(error) == LOCKED:
                locks.want()
            self._give_back(connection, error)
            raise
        self.pool.give(connection)
        return changes, result

    def _give_back(self, connection: OwnConnection, error: BaseException) -> None:
        """Return the connection of a failed batch to the pool."""
        if isinstance(error, Exception):
            connection.roll_back()
        else:
            # After a KeyboardInterrupt a reply may still arrive.
            connection.close()
        self.pool.give(connection)

    def _begin(self, connection: OwnConnection, locks: Locks) -> PostgresTxn:
        """Begin a batch: take its locks, prefetch what a claim reads first, then read the time."""
        walks = Walks(self.starts)
        ordered = locks.begin({self._pause_lock: False})
        asked = (numbers(ordered), "{pause}", FEW_PAIRS + 1, numbers(walks.began))
        sql = f"{_BATCH}{self.pool.settings}{connection.written(self._first_reads_sql, asked)}"
        ((notice, now_ms, *seen),) = connection.rows(sql)
        txn = self._txn(connection, locks, self._note_time(now_ms), notice)
        txn.see(walks, seen, (PAUSE,))
        return txn

    def _txn(
        self, connection: PostgresConnection, locks: Locks, now_ms: int, notice: bytes | None
    ) -> PostgresTxn:
        return self._txn_type(
            connection,
            self._writing,
            now_ms,
            schema=self._schema,
            starts=self.starts,
            notice=notice,
            locks=locks,
            at_ms=now_ms if self._clock is None else 0,
            version=self._layout.version,
        )

    def _note_time(self, now_ms: int) -> int:
        """Note the server's time; return it, or that of the clock given to the constructor."""
        if self._clock is not None:
            return self._clock()
        self._time.note(now_ms)
        return now_ms

    def _commit(self, connection: OwnConnection, txn: PostgresTxn, statements: list[Parameters]) -> None:
        """Write the changes and commit, in one message."""
        try:
            self._write(connection, statements, plain=False)
        except psycopg.Error as error:
            if not statements or not is_lost(error):
                raise
            connection.close()
            if not self._asked_until_known(connection, lambda own: self._was_committed(own, txn)):
                raise
        self.folding.appended += txn.appended

    def _was_committed(self, connection: OwnConnection, txn: PostgresTxn) -> bool:
        """Whether a transaction was committed whose COMMIT got no reply."""
        asked = {"at_ms": txn.now_ms, "mark": txn.mark}
        connection.change(self._writing["void"], asked)
        return bool(connection.value(self._writing["is_marked"], asked))

    def _asked_until_known(self, lost: OwnConnection, ask: Callable[[OwnConnection], T]) -> T:
        """What the server says on a new connection about a commit that got no reply.

        Its session is ended first, so that nothing is committed after that. A pooler shows no sessions.
        """
        period = RetryPeriod(self._outages, self._patience_s)
        while not self._closed:
            try:
                self.pool.drop()
                # Outside the pool: the callers of all its connections may be in here.
                with translated(self.address), closing(self.pool.connect()) as connection:
                    if lost.session[1] and connection.rows(self._reading["end_session"], lost.session):
                        raise Conflict("a session has not ended yet")
                    found = ask(connection)
                self._outages.log_recovery()
                return found
            except Unsettled:
                raise
            except (Conflict, StoreError) as error:
                # The server is still down.
                if not period.sleep_if_time_is_left(error):
                    break
        raise unsettled(self.address.shown)

    def _tries(self, patience_s: float | None = None, repair: Callable[[], int] | None = None) -> Tries:
        patience_s = self._patience_s if patience_s is None else patience_s
        return Tries(self.address, self.pool, self._outages, patience_s, repair or self._repair)

    def _patiently(self, attempt: Callable[[], T], *, waits: bool = True) -> T:
        """Call until it succeeds or cannot succeed; `waits`: also while the server is down."""
        tries: Tries | None = None
        while True:
            try:
                result = attempt()
                break
            except RETRIED as error:
                tries = tries or self._tries(self._patience_s if waits else 0.0)
                tries.again(error)
        if tries is not None:
            tries.succeeded()
        return result

    # Views

    def read(self, fn: Callable[[ReadTxn], T], *, hint: bool = False) -> T:
        """Call `fn` on a snapshot of the schema, concurrently with writers.

        With `hint`, one statement without a transaction reads what a waiting process needs.
        """
        result = self._patiently(lambda: self._read_once(fn, hint=hint and not self.pool.pooled))
        if self.folding.appended >= FOLD_ROWS:
            self.folding.fold(self.now_ms)
        return result

    def _read_once(self, fn: Callable[[PostgresReads], T], *, hint: bool = False) -> T:
        connection = self.pool.take()
        try:
            view = self._view_of_hint(connection) if hint else self._view(connection)
            result = fn(view)
            if not hint:
                connection.execute("ROLLBACK")
        except BaseException as error:
            self._give_back(connection, error)
            raise
        self.pool.give(connection)
        # Jobs may have been added only by SQL, so that no other process sums up their counts.
        self.folding.appended = max(self.folding.appended, view.unfolded)
        return result

    def _view(self, connection: OwnConnection) -> PostgresReads:
        now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        sql = f'{_VIEW}{self.pool.settings}SELECT "{self._schema}".notice(), {now}'
        ((notice, now_ms),) = connection.rows(sql)
        return self._reads(connection, notice, now_ms)

    def _view_of_hint(self, connection: OwnConnection) -> PostgresReads:
        walks = Walks(self.starts)
        ((notice, now_ms, *seen),) = connection.rows(
            self._reading["first_reads"], for_first_reads(walks, FIRST_TABLES)
        )
        view = self._reads(connection, notice, now_ms)
        view.see(walks, seen, FIRST_TABLES)
        return view

    def _reads(self, connection: OwnConnection, notice: bytes, now_ms: int) -> PostgresReads:
        known: dict[str, Any] = {"schema": self._schema, "starts": self.starts, "notice": notice}
        return PostgresReads(connection, self._reading, self._note_time(now_ms), **known)

    # A caller's own transaction

    def borrow(self, connection: Any, fn: Fn[T]) -> T:
        """Call `fn` inside the caller's transaction, which the caller commits or rolls back.

        `connection` must be to this store's database. `InAutocommit` is raised if it has no transaction.
        """
        with translated(self.address):
            theirs = borrowed(connection)
            session = self._check_database(theirs)
        if not theirs.in_transaction:
            raise InAutocommit
        wants: Wants = {}
        tries = self._tries(repair=lambda: self._repair_in(theirs))
        while True:
            try:
                return self._run_inside(theirs, session, fn, wants)
            except UnicodeEncodeError as error:
                found = f"one with client_encoding {error.encoding}, which lacks characters of the job"
                raise BadInput("connection", found, needed="one with client_encoding UTF8") from None
            except (psycopg.Error, Conflict, *UNREADABLE) as error:
                tries.again_inside(error)

    # See `Store.lend`.
    lend = staticmethod(lend)

    def _run_inside(self, connection: PostgresConnection, session: SessionInfo, fn: Fn[T], wants: Wants) -> T:
        locks = Locks(wants)
        # By default a session waits for ever. Longer than PostgreSQL takes to detect a deadlock.
        connection.execute(f"SAVEPOINT holdfast; SET LOCAL lock_timeout = {self._patience_s * 1000:.0f}")
        try:
            # Without prefetching: the lock of the pauses would be held until the caller's transaction ends.
            begin = {"locks": numbers(locks.begin({})), "tables": None, "few": 0, "moments": None}
            ((notice, now_ms, *_),) = connection.rows(self._writing["first_reads"], begin)
            # What a batch reads must be current, or permits and counts would be wrong for ever.
            reading = OldSnapshot(session.isolation) if session.has_old_snapshot else connection
            txn = self._txn(reading, locks, self._note_time(now_ms), notice)
            changes, result = fn(txn)
            for parameters in txn.last_statements(changes):
                connection.execute(statement_of(self._schema, tuple(parameters), txn.version), parameters)
            if changes.wake and self.address.notify:
                # Sent when the caller commits, to all processes including this one.
                connection.value("SELECT pg_notify(%s, '')", (channel(self._schema),))
        except BaseException as error:
            if isinstance(error, psycopg.Error) and code_of(error) == LOCKED:
                locks.want()
            if connection.is_open:
                connection.execute("ROLLBACK TO SAVEPOINT holdfast; RELEASE SAVEPOINT holdfast")
            raise
        connection.execute(f"RELEASE SAVEPOINT holdfast; SET LOCAL lock_timeout = '{session.lock_timeout}'")
        self.folding.appended += txn.appended
        return result

    def _check_database(self, connection: PostgresConnection) -> SessionInfo:
        session = session_of(connection, self._schema)
        if self._database != session.database:
            # The server may have been restarted.
            self._database = self._patiently(
                lambda: self._read_once(lambda view: session_of(view.connection, self._schema).database)
            )
            check_database(session.database, self._database, self.address)
        return session

    # All else

    def now_ms(self) -> int:
        """The server's clock, read now and then and estimated in between."""
        return self._time.now_ms(lambda: self.read(lambda view: view.now_ms))

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool:
        """Sleep until notified by another store of this schema, interrupted, or something was written."""
        with translated(self.address):
            self._presence.keep()
            return self._closed or self._listener.wait(timeout_s, ends=ends)

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._listener.interrupt()

    def stop_retrying(self) -> None:
        """See `Store.stop_retrying`."""
        self._outages.end_soon()

    def appear(self, name: str) -> bool:
        """Announce a name by a session lock, until closed; False behind a pooler."""
        with translated(self.address):
            return self._presence.appear(name)

    def report(self) -> StoreReport:
        """Version, settings and sizes; and problems."""

        def read(view: PostgresReads) -> StoreReport:
            told = complaints(view.connection, self.address, view.now_ms, own=self._clock is None)
            return StoreReport(facts(view.connection, self.address), told)

        return self._patiently(lambda: self._read_once(read), waits=False)

    def _repair(self) -> int:
        with self.pool.connection() as connection:
            connection.execute("BEGIN")
            try:
                count = self._repair_in(connection)
                connection.execute("COMMIT")
                return count
            except BaseException as error:
                if connection.is_open and isinstance(error, Exception):
                    connection.execute("ROLLBACK")
                raise

    def _repair_in(self, connection: PostgresConnection) -> int:
        """Repair records in a transaction, unless a newer version may have written them."""
        lock = lock_number(self._schema, "migrate")
        connection.value("SELECT 1 FROM pg_advisory_xact_lock_shared(%s)", (lock,))
        layout = layout_of(connection, self._schema)
        if layout.version > LAYOUT:
            raise unreadable_newer(self.address.shown, layout, LAYOUT)
        return repair_records(connection, self._schema)

    def close(self) -> None:
        """Close all connections."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        for part in (self._notifier, self._listener, self._presence, self.pool):
            part.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.pool.close()
