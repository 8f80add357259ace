"""The engine: a batch of commands becomes one transaction and a list of replies.

    load what the batch touches ─▶ let the rules decide each command ─▶ write once ─▶ claims ─▶ reply

A command that breaks a rule fails alone. A reply means *durably committed*. Claims come last, after
upkeep has let what is due be so.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core import checks, rules
from ..core import commands as c
from ..core.bounds import DEFAULT_RETENTION_MS
from ..core.errors import BadInput, Conflict, HoldfastError
from ..core.job import Job, Place
from ..store.contract import ReadTxn, Store, Txn
from . import upkeep
from .batch import Batch, slot_for
from .claims import claim
from .records import SETTING
from .sysid import IdMaker, IdSource
from .verbs import VERBS, Ref

T = TypeVar("T")
RETENTION = "retention_ms"


class Done:
    """What a transaction leaves besides its replies."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        # Something may be claimed, or has ended: those who wait should look.
        self.woke = False
        self.ended: set[int] = set()
        # When something next becomes true by itself; known after claims and upkeep only.
        self.next_ms: int | None = None


class Engine:
    """Turns commands into transactions on one store."""

    def __init__(self, store: Store, *, retention_ms: int | None = None, dice: Callable[[], float]) -> None:
        self.store = store
        self.ids = IdSource()
        self._dice = dice
        self._retention_wanted = retention_ms
        self._retention_ms: int | None = None
        # When the rest of upkeep is due; at first use, at once.
        self.next_upkeep_ms = 0

    def execute(self, commands: Sequence[c.Command]) -> Done:
        """Run commands as one transaction; what a command raised is its reply."""
        attempts = 0
        maker: IdMaker | None = None

        def fn(txn: Txn) -> Done:
            nonlocal attempts, maker
            attempts += 1
            maker = self.ids.begin(txn)
            # What a holder says it has is believed once: a swap refuses it if it is not so.
            return self._transact(txn, maker, commands, trust=attempts == 1)

        done = self.store.run(fn)
        assert maker is not None
        self.ids.adopt(maker)
        if done.woke or done.ended:
            self.store.notify()
        return done

    def execute_in(self, connection: Any, command: c.Command) -> Any:
        """Run one command inside the caller's own transaction, which he commits or rolls back."""

        def fn(txn: Txn) -> Any:
            maker = self.ids.begin(txn)
            maker.once()
            if isinstance(command, c.Add):
                return _insert_fresh(txn, maker, command)
            done = self._transact(txn, maker, [command], trust=False)
            return done.replies[0]

        reply = self.store.borrow(connection, fn)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def read(self, fn: Callable[[ReadTxn], T]) -> T:
        """Look at the store, beside writers."""
        return self.store.read(fn)

    def close(self) -> None:
        """Give the sysid back and let go of the store."""
        try:
            self.ids.give_back(self.store)
        finally:
            self.store.close()

    def _transact(self, txn: Txn, maker: IdMaker, commands: Sequence[c.Command], *, trust: bool) -> Done:
        retention_ms = self._retention(txn)
        batch = Batch(txn, maker, retention_ms=retention_ms, dice=self._dice)
        claims = any(isinstance(command, c.Claim | c.Upkeep) for command in commands)
        done = Done()
        _preload(batch, commands, trust=trust)
        if claims:
            upkeep.promote(batch)
            if txn.now_ms >= self.next_upkeep_ms or any(isinstance(x, c.Upkeep) for x in commands):
                self.next_upkeep_ms = upkeep.rest(batch)
            batch.keep()
        replies = {at: _decide(batch, x, trust) for at, x in enumerate(commands) if type(x) in VERBS}
        _settled(batch)
        for at, command in enumerate(commands):
            if isinstance(command, c.Claim):
                replies[at] = claim(batch, command)
        if claims:
            _settled(batch)
        batch.finish()
        done.replies = [_reply(batch, replies.get(at)) for at in range(len(commands))]
        done.woke, done.ended = batch.woke, batch.ended
        if claims:
            done.next_ms = self._next_ms(txn)
            for at, command in enumerate(commands):
                if isinstance(command, c.Upkeep):
                    done.replies[at] = done.next_ms
        return done

    def _next_ms(self, txn: Txn) -> int:
        first = txn.moments().first
        return self.next_upkeep_ms if first is None else min(first, self.next_upkeep_ms)

    def _retention(self, txn: Txn) -> int:
        """How long the archive keeps jobs: what was said last, by anybody, holds for all."""
        if self._retention_ms is None or txn.now_ms >= self.next_upkeep_ms:
            raw = txn.records(SETTING, [RETENTION]).get(RETENTION)
            stored = int(raw) if raw else DEFAULT_RETENTION_MS
            if self._retention_wanted is not None and self._retention_wanted != stored:
                stored = self._retention_wanted
                txn.put_records(SETTING, {RETENTION: str(stored).encode()})
            self._retention_wanted = None
            self._retention_ms = stored
        return self._retention_ms


def check(command: c.Command) -> None:
    """Refuse bad input before it goes anywhere."""
    if isinstance(command, c.Add):
        for new in command.jobs:
            checks.check_new(new)
    else:
        checks.check_command(command)


def _preload(batch: Batch, commands: Sequence[c.Command], *, trust: bool) -> None:
    """Load what the batch touches in one read."""
    wanted: set[int] = set()
    for command in commands:
        if (
            isinstance(command, c.Answer)
            and trust
            and command.held is not None
            and not command.held.parent_id
        ):
            batch.bring(command.held)
        elif isinstance(command, c.Add):
            wanted |= {new.parent_id for new in command.jobs if new.parent_id}
        elif hold := getattr(command, "hold", None):
            wanted.add(hold.job_id)
        elif job_id := getattr(command, "job_id", 0):
            wanted.add(job_id)
    if wanted:
        batch.load(wanted)


def _decide(batch: Batch, command: c.Command, trust: bool) -> Any:
    try:
        reply = VERBS[type(command)](batch, command)
    except Conflict:
        raise
    except HoldfastError as error:
        if trust and isinstance(command, c.Answer):
            # It may have been refused for what is no longer so.
            raise Conflict("look again") from None
        batch.drop()
        return error
    batch.keep()
    return reply


def _settled(batch: Batch) -> None:
    batch.flush()
    if batch.domains:
        batch.domains.settle()
        batch.keep()
        batch.flush()


def _reply(batch: Batch, reply: Any) -> Any:
    return batch.final(reply.job_id) if isinstance(reply, Ref) else reply


def _insert_fresh(txn: Txn, maker: IdMaker, command: c.Add) -> list[int]:
    """Insert only: SCHEDULED and due, in no count; promotion does the rest, so nobody is held up."""
    rows = []
    for new in command.jobs:
        if new.unique is not None or new.parent_id:
            what = "unique" if new.unique is not None else "parent"
            raise BadInput(what, "given", needed="absent inside your own transaction (connection=)")
        job = rules.create(new, job_id=new.id or maker.make(slot=slot_for(new)), now_ms=txn.now_ms)
        rows.append((_scheduled(job), new.data))
    txn.insert(rows)
    return [job.id for job, _ in rows]


def _scheduled(job: Job) -> Job:
    return replace(job, place=Place.SCHEDULED, rank=job.run_at, fresh=True)
