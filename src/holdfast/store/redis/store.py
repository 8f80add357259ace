"""The Redis store: one server, Valkey, or a Redis Cluster.

    run      fn(RedisTxn) reads and decides ▶ one script checks all that was read, and writes all or nothing
             ▶ (durability=replicated: wait for the replicas); again if somebody else was faster
    read     fn(RedisView), again if anybody committed between its questions

Nothing is locked: batches run side by side, and of two that meet the later begins anew. How that is done, and
what a crash between any two steps leaves, is in docs/decisions/0009.
"""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import sleep
from typing import Any, TypeVar, cast

from ...core.errors import BadInput, Conflict, Contended, HoldfastError, StoreError, Unavailable, Unsettled
from ..common.clock import Clock, monotonic_s
from ..common.gifts import ADDS, Run, Sought
from ..common.mending import mended
from ..common.outage import FIRST_NAP_S, Lost, Outages, Patience, UnknownHost
from ..common.server_time import Time
from ..contract import ReadTxn, Txn
from .blind import BlindTxn, Forms
from .calm import Calm
from .commit import Commit, new_stamp
from .connection import COMMIT, SETTLE, Words, link_to
from .errors import FAULTS, faults, is_lost
from .keys import Keys
from .lane import LANE_MS, Lane, Lanes
from .mend import mend
from .notify import Wake
from .open import Server, is_replicated, open_server, waiting_words
from .presence import Presence
from .report import complaints, particulars
from .txn import Behind, Mine, RedisTxn
from .url import parse
from .view import RedisView

T = TypeVar("T")
V = TypeVar("V", RedisTxn, RedisView)

# How long a batch waits for a server that went away.
PATIENCE_S = 30.0
# How often a batch is done again when what it expected has changed.
TRIES = 100
# After a lost race, up to this long and more, so that those who meet do not meet again.
CONFLICT_NAP_S, LONGEST_CONFLICT_NAP_S = 0.001, 0.02
# How often a view is looked at anew because somebody committed meanwhile; then it is taken as it is.
LOOKS = 5
REPLICAS_MS = 10_000
# So many jobs that we wrote are remembered.
MINE = 10_000


