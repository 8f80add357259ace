"""The PostgreSQL store: one schema, any number of machines.

    run      a connection of the pool ▶ BEGIN ▶ fn(PostgresTxn) ▶ COMMIT; again if somebody else was faster,
             or the connection broke
    read     a connection of the pool ▶ BEGIN REPEATABLE READ READ ONLY ▶ fn(PostgresReads) ▶ ROLLBACK
    borrow   the caller's connection ▶ SAVEPOINT ▶ fn(PostgresTxn) ▶ RELEASE; the caller commits

Batches run side by side; what keeps them apart is in docs/decisions/0007. Nothing is opened before the first
verb. No state of a session is relied upon, so that a pooler of transactions may stand between.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from time import sleep
from typing import Any, TypeVar

import psycopg

from ...core.bounds import MINUTE_MS
from ...core.errors import Conflict, Contended, HoldfastError, StoreError, Unsettled
from ..common.clock import Clock, monotonic_s
from ..common.gifts import CLAIMS, Run, Sought
from ..common.mending import mended
from ..common.outage import FIRST_NAP_S, Lost, Outages, Patience, UnknownHost
from ..contract import ReadTxn, Txn
from ..fairness import Pair
from .begin import Beginnings
from .borrow import check_place, lend, lent, place_of
from .connection import Link, OwnLink, Seeing
from .counts import fold, rest
from .errors import Pooled, faults, is_lost
from .locks import Locks, Wants
from .mend import mend
from .notify import Teller, Wake
from .open import make_ready, migrate, script
from .pool import Pool
from .presence import Presence
from .report import complaints, particulars
from .statements import channel
from .txn import PostgresTxn
from .url import parse
from .view import PostgresView

T = TypeVar("T")

# How long a batch waits for its turn, or for a server that went away.
PATIENCE_S = 30.0
# How often a batch is done again when what it expected has changed.
TRIES = 100
# When so many differences of counts were appended, somebody should fold them.
FOLD_ROWS = 500
# How long it can be seen whether a transaction was committed: much longer than anybody waits to know.
MARKS_KEPT_MS = 10 * MINUTE_MS


class PostgresStore:
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
        # So many commits of a process are under way at once.
        self.lanes = self.address.lanes
        # Whether a schema is made where there is none.
        self._create = create
        self._clock = clock
        self._patience_s = patience_s
        self._outages = Outages(self.address.shown)
        self._begin = Beginnings(self.address.schema, clock)
        self._pool = Pool(self.address, self._make_ready, patience_s)
        self._wake = Wake(self.address, self._pool)
        self._teller = Teller(self.address, self._pool, self._wake.name)
        self._presence = Presence(self.address, self._pool)
        self._was_open = False
        self._closed = False
        # Not from 0: where processes do little, and go, some of them fold all the same.
        self._appended = random.randrange(FOLD_ROWS)
        # Lanes that may be marked as having READY jobs and have none.
        self._to_rest: set[Pair] = set()
        self._place: tuple[str, str, bool] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"PostgresStore({self.address.shown!r})"

    def _make_ready(self, link: OwnLink) -> None:
        make_ready(link, self.address, create=self._create)
        self._wake.opened(link)
        self._was_open = True

    def migrate(self) -> list[int]:
        """Bring the schema up to date; which versions were made."""

        def attempt() -> list[int]:
            link = self._pool.connect()
            try:
                return migrate(link, self.address)
            finally:
                link.close()

        return self._patiently(attempt)

    def migrations(self) -> str:
        """The SQL that makes the schema, for people who run it themselves."""
        return script(self.address.schema)

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` as one transaction, which is on the server's disk when this returns."""
        return self._run(fn)

    def quick(self, sort: str) -> Run[Any] | None:
        """What runs batches of a sort best: see `gifts`.

        One that most likely reads nothing is sent all at once, and told the time as it is reckoned from what
        the server said last; if it reads all the same it is done again by `run`. One that claims is told with
        the time what each of them looks at first.
        """
        return lambda fn: self._run(fn, claims=sort == CLAIMS, blind=sort != CLAIMS)

    def seek(self, sought: Sought) -> Run[Any] | None:
        """What runs the claim of one who was woken: what he sees and what he takes is one answer.

        Not behind a pooler, nor where walks are slow, and so go by what they met before.
        """
        if self._pool.settings or self._begin.starts.are_slow:
            return None
        return lambda fn: self._run(fn, sought=sought)

    def run_carefully(self, fn: Callable[[Txn], T]) -> T:
        """The same for a batch that is done again: what is mostly so is looked up before it is written."""
        return self._run(fn, first_try=1)

    def _run(
        self,
        fn: Callable[[Txn], T],
        *,
        blind: bool = False,
        claims: bool = False,
        sought: Sought | None = None,
        first_try: int = 0,
    ) -> T:
        wants: Wants = {}
        tries = count(first_try)

        def attempt() -> T:
            if next(tries) == 0:
                return self._attempt(fn, wants, careful=False, blind=blind, claims=claims, sought=sought)
            return self._attempt(fn, wants, careful=True, blind=False, claims=claims or sought is not None)

        result = self._patiently(attempt)
        self._fold_if_many()
        return result

    def _patiently(self, attempt: Callable[[], T], *, waits: bool = True) -> T:
        """Try until it is done, or it is clear that it cannot be; or tell at once that the server is away."""
        patience, tries = Patience(self._outages, self._patience_s if waits else 0.0), 0
        while True:
            try:
                with faults(self.address):
                    result = mended(attempt, self._mend, self.address.shown)
                self._outages.over()
                return result
            except Pooled:
                self._pool.behind_a_pooler()
            except Conflict as error:
                tries += 1
                if tries >= TRIES or patience.is_over:
                    text = f"a batch was done {tries} times, and each time something had changed ({error})"
                    raise Contended(f"{self.address.shown}: {text}") from None
            except (Lost, UnknownHost) as error:
                if self._closed or (isinstance(error, UnknownHost) and not self._was_open):
                    raise
                self._pool.drop()
                patience.nap(error)

    def _mend(self) -> int:
        with self._pool.link() as link:
            return mend(link, self.address.schema)

    def _attempt(
        self, fn: Callable[[Txn], T], wants: Wants, *, blind: bool, sought: Sought | None = None, **how: bool
    ) -> T:
        with self._pool.link() as link:
            try:
                txn = self._begin.batch(link, self._pool.settings, wants, blind=blind, sought=sought, **how)
                result = fn(txn)
                txn.leave_mark()
            except BaseException:
                link.roll_back()
                raise
            try:
                link.commit()
            except psycopg.Error as error:
                link.roll_back()
                if blind and isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):
                    raise Seeing("a notice is on the door") from None
                if not txn.mark or not is_lost(error):
                    raise
                link.close()
                if not self._was_committed(txn):
                    raise
        self._appended += txn.appended
        return result

    def _was_committed(self, txn: PostgresTxn) -> bool:
        """What became of a transaction whose COMMIT was sent, and never answered."""
        until_s = monotonic_s() + self._patience_s
        while monotonic_s() < until_s and not self._closed:
            try:
                self._pool.drop()
                with self._pool.link() as link:
                    asked = {"at_ms": txn.now_ms, "mark": txn.mark}
                    link.change(self._begin.writing["void"], asked)
                    return bool(link.value(self._begin.writing["is_marked"], asked))
            except (psycopg.Error, StoreError):
                # Not back yet.
                pass
            sleep(FIRST_NAP_S)
        raise Unsettled(
            f"{self.address.shown} went away during a commit, and cannot be asked what became of it: "
            "what was asked for may have been done, or not; look before you ask again"
        )

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on one view of the schema as it is now, beside whoever writes."""
        result = self._look(fn)
        self._fold_if_many()
        return result

    def _look(self, fn: Callable[[PostgresView], T], *, waits: bool = True) -> T:
        def attempt() -> T:
            with self._pool.link() as link:
                try:
                    view = self._begin.view(link, self._pool.settings)
                    result = fn(view)
                finally:
                    link.roll_back()
                # Jobs that were added by SQL alone: nobody else may be there to fold their counts.
                self._appended = max(self._appended, view.unfolded)
                return result

        return self._patiently(attempt, waits=waits)

    def peek(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on what there is, all of it perhaps not of the same moment: enough for a hint."""
        if self._pool.settings:
            # Behind a pooler each transaction begins with these.
            return self._look(fn)

        def attempt() -> T:
            with self._pool.link() as link:
                return fn(self._begin.peek(link))

        return self._patiently(attempt)

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Call `fn` inside the caller's transaction, which the caller commits or rolls back.

        `connection` must lead to this store's database, and be in a transaction or begin one by itself.
        """
        with faults(self.address):
            link = lent(connection)
            self._check_place(link)
            wants: Wants = {}
            for tries in range(TRIES):
                try:
                    with faults(self.address):
                        inside = partial(self._inside, link, fn, wants, careful=tries > 0)
                        return mended(inside, lambda: mend(link, self.address.schema), self.address.shown)
                except Conflict:
                    continue
        raise Contended(
            f"{self.address.shown}: somebody else has changed the same since your transaction began; "
            "roll it back, and try again"
        )

    # A caller's connection of asyncio's kind as `borrow` takes it, outside the loop's thread.
    lend = staticmethod(lend)

    def _inside(self, link: Link, fn: Callable[[Txn], T], wants: Wants, *, careful: bool) -> T:
        link.script("SAVEPOINT holdfast")
        try:
            locks = Locks(link, self._begin.writing, wants)
            txn = self._begin.inside(link, locks, careful=careful)
            result = fn(txn)
            if self.address.notify:
                # Heard when the caller commits, by all, ourselves too.
                link.value("SELECT pg_notify(%s, '')", (channel(self.address.schema),))
        except BaseException:
            if link.is_open:
                link.script("ROLLBACK TO SAVEPOINT holdfast; RELEASE SAVEPOINT holdfast")
            raise
        link.script("RELEASE SAVEPOINT holdfast")
        self._appended += txn.appended
        return result

    def _check_place(self, link: Link) -> None:
        theirs = place_of(link, self.address.schema)
        if self._place != theirs:
            # Perhaps the server was started anew.
            self._place = self._look(lambda view: place_of(view.link, self.address.schema))
            check_place(link, self.address, self._place)

    # Whoever adds by a caller's connection has to have the right to its numbers before: taken inside his
    # transaction they would be locked for as long as that lasts.
    lends_apart = True

    def now_ms(self) -> int:
        """The server's clock, by which all machines agree; asked for now and then, reckoned between."""
        return self._begin.time.now_ms(lambda: self._look(lambda view: view.now_ms))

    def wait(self, timeout_s: float) -> bool:
        """Sleep until told by another store of this schema, interrupted, or until somebody has written."""
        with faults(self.address):
            self._presence.keep()
            return self._closed or self._wake.wait(timeout_s)

    def notify(self, *, ends: bool = False) -> None:
        """Wake the other stores of this schema that wait."""
        if self.address.notify:
            self._teller.tell(ends=ends)

    def heed(self, *, ends: bool) -> None:
        """Whether to wake for ends alone."""
        self._wake.heeds_ends = ends

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._wake.interrupt()

    def appear(self, name: str) -> bool:
        """Be seen until closed, by a lock of a session; False behind a pooler."""
        with faults(self.address):
            return self._presence.appear(name)

    def _fold_if_many(self) -> None:
        if self._appended >= FOLD_ROWS:
            self._fold()

    def _fold(self) -> None:
        """Fold the counts, unless somebody is at it."""
        self._appended = 0
        try:
            sql, schema = self._begin.writing, self.address.schema
            with faults(self.address), self._pool.link() as link:
                with self._folding(link):
                    self._to_rest.update(fold(link, sql, schema, self.now_ms() - MARKS_KEPT_MS))
                if self._to_rest:
                    # By itself, because it locks lanes that others may be adding to.
                    with self._folding(link):
                        rest(link, sql, schema, [*self._to_rest])
                    self._to_rest.clear()
        except (HoldfastError, Conflict):
            # The next one folds more.
            pass

    @contextmanager
    def _folding(self, link: OwnLink) -> Iterator[None]:
        with link.connection.transaction():
            # Whatever the database's default is: each statement sees what was committed when it began.
            link.script(f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED;{self._pool.settings}")
            yield

    def check(self) -> list[str]:
        """What is wrong, for `doctor`."""
        try:
            own = self._clock is None
            return self._look(
                lambda view: complaints(view.link, self.address, view.now_ms, own=own), waits=False
            )
        except HoldfastError as error:
            return [str(error)]

    def facts(self) -> dict[str, str]:
        """Version, settings and sizes."""
        return self._look(lambda view: particulars(view.link, self.address), waits=False)

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._teller.close()
        self._wake.close()
        self._presence.close()
        self._pool.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._pool.close()
