"""Shards whose commits fail at random: before they are made, or after, so that only the reply is lost.

Nothing can be compared then, as a caller does not know what was done. When the faults are over, and upkeep
has done what they left, every promise of `checks.py` holds again, each job whose add was acknowledged is
there, none is there twice, and everything can be worked off.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core import handler as h
from holdfast.core.bounds import DAY_MS, MINUTE_MS
from holdfast.core.commands import SetRetention
from holdfast.core.errors import StoreError, Unavailable, Unsettled
from holdfast.store.common.clock import Clock
from holdfast.store.contract import Changes, ClaimQuery, Leased, Store, Txn
from holdfast.store.memory.store import MemoryStore
from holdfast.store.sharded.store import Opener, ShardedStore
from tests.doubles import Passing

from . import commands as m
from .model import Model

T = TypeVar("T")
SHARDS = 4
# Longer than a history: nothing leaves the archive.
RETENTION_MS = 3_650 * DAY_MS
# Commands that remove jobs, and those that are for all shards, which a caller repeats after an error.
LEFT_OUT = (c.Delete, c.Purge, c.Pause, SetRetention, h.SetHandler, h.RollBackHandler, h.DeleteHandler)


# Nothing, before the commit, in it without and with doubt, after it.
KINDS = ("", "refused", "undone", "lost", "unheard")
# Jobs with a key, in domains of several shards, and their follow-up jobs.
_KEYED = [
    c.NewJob(task="a", unique=b"k", domain=domain, on_conflict=on_conflict, then=then)
    for domain in (None, *m.DOMAINS)
    for on_conflict in ("keep", "merge", "replace")
    for then in (None, c.NewJob(task="a"), c.NewJob(task="a", unique=b"k", domain=b"x"))
]
_keyed_adds = st.lists(st.sampled_from(_KEYED), min_size=1, max_size=2).map(
    lambda jobs: m.Event(plans=(m.Plan(command=c.Add(jobs=tuple(jobs))),))
)
_toil = st.builds(lambda count: m.Event(toil=count), st.integers(1, 4))
_events = st.one_of(m.events, m.events, _keyed_adds, _toil)


class Faults:
    """Says which commit fails, and how."""

    def __init__(self) -> None:
        self.set(0, "")

    def set(self, commits: int, kind: str) -> None:
        """Let a fault follow after so many commits; "" is none."""
        self._commits, self._kind = commits, kind

    def take(self) -> str:
        """The fault of the next commit."""
        self._commits -= 1
        return self._kind if self._commits == -1 else ""


class FaultyStore(Passing):
    """A store whose commits fail as `faults` says."""

    def __init__(self, store: Store, faults: Faults) -> None:
        super().__init__(store)
        self._faults = faults

    def run(self, fn: Callable[[Txn], tuple[Changes, T]]) -> T:
        """Commit, unless it fails before; and reply, unless it fails after."""
        kind = self._faults.take()

        def decide(txn: Txn) -> tuple[Changes, T]:
            found = fn(txn)
            if kind == "undone":
                raise Unavailable("it went away before the commit")
            if kind == "lost":
                raise Unsettled("it went away, before the commit as it turned out")
            return found

        if kind == "refused":
            raise Unavailable("it is away")
        result = self.store.run(decide)
        if kind == "unheard":
            raise Unsettled("it went away, after the commit as it turned out")
        return result

    def commit(self, changes: Changes) -> bool:
        """The same of plain commands."""
        return self._plainly(lambda: self.store.commit(changes))

    def lease(self, query: ClaimQuery, leased: list[Leased]) -> bool:
        """The same of plain claims."""
        return self._plainly(lambda: self.store.lease(query, leased))

    def _plainly(self, call: Callable[[], bool]) -> bool:
        kind = self._faults.take()
        if kind == "refused":
            raise Unavailable("it is away")
        if kind == "undone":
            raise Unavailable("it went away before the commit")
        if kind == "lost":
            raise Unsettled("it went away, before the commit as it turned out")
        if call():
            if kind == "unheard":
                raise Unsettled("it went away, after the commit as it turned out")
            return True
        return False


class FaultyModel(Model):
    """Drives shards in memory, of which one commit in some steps fails."""

    spread = True
    faults: Faults

    def __init__(self) -> None:
        super().__init__()
        # Set when no fault follows.
        self.is_whole = False
        self.acknowledged: set[int] = set()
        self.added = 0
        self.latest_ms = self.clock()

    @initialize(mood=m.moods, seed=st.integers(0, 9))
    def begin(self, mood: dict[str, Any], seed: int) -> None:
        """Open the shards."""
        self.mood = mood
        for process in self._processes():
            process.begin(None, seed)
        self.run([SetRetention(retention_ms=RETENTION_MS)])
        self.sound = True

    @rule(event=_events, commits=st.sampled_from((0, 0, 1, 1, 2, 3)), kind=st.sampled_from(KINDS))
    def happens(self, event: m.Event, commits: int, kind: str) -> None:
        """One event, in which a commit may fail."""
        type(self).faults.set(commits, kind)
        super().happens(event)

    def _reopen(self, how: str) -> None:
        # Even a process that ends in order may not be able to give its number back.
        super()._reopen("crashed")

    def _step(self, plans: Sequence[m.Plan]) -> None:
        kept = [plan for plan in plans if not isinstance(plan.command, LEFT_OUT) and not _is_pattern(plan)]
        super()._step(kept)

    def run(self, commands: Sequence[c.Command]) -> list[Any]:
        """Run each command; the reply of one that fails is its error."""
        replies = [self._run_one(self._numbered(command)) for command in commands]
        self.view = self._look()
        return replies

    def _run_one(self, command: c.Command) -> Any:
        note(f"at {self.clock() - m.START_MS:+,} ms: {command}")
        try:
            (reply,) = self.sides[0].now.engine.execute([command]).replies
        except StoreError as error:
            if self.is_whole:
                raise
            reply = error
        note(f"    {reply}")
        if isinstance(command, c.Add) and isinstance(reply, list):
            self.acknowledged.update(reply)
        if isinstance(command, c.Claim):
            reply = reply if isinstance(reply, list) else []
            self.claims += [one.job for one in reply]
        return reply

    def _numbered(self, command: c.Command) -> c.Command:
        """The command with data that no other add has."""
        if not isinstance(command, c.Add):
            return command
        jobs = tuple(replace(new, data=self._next_data()) for new in command.jobs)
        return replace(command, jobs=jobs, more=tuple(self._next_data() for _ in command.more))

    def _next_data(self) -> str:
        self.added += 1
        return f'{{"added":{self.added}}}'

    def _advance(self, ms: int) -> None:
        super()._advance(ms)
        self.latest_ms = max(self.latest_ms, self.clock())

    def _drain(self) -> None:
        """Let upkeep do what faults have left, check every promise, and work off the rest."""
        type(self).faults.set(0, "")
        self._advance(self.latest_ms - self.clock() + MINUTE_MS + 1)
        for _ in range(10):
            self.run([c.Upkeep()])
        self.is_whole = True
        self.view = self._look()
        lost = self.acknowledged - self.view.live.keys() - self.view.archived.keys()
        assert not lost, f"acknowledged, and not there: {sorted(lost)}"
        twice = [data for data, times in Counter(self.view.data.values()).items() if times > 1]
        assert not [data for data in twice if "added" in str(data)], f"added twice: {twice}"
        super()._drain()


def faulty() -> type[FaultyModel]:
    """The model of four shards in memory whose commits may fail."""
    faults = Faults()

    def make_memory(clock: Clock) -> ShardedStore:
        stores = [FaultyStore(MemoryStore(clock), faults) for _ in range(SHARDS)]
        return ShardedStore([Opener("memory", partial(_same, store)) for store in stores])

    return type("FaultyMachine", (FaultyModel,), {"make_memory": staticmethod(make_memory), "faults": faults})


def _same(store: Store) -> Store:
    return store


def _is_pattern(plan: m.Plan) -> bool:
    return isinstance(plan.command, c.SetLimit) and plan.command.domain in m.PATTERNS