class RedisStore:
    """A store under one prefix of a Redis database; `redis_url.Address` says what `durability` promises."""

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
        self._link = link_to(self.address, self._keys.base)
        self._wake = Wake(self._link, self._keys)
        self._lanes = Lanes(self._keys)
        self._presence = Presence(self._link, self._keys)
        self._server: Server | None = None
        self._create = create
        self._was_open = False
        self._closed = False
        self._time, self._calm = Time(clock), Calm(self._keys)
        self._forms = Forms(self._keys)
        self._mine: Mine = {}
        # What stood on the door when it was last looked at.
        self._notice: bytes | None = None
        self._mend = partial(mend, self._link, self._keys)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RedisStore({self.address.shown!r})"

    def _open(self) -> Server:
        """Look at the server, the first time and whenever it may be another."""
        server = self._server
        if server is None:
            with self._lock:
                if self._closed:
                    raise Unavailable(f"{self.address.shown} was closed")
                how = {"create": self._create, "was_open": self._was_open}
                server = open_server(self._link, self._keys, self.address, **how)
                self._time.heard(server.now_ms)
                if not self._was_open:
                    self._wake.opened(server.tick)
                self._server, self._was_open = server, True
        return server

    # Batches

    def run(self, fn: Callable[[Txn], T]) -> T:
        """Call `fn` as one atomic batch, which is as durable as was asked for when this returns."""
        return self._patiently(lambda tries, timed: self._attempt(fn, careful=tries > 0, timed=timed))

    def run_blindly(self, fn: Callable[[Txn], T]) -> T:
        """The same at half the cost, if it only adds; else it is done again by `run`."""
        return self._patiently(
            lambda tries, timed: (
                self._attempt(fn, careful=True, timed=timed) if tries else self._attempt_blindly(fn)
            )
        )

    def quick(self, sort: str) -> Run[Any] | None:
        """What runs batches of a sort best: see `gifts`."""
        return self.run_blindly if sort == ADDS else None

    def seek(self, sought: Sought) -> Run[Any] | None:
        """What runs the claim of one who was woken: he looks as his batch begins, and not before it."""
        return lambda fn: self._patiently(
            lambda tries, timed: self._attempt(fn, careful=tries > 0, timed=timed, seeks=not tries)
        )

    def _patiently(self, attempt: Callable[[int, bool], T]) -> T:
        """Try until it is done, or it is clear that it cannot be."""
        patience, tries, timed = Patience(self._outages, self._patience_s), 0, self._clock is None
        while True:
            try:
                with faults(self.address):
                    result = mended(partial(attempt, tries, timed), self._mend, self.address.shown)
                self._outages.over()
                return result
            except Conflict as error:
                tries += 1
                if isinstance(error, Behind):
                    timed = timed and self._time.caught_up(error.at_ms, self._asked_ms)
                if tries >= TRIES or patience.is_over:
                    text = f"a batch was done {tries} times, and each time something had changed ({error})"
                    raise Contended(f"{self.address.shown}: {text}") from None
                sleep(random.uniform(0, min(CONFLICT_NAP_S * tries, LONGEST_CONFLICT_NAP_S)))
            except (Lost, UnknownHost) as error:
                known = self._was_open or self._link.is_found
                if self._closed or (isinstance(error, UnknownHost) and not known):
                    raise
                self._drop()
                patience.nap(error)

    def _drop(self) -> None:
        """The server may be another, or gone."""
        self._server = None
        self._wake.hush()
        try:
            self._link.drop()
        except FAULTS:
            pass

    def _attempt(self, fn: Callable[[Txn], T], *, careful: bool, timed: bool, seeks: bool = False) -> T:
        self._open()
        self._presence.keep()
        if careful:
            self._mine = {}
        how = {"careful": careful, "timed": timed}
        txn = RedisTxn(self._link, self._keys, self.now_ms(), mine=self._mine, calm=self._calm, **how)
        txn.believed = self._notice
        try:
            if seeks:
                txn.seek()
            result = _decided(fn, txn)
            with self._lanes.one() as lane:
                self._commit(txn, lane)
        except BaseException:
            self._give_back(txn)
            raise
        self._notice = txn.door
        return result

    def _attempt_blindly(self, fn: Callable[[Txn], T]) -> T:
        self._open()
        self._presence.keep()
        txn = BlindTxn(self._keys, self.now_ms(), self._notice)
        result = _decided(fn, cast(RedisTxn, txn))
        with self._lanes.one() as lane:
            keys, plan = txn.commit(lane.key, new_stamp(), self._forms)
            self._send(keys, plan, lane, tells=self._word(txn))
        return result

    def _commit(self, txn: RedisTxn, lane: Lane) -> None:
        commit = Commit(txn, lane=lane.key, stamp=new_stamp(), at_ms=txn.now_ms)
        writes = commit.plan.writes_anything
        if not writes and txn.trips < 2 and not txn.believes:
            return
        # All keys are known once the words are.
        words, keys = commit.plan.words_of_it(), commit.plan.keys
        self._send(keys, words, lane, before=commit.bodies, writes=writes, tells=self._word(txn))
        # From here on nothing is to be given back.
        txn.taken.clear()
        if writes:
            self._remember(commit)

    def _word(self, txn: RedisTxn | BlindTxn) -> bytes:
        """What a commit tells those who wait; nothing: nothing."""
        return self._wake.word(ends=txn.ends) if txn.tells else b""

    def _send(
        self,
        keys: list[bytes],
        plan: list[Any],
        lane: Lane,
        *,
        tells: bytes,
        writes: bool = True,
        before: Sequence[Words] = (),
    ) -> None:
        """Send a plan, and what is to be written before it: all of it is done when this returns."""
        numbers, lane.open = (lane.next(), lane.last), not writes
        how = (LANE_MS, b"0" if writes else b"1", self._keys.channel, tells)
        words = COMMIT.words(keys, *numbers, *how, *plan)
        reply = self._sent([*before, words], lane, writes=writes)
        lane.open = reply != b"LANE"
        if reply not in (b"OK", b"DONE"):
            raise Conflict(_named(reply))
        if writes:
            lane.last = numbers[0]
            self._calm.wrote()

    def _sent(self, commands: list[Any], lane: Lane, *, writes: bool) -> Any:
        """Send a commit; one whose reply was lost is settled by looking."""
        server = self._open()
        waiting = waiting_words(server, self.address, REPLICAS_MS) if writes else []
        try:
            reply, *waited = self._link.many([*commands, *waiting])[-1 - len(waiting) :]
        except FAULTS as error:
            if not writes or not is_lost(error):
                raise
            done, *waited = self._settled(lane, waiting)
            if not done:
                raise
            reply = b"DONE"
        if waited and reply in (b"OK", b"DONE") and not is_replicated(waited[-1], self.address):
            where = " on their disks (is appendonly set there, too?)" if len(waited) > 1 else ""
            raise Unsettled(
                f"{self.address.shown} has done what was asked for, but fewer than {self.address.replicas} "
                f"replicas had it{where} after {REPLICAS_MS // 1000} s: it may be lost with the master; look "
                "before you ask again"
            )
        return reply

    def _settled(self, lane: Lane, waiting: list[tuple[Any, ...]]) -> list[Any]:
        """Whether a commit that was never answered was done, and who has it; if not, it never will be."""
        until_s = monotonic_s() + self._patience_s
        settle = SETTLE.words([lane.key], lane.number, LANE_MS)
        while monotonic_s() < until_s and not self._closed:
            try:
                self._drop()
                return self._link.many([settle, *waiting])
            except (*FAULTS, StoreError):
                # Not back yet.
                sleep(FIRST_NAP_S)
        raise Unsettled(
            f"{self.address.shown} went away during a commit, and cannot be asked what became of it: "
            "what was asked for may have been done, or not; look before you ask again"
        )

    def _remember(self, commit: Commit) -> None:
        """What we wrote we know; the commit that goes by it will tell if it is no longer so."""
        if len(self._mine) > MINE:
            self._mine = {}
        for job_id, stamped in commit.written.items():
            if stamped is not None and stamped.job.owner:
                self._mine[job_id] = stamped
            else:
                self._mine.pop(job_id, None)

    def _give_back(self, txn: RedisTxn) -> None:
        try:
            txn.give_back()
        except FAULTS:
            # Whoever looks after their time will.
            pass

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Call `fn` on the store as it is now, again if somebody commits between its questions."""
        return self._patiently(lambda tries, _timed: self._look(fn, careful=tries > 0))

    def _look(self, fn: Callable[[ReadTxn], T], *, careful: bool) -> T:
        self._open()
        for left in reversed(range(LOOKS)):
            view = RedisView(self._link, self._keys, self.now_ms(), calm=self._calm)
            if not careful:
                view.believe(self._notice)
            result = _decided(fn, view)
            self._notice = view.door()
            if view.is_of_one_moment or not left:
                break
        return result

    def borrow(self, connection: Any, fn: Callable[[Txn], T]) -> T:
        """Refused: there are no transactions of the caller's to join."""
        raise BadInput(
            "connection",
            type(connection).__name__,
            needed="absent: Redis has no transactions to join; use SQLite or PostgreSQL for connection=",
        )

    def now_ms(self) -> int:
        """The server's clock, by which all machines agree; asked for now and then, reckoned between."""
        return self._time.now_ms(self._asked_ms)

    def _asked_ms(self) -> int:
        with faults(self.address):
            self._open()
            seconds, micros = self._link.call(b"TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    # Waiting

    def wait(self, timeout_s: float) -> bool:
        """Sleep until told by another store of this prefix, interrupted, or until somebody has committed."""
        self._presence.keep()
        return self._closed or self._wake.wait(timeout_s)

    def heed(self, *, ends: bool) -> None:
        """Whether to wake for ends alone."""
        self._wake.heeds_ends = ends

    def notify(self, *, ends: bool = False) -> None:
        """Wake the other stores of this prefix that wait."""
        try:
            with faults(self.address):
                self._wake.tell(ends=ends)
        except HoldfastError:
            # A hint that is lost; they look by themselves.
            self._wake.hush()

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._wake.interrupt()

    def appear(self, name: str) -> bool:
        """Be seen until closed: by a key that goes by itself, and is renewed while we wait or commit."""
        with faults(self.address):
            self._open()
            self._presence.appear(name)
        return True

    # For people

    def check(self) -> list[str]:
        """What is wrong, for `doctor`."""
        try:
            with faults(self.address):
                return complaints(self._link, self._keys, self.address, own=self._clock is None)
        except HoldfastError as error:
            return [str(error)]

    def facts(self) -> dict[str, str]:
        """Version, settings and sizes."""
        with faults(self.address):
            return particulars(self._link, self._keys, self.address)

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._presence.close()
        self._wake.close()
        self._link.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._link.close()


def _decided(fn: Callable[[V], T], view: V) -> T:
    """What `fn` makes of a batch or a view; where it refuses for what is only believed it is asked again."""
    try:
        return fn(view)
    except HoldfastError:
        if view.believes:
            # Perhaps for what is no longer on the door.
            raise Conflict("look again") from None
        raise


def _named(reply: Any) -> str:
    """What has changed, for the one line that is told if it never ends."""
    text = bytes(reply).decode(errors="replace")
    return f"{text.rpartition('}:')[2][:80]} has changed"
