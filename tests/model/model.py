"""The model: a store and the memory store get the same random commands, clock moves and reopenings.

After every step all that can be seen of the two is compared, replies and the texts of errors too, and
the promises of `checks.py` and `history.py` are checked. At the end of a history everything is
lifted and worked off: what then is left waiting would have waited for ever.

    Machine = machine(lambda clock, folder: MyStore(folder / "jobs", clock=clock))
    TestMyStore = Machine.TestCase

What is given opens the store, again and again within a history: it must then find what was there. The
folder is new for each history; a store that is no file may take its name.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from holdfast.core import commands as c
from holdfast.core.checks import check_command
from holdfast.core.errors import BadInput, HoldfastError
from holdfast.core.job import Code, Job, Place, State
from holdfast.core.kinds import CHORE, LIMIT, PATTERNS, PAUSE, SCHEDULE, name_of
from holdfast.core.limits import Limit
from holdfast.core.rules import waits_for_signal
from holdfast.engine.commands.schedules import read_kept
from holdfast.engine.engine import Engine
from holdfast.engine.records import read_limit, read_patterns, read_pause
from holdfast.engine.ticket import Done
from holdfast.store.common.clock import Clock
from holdfast.store.contract import AnyStore, JobFilter, ReadTxn, WaitingQuery
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

from . import commands as m
from .cast import Scene, cast, hold_of
from .checks import CHECKS
from .history import BETWEEN_SHARDS, STEP_CHECKS, WITHIN_A_SHARD, History, Step
from .routed import RoutedEngine
from .view import View, differences, look

MakeStore = Callable[[Clock, Path], AnyStore]
# Where there is a file system in memory a sync costs nothing; the model is not about the disk.
_SHARED_MEMORY = Path("/dev/shm")
# More rounds than any history of a few dozen steps needs to be worked off.
DRAIN_ROUNDS = 400


class Process:
    """Who has opened a store, and runs an engine on it. `keeps` is a store that is never closed."""

    engine: Any = None

    def __init__(self, open_store: Callable[[], AnyStore], *, keeps: bool) -> None:
        self.open_store, self.keeps = open_store, keeps
        self.store = open_store()

    def begin(self, retention_ms: int | None, seed: int) -> None:
        """Start the engine. Its rng always show the same: stores differ in how often they do a batch."""
        shown = random.Random(seed).random()
        if len(self.store.shards) > 1:
            self.engine = RoutedEngine(self.store, retention_ms=retention_ms, rng=lambda: shown)
        else:
            self.engine = Engine(self.store.shards[0], retention_ms=retention_ms, rng=lambda: shown)

    def restart(self, *, crashed: bool) -> None:
        """End, in order or not, and begin as another."""
        if not crashed:
            self.engine.ids.give_back(self.store)
        self.close()
        self.store = self.open_store()
        self.begin(None, seed=0)

    def close(self) -> None:
        """Let go of the store."""
        if isinstance(self.engine, RoutedEngine):
            self.engine.end()
        if not self.keeps:
            self.store.close()


class Side:
    """A store and the processes that use it."""

    def __init__(
        self, open_store: Callable[[], AnyStore], *, keeps: bool = False, kind: type[Process] = Process
    ) -> None:
        self.processes = [kind(open_store, keeps=keeps) for _ in range(m.PROCESSES)]
        self.now = self.processes[0]


class Model(RuleBasedStateMachine):
    """Drives the sides; the first one, on the memory store, is the one that is right."""

    make_store: MakeStore | None = None
    make_memory: Callable[[Clock], AnyStore] = MemoryStore
    # Whether the jobs are spread over shards.
    spread = False
    # How the store's commands come to its engine.
    process: type[Process] = Process
    memory_process: type[Process] = Process

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovedClock(m.START_MS)
        self.folder = TemporaryDirectory(dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
        memory = type(self).make_memory(self.clock)
        self.sides = [Side(lambda: memory, keeps=True, kind=type(self).memory_process)]
        if (make := type(self).make_store) is not None:
            kind = type(self).process
            self.sides.append(Side(lambda: make(self.clock, Path(self.folder.name)), kind=kind))
        self.history = History()
        self.history.moved(0, self.clock())
        self.claims: list[Job] = []
        self.ids: list[int] = []
        # Whether the last event came to its end: what broke is not worked off.
        self.sound = False

    # What happens

    @initialize(retention_ms=st.sampled_from((None, 0, 60_000)), mood=m.moods, seed=st.integers(0, 9))
    def begin(self, retention_ms: int | None, mood: dict[str, Any], seed: int) -> None:
        """Open both stores; `retention_ms` 0 keeps no archive."""
        self.mood = mood
        for process in self._processes():
            process.begin(retention_ms, seed)
        self.view = self._look()
        self.sound = True

    @rule(event=m.events)
    def happens(self, event: m.Event) -> None:
        """The one rule: were there more, Hypothesis would leave some out of most histories."""
        self.sound = False
        for side in self.sides:
            side.now = side.processes[event.process]
        if event.move_ms:
            self._advance(event.move_ms)
        if event.reopen:
            self._reopen(event.reopen)
        if event.page is not None:
            self._page(event.query, event.page)
        if event.toil:
            self._toil(event.toil)
        self._step(event.plans)
        self.sound = True

    def _processes(self) -> list[Process]:
        return [process for side in self.sides for process in side.processes]

    def _reopen(self, how: str) -> None:
        note(f"reopened, after it was {how}")
        for side in self.sides:
            side.now.restart(crashed=how == "crashed")
        self.view = self._look()

    def _page(self, query: JobFilter, pick: int) -> None:
        first, limit = self.ids[pick % len(self.ids)] if self.ids else 0, 1 + pick % 5

        def see(txn: ReadTxn) -> Any:
            asked = WaitingQuery(limit=limit, tenants=None if query.tenant is None else (query.tenant,))
            jobs, pairs = txn.jobs(query, after=first, limit=limit), txn.waiting(asked)
            return jobs, pairs, txn.counts(tenant=query.tenant), txn.load(self.ids[-limit:])

        pages = [side.now.store.read(see) for side in self.sides]
        assert all(page == pages[0] for page in pages), f"{query} after {first}: {pages}"

    def _toil(self, count: int) -> None:
        self.run([c.Claim(limit=count, lease_ms=60_000, mock=True)])
        standing = [job for job in self.view.live.values() if job.owner]
        last = tuple(standing[-count:])
        if last and count % 2:
            self.run([c.AnswerAll(answers=tuple(c.Answer(hold=hold_of(job)) for job in last), held=last)])
        elif last:
            self.run([c.Answer(hold=hold_of(job), held=job) for job in last])

    def _step(self, plans: Sequence[m.Plan]) -> None:
        scene = Scene(view=self.view, claims=self.claims, ids=self.ids, mood=self.mood)
        commands = [command for plan in plans if _is_good(command := cast(plan, scene))]
        if commands:
            self.run(commands)

    def _pretty_print(self, value: Any) -> str:
        # Hypothesis would show how a plan was drawn, which is longer and tells less.
        return repr(value)

    def teardown(self) -> None:
        """Work off what there is, and let go."""
        try:
            if self.sound:
                self._drain()
        finally:
            for process in self._processes():
                process.close()
            self.folder.cleanup()

    # How it is checked

    def run(self, commands: Sequence[c.Command]) -> list[Any]:
        """Run one transaction on all sides, compare what it did, and check what it may do."""
        if len(commands) > 1 and self.spread:
            # There each is a transaction of its own.
            return [reply for command in commands for reply in self.run([command])]
        number = self.sides[0].processes.index(self.sides[0].now)
        note(f"at {self.clock() - m.START_MS:+,} ms, process {number}: {commands}")
        done: list[Done] = [side.now.engine.execute(commands) for side in self.sides]
        replies = done[0].replies
        note(f"    {replies}")
        for other in done[1:]:
            assert _told(other) == _told(done[0]), f"replies differ: {_told(done[0])} and {_told(other)}"
            # A claim that needed no batch does not say when something is due; each store decides which do.
            assert None in (other.next_ms, done[0].next_ms) or other.next_ms == done[0].next_ms
        before, self.view = self.view, self._look()
        step = Step(*_parts(commands, replies), before, self.view)
        self.history.note(step)
        left_out, added = (WITHIN_A_SHARD, BETWEEN_SHARDS) if self.spread else ((), ())
        for check_step in (*(one for one in STEP_CHECKS if one not in left_out), *added):
            _complain(check_step.__name__, list(check_step(step, self.history)))
        self.claims += [one.job for _, got in step.claimed() for one in got]
        return replies

    def _look(self) -> View:
        """What all sides show, which is the same and keeps every promise."""
        known = set(self.ids)
        stores = [side.now.store for side in self.sides]
        views = [look(store, ids=known, tenants=m.TENANTS) for store in stores]
        for other in views[1:]:
            _complain("the stores differ", differences(views[0], other))
        for check_view in CHECKS:
            _complain(check_view.__name__, list(check_view(views[0])))
        self.ids += sorted((views[0].live.keys() | views[0].archived.keys()) - known)
        return views[0]

    def _advance(self, ms: int) -> None:
        note(f"the clock moves by {ms:+,} ms")
        self.clock.advance(ms)
        self.history.moved(ms, self.clock())

    # How it ends

    def _drain(self) -> None:
        """Lift whatever holds jobs back, then work until nothing is left to be worked."""
        note("drained:")
        self.run(_lifted(self.view))
        for _ in range(DRAIN_ROUNDS):
            held = [job for job in self.view.live.values() if job.owner]
            if held:
                self._finish(held)
            before = self.view
            got = self.run([c.Claim(limit=100, lease_ms=60_000, mock=True)])[0]
            # Also a claim that finds nothing ends expired jobs, and adds what follows them.
            if not got and self.view == before and not self._go_on() and not self._sleep():
                break
        for job in self.view.live.values():
            assert job.place == Place.DONE or self._is_explained(job), f"job {job.id} waits for ever: {job}"

    def _is_explained(self, job: Job) -> bool:
        """Whether a job waits for an operator: for a FAILED child or parent, or for a child that does so."""
        parent = self.view.live.get(job.parent_id)
        if job.place != Place.PAUSED or job.children.failed or waits_for_signal(job):
            return job.place == Place.PAUSED
        if not job.children.pending:
            return parent is not None and parent.ended == State.FAILED
        children = self.view.family()[job.id]
        return any(child.place == Place.PAUSED and self._is_explained(child) for child in children)

    def _finish(self, held: list[Job]) -> None:
        holds = [hold_of(job) for job in held]
        replies = self.run([c.Answer(hold=hold, ignore_repeat=True) for hold in holds])
        # What cannot finish, because of its family, can fail; a native repeat would begin anew.
        stuck = [hold for hold, reply in zip(holds, replies, strict=True) if isinstance(reply, HoldfastError)]
        if stuck:
            self.run([c.Update(job_id=hold.job_id, repeat="") for hold in stuck])
            self.run([c.Answer(hold=hold, code=Code.FAILED) for hold in stuck])

    def _go_on(self) -> bool:
        """What is left of long work, which this process may not know of before its upkeep is due."""
        left = any(kind == CHORE for kind, _ in self.view.records)
        if left:
            self.run([c.Upkeep()])
        return left

    def _sleep(self) -> bool:
        """Until something becomes true by itself; whether there is such a moment."""
        first = self.view.moments.first
        if first is None:
            return False
        self._advance(max(first - self.clock(), 1))
        return True


def machine(
    make_store: MakeStore | None,
    make_memory: Callable[[Clock], AnyStore] = MemoryStore,
    *,
    spread: bool = False,
) -> type[Model]:
    """The model of a store, which `make_store` opens; None: the memory store alone, promises only.

    A store whose jobs are `spread` over shards is held against memory stores that are sharded in the same
    way: numbers tell where a job lives, and no order is promised between shards, so one store alone shows
    another history. Every promise is checked all the same, but for `WITHIN_A_SHARD`.
    """
    made = staticmethod(make_store) if make_store else None
    options = {"make_store": made, "make_memory": staticmethod(make_memory), "spread": spread}
    return type("Machine", (Model,), options)


def _is_good(command: c.Command) -> bool:
    try:
        check_command(command)
    except BadInput:
        return False
    return True


def _told(done: Done) -> Any:
    return _comparable(done.replies), done.woke, done.ended


def _comparable(reply: Any) -> Any:
    """A reply as it is compared: errors by their type and text, also among those of many answers."""
    if isinstance(reply, Exception):
        return type(reply), str(reply)
    return [_comparable(one) for one in reply] if isinstance(reply, list) else reply


def _parts(commands: Sequence[c.Command], replies: list[Any]) -> tuple[list[c.Command], list[Any]]:
    """Commands and replies, many answers in one command each by itself."""
    pairs = list[tuple[c.Command, Any]]()
    for command, reply in zip(commands, replies, strict=True):
        answers = command.answers if isinstance(command, c.AnswerAll) else ()
        pairs += zip(answers, reply, strict=True) if answers else [(command, reply)]
    return [command for command, _ in pairs], [reply for _, reply in pairs]


def _complain(name: str, complaints: list[str]) -> None:
    assert not complaints, f"{name}: " + "\n    ".join(complaints)


def _lifted(view: View) -> list[c.Command]:
    """The commands that lift every pause and schedule, and limits that let nothing run."""
    lifted: list[c.Command] = []
    for (kind, name), raw in view.records.items():
        if kind == PAUSE:
            tenant, task, domain = read_pause(name)
            lifted.append(c.Pause(tenant=tenant, task=task, domain=domain, on=False))
        elif kind == SCHEDULE:
            schedule = read_kept(raw).schedule
            lifted.append(c.DeleteSchedule(name=schedule.name, tenant=schedule.tenant))
    for tenant in m.TENANTS:
        for domain, limit in _limits(view, tenant):
            if limit.concurrency == 0:
                lifted.append(c.SetLimit(tenant=tenant, domain=domain, limit=replace(limit, concurrency=1)))
    return lifted or [c.Upkeep()]


def _limits(view: View, tenant: str) -> list[tuple[bytes, Limit]]:
    own = [(domain, view.records.get((LIMIT, name_of(tenant, domain)))) for domain in m.DOMAINS]
    patterns = view.records.get((PATTERNS, name_of(tenant)))
    found = [(domain, read_limit(raw)) for domain, raw in own if raw]
    return found + (list(read_patterns(patterns).limits) if patterns else [])
