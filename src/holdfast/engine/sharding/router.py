"""Routes commands to the committers of the shards. See docs/decisions/0010.

    for one job, domain, key …   ──▶ its committer                     as on a single store
    a claim                      ──▶ the committers in turn             (`sharded_claim`)
    many answers                 ──▶ each to the committer of its job   (`Answers`)
    for several or all shards    ──▶ a thread that asks them one after the other
                                     (pauses, patterns, purging, upkeep, requeues, handlers, workers,
                                     schedules by name, adds of jobs that belong in several shards)

Every command, and every part of one, is a transaction of one shard. A committer returns a ticket whose error
another shard may resolve, and one whose jobs have moved to another store (`MoveFollower`).
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import handler as h
from ...core import ids
from ...core.checks import check_defaults
from ...core.commands import RunSchedule, SetRetention, StopWorker, TakeSysid
from ...core.errors import (
    BadInput,
    Closed,
    HoldfastError,
    Moved,
    NotFound,
    StoreError,
    Unavailable,
    Unsettled,
)
from ...core.job import Job
from ...core.kinds import SCHEDULE, name_of
from ...core.slots import check_followers, check_one_slot, shard_of, slot_of_schedule, slot_of_worker
from ...store.contract import ReadTxn
from ..commands.adding import NameGone
from ..commands.handlers import MarkHandled
from ..commands.sysids import MarkRestored
from ..commands.verbs import RepairCounts
from ..committer import Committer
from ..engine import AnyEngine
from ..ticket import Submitter, Ticket, deliver
from .sharded import ShardedEngine, slot_of, slot_of_new
from .sharded_claim import ClaimPart, ShardedClaim

# Threads for commands to several shards; they wait for committers most of the time.
THREADS = 8


class MoveFollower(Protocol):
    """Submits commands to the store that this one has moved to."""

    def resubmit(self, ticket: Ticket, moved: Moved, *, by: AnyEngine) -> bool:
        """Submit a command again that an engine has answered with `Moved`; False if that is impossible."""

    def ask_there(self, command: c.Command, moved: Moved, *, by: AnyEngine) -> Any:
        """Ask again for a command that an engine has answered with `Moved`; returns its reply."""


class PartTicket(Ticket):
    """The part of a command for one shard; the thread that waits for it handles its errors."""

    __slots__ = ()


class AnswerPart(Ticket):
    """The answers of an `AnswerAll` for one shard. No caller waits for it, so it cannot be abandoned."""

    __slots__ = ("_on_reply",)

    def __init__(self, command: c.Command, on_reply: Callable[[Any], None]) -> None:
        super().__init__(command)
        self._on_reply = on_reply

    def answer(self, reply: Any) -> bool:
        """Pass the reply on."""
        self.answered = True
        self._on_reply(reply)
        return True


class Answers:
    """One `AnswerAll`: a part for each shard, whose replies are collected."""

    def __init__(self, ticket: Ticket, command: c.AnswerAll, router: "ShardRouter") -> None:
        self._ticket, self._command, self._router = ticket, command, router
        self._replies: list[Any] = [None] * len(command.answers)
        self._lock = threading.Lock()
        self._open = 0

    def go(self) -> None:
        """Submit all parts."""
        groups = self._router.grouped(answer.hold.job_id for answer in self._command.answers)
        self._open = len(groups)
        if not groups:
            self._reply()
        answers, held = self._command.answers, self._command.held
        for at, those in groups.items():
            part = c.AnswerAll(
                answers=tuple(answers[one] for one in those),
                held=tuple(held[one] for one in those) if held else (),
            )
            self._router.submit_to(at, AnswerPart(part, partial(self._add, those)))

    def _add(self, those: Sequence[int], reply: Any) -> None:
        with self._lock:
            for at, one in enumerate(those):
                self._replies[one] = reply if isinstance(reply, Exception) else reply[at]
            self._open -= 1
            if self._open:
                return
        self._reply()

    def _reply(self) -> None:
        if self._ticket.answer(self._replies):
            deliver([self._ticket], self._router.give_back)


class ShardRouter(Submitter):
    """Submits commands to several shards, each with its own committer."""

    def __init__(self, engine: ShardedEngine, follower: MoveFollower | None = None) -> None:
        self.engine = engine
        self._shards, self._of = engine.store.shards, len(engine.store.shards)
        self._follower = follower
        self._committers = [Committer(one, divert=self._divert) for one in engine.engines]
        self._turns = count()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._lock = threading.Lock()

    # Routing

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; raises its error."""
        at = self._find_shard(command)
        return (
            super().ask(command, wait_s=wait_s)
            if at is None
            else self._committers[at].ask(command, wait_s=wait_s)
        )

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        command = ticket.command
        if isinstance(command, c.Claim):
            ShardedClaim(ticket, command, self._turn(), self._committers, self, self._follow).go()
            return
        if isinstance(command, c.AnswerAll):
            Answers(ticket, command, self).go()
            return
        at = self._find_shard(command)
        if at is not None:
            self._committers[at].submit(ticket)
        elif not self._run_in_pool(ticket):
            raise Closed

    def submit_to(self, at: int, ticket: Ticket) -> None:
        """Submit a command to one shard; an error is its reply."""
        try:
            self._committers[at].submit(ticket)
        except HoldfastError as error:
            ticket.answer(error)

    def grouped(self, job_ids: Iterable[int]) -> dict[int, list[int]]:
        """The positions of these ids, by the shard that each is in."""
        groups: dict[int, list[int]] = {}
        for at, job_id in enumerate(job_ids):
            groups.setdefault(shard_of(job_id, self._of), []).append(at)
        return groups

    def _find_shard(self, command: c.Command) -> int | None:
        """The one shard that a command needs, or None; raises if a job would belong in two."""
        if isinstance(command, c.Add):
            return self._shard_of_add(command)
        if self._is_anywhere(command):
            return self._turn()[0]
        slot = slot_of(command)
        return None if slot is None else slot % self._of

    def _shard_of_add(self, command: c.Add) -> int | None:
        for new in command.every() if command.ids else command.jobs:
            check_one_slot(new)
        if self._has_name(command):
            return None
        if command.ids:
            found: set[int | None] = {shard_of(job_id, self._of) for job_id in command.ids}
        else:
            found = {self._shard_for(new) for new in command.jobs} - {None}
        if len(found) > 1:
            return None
        return found.pop() if found else self._turn()[0]

    def _has_name(self, command: c.Add) -> bool:
        """Whether a job of the port is unique by its name, which a job of any shard may have."""
        return any(new.strict and new.unique is not None for new in command.jobs)

    def _shard_for(self, new: c.NewJob) -> int | None:
        slot = slot_of_new(new)
        return None if slot is None else slot % self._of

    def _turn(self, first: int | None = None) -> list[int]:
        """All shards, from `first` on or else in round-robin order; those that are down come last."""
        first = next(self._turns) if first is None else first
        order = [(first + step) % self._of for step in range(self._of)]
        return sorted(order, key=lambda at: not self._shards[at].is_up)

    def _is_anywhere(self, command: c.Command) -> bool:
        """Whether any shard can run a command: it asks for ids or a sysid."""
        return isinstance(command, c.ReserveIds) or (isinstance(command, TakeSysid) and not command.number)

    def _is_free(self, command: c.Command) -> bool:
        """Whether a command may go to any shard."""
        if self._is_anywhere(command):
            return True
        if not isinstance(command, c.Add) or command.ids:
            return False
        return all(self._shard_for(new) is None for new in command.jobs)

    # Several shards, one after the other

    def _run(self, command: c.Command) -> Any:
        """The reply to a command that needs several shards, or a choice of one."""
        return self._ask_any(command) if self._is_free(command) else _RUNS[type(command)](self, command)

    def _ask_any(self, command: c.Command, first: int | None = None) -> Any:
        """Run a command in the first shard that is up, from `first` on or in round-robin order."""
        fault: StoreError | None = None
        for at in self._turn(first):
            try:
                return self._ask(at, command)
            except Unsettled:
                raise
            except StoreError as error:
                fault = fault or error
        assert fault is not None
        raise fault

    def _ask_all(self, command: c.Command) -> Any:
        """Run a command in every shard; return the combined reply."""
        replies: list[Any] = []
        faults: list[StoreError] = []
        for at in range(self._of):
            try:
                replies.append(self._ask(at, command))
            except StoreError as error:
                faults.append(error)
        if faults and (not replies or not isinstance(command, c.Upkeep | c.Dismiss)):
            raise _where_not(faults[0]) if replies else faults[0]
        return min((reply for reply in replies if reply is not None), default=None)

    def _ask_by_name(self, command: c.Command) -> Any:
        """Run a command in every shard that knows the name; return the first reply."""
        replies: list[Any] = []
        refused: list[HoldfastError] = []
        for at in range(self._of):
            try:
                replies.append(self._ask(at, command))
            except (NotFound, StoreError) as error:
                refused.append(error)
        if not replies:
            raise next((one for one in refused if not isinstance(one, NotFound)), refused[0])
        return replies[0]

    def _purge(self, command: c.Purge) -> int:
        """Delete ended jobs, shard by shard; return their number."""
        count, fault = 0, None
        for at in range(self._of):
            try:
                if count < command.limit:
                    count += self._ask(at, replace(command, limit=command.limit - count))
            except StoreError as error:
                fault = fault or error
        if fault is not None:
            raise _where_not(fault) if count else fault
        return count

    def _requeue_all(self, command: c.RequeueAll) -> None:
        for at, those in self.grouped(command.job_ids).items():
            self._ask(at, replace(command, job_ids=tuple(command.job_ids[one] for one in those)))

    def _enlist(self, command: c.Enlist) -> Any:
        return self._ask_any(command, first=slot_of_worker(command.worker.name))

    def _publish(self, command: c.Publish) -> Any:
        for _, _, defaults in command.tasks:
            check_defaults(defaults)
            # Whichever domain a job of the task has: its claim adds these.
            followers = filter(None, (defaults.then, defaults.on_failure))
            check_followers([msgspec.json.decode(one, type=c.NewJob) for one in followers], None)
        return self._ask_all(command)

    def _set_schedule(self, command: c.SetSchedule) -> Any:
        """Set a schedule in the shard of its jobs, unless there is one of its name in another."""
        schedule = command.schedule
        new = replace(command.job, tenant=schedule.tenant)
        check_one_slot(new)
        home = slot_of_schedule(schedule.name, new) % self._of
        name = name_of(schedule.tenant, schedule.name)
        for at, shard in enumerate(self._shards):
            # A shard that is down is skipped, so that it does not stop those that set the same again.
            if at != home and shard.is_up and shard.read(lambda txn: txn.rows(SCHEDULE, [name])):
                found = f"{schedule.name!r}, which adds jobs in shard {at} of {self._of}"
                needed = f"one of shard {home}, where its jobs would be now: delete it first"
                raise BadInput("schedule", found, needed=needed)
        return self._ask(home, command)

    def _change_handler(self, command: Any) -> Any:
        """Change a handler in its shard, and the marks in all: after it is set, before it is deleted."""
        of = command.handler if isinstance(command, h.SetHandler) else command
        home = ids.slot_of(of.tenant, of.task) % self._of
        on = not isinstance(command, h.DeleteHandler)
        reply = self._ask(home, command) if on else None
        for at in range(self._of):
            if at != home:
                self._ask(at, MarkHandled(tenant=of.tenant, task=of.task, on=on))
        return reply if on else self._ask(home, command)

    # Adding

    def _add(self, command: c.Add) -> list[int]:
        """Add jobs that belong in several shards, those of each in one transaction."""
        if self._has_name(command):
            return self._add_named(command)
        jobs = tuple(command.every())
        groups: dict[int | None, list[int]] = {}
        for one, new in enumerate(jobs):
            groups.setdefault(self._shard_for(new), []).append(one)
        made: dict[int, int] = {}
        for at, those in groups.items():
            part = replace(command, jobs=tuple(jobs[one] for one in those), more=(), ids=())
            found = self._ask_any(part) if at is None else self._ask(at, part)
            made |= dict(zip(those, found, strict=True))
        return [made[one] for one in range(len(jobs))]

    def _add_named(self, command: c.Add) -> list[int]:
        """Add jobs of the port one by one, each where a job has its name, or else where it belongs."""
        found = []
        for new in command.every():
            parent = self._find(new.parent_id) if new.parent_id else None
            new = new if parent is None else replace(new, mock=parent.mock)  # noqa: PLW2901 - as the parent
            (job_id,) = self._add_one_named(replace(command, jobs=(new,), more=(), ids=()))
            found.append(job_id)
        return found

    def _add_one_named(self, command: c.Add) -> Any:
        (new,) = command.jobs
        home = self._shard_for(new)
        if home is None:
            return self._ask_any(command)
        # An id that exists is that of the same add, made before.
        is_sought = new.unique is not None and not (new.id and self._find(new.id))
        for at, shard in enumerate(self._shards) if is_sought else ():
            # A shard that is down is skipped, so that it does not block jobs of other shards.
            if at == home or not shard.is_up:
                continue
            if shard.read(lambda txn: txn.named(new.tenant, new.task, mock=new.mock)):
                try:
                    return self._ask(at, replace(command, hold=None))
                except NameGone:
                    continue
        return self._ask(home, command)

    def _find(self, job_id: int) -> Job | None:
        """A job, live or archived."""

        def find(txn: ReadTxn) -> Job | None:
            return txn.load([job_id]).get(job_id) or txn.archived([job_id]).get(job_id)

        return self._shards[shard_of(job_id, self._of)].read(find)

    # Waking, closing

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function, as a hint, when progress or a log may have changed in any shard."""
        for committer in self._committers:
            committer.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        for committer in self._committers:
            committer.unlisten(listener)

    def close(self) -> None:
        """Commit what is pending, answer waiting callers, and close the shards."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.shutdown()
        for committer in self._committers:
            committer.close()
        self.engine.close()

    # Threads and moves

    def _ask(self, at: int, command: c.Command) -> Any:
        """Run a part of a command in a shard; returns its reply or raises its error."""
        ticket = PartTicket(command)
        self._committers[at].submit(ticket)
        reply = ticket.wait_for_reply()
        if isinstance(reply, Moved) and self._follower is not None:
            # Parts that are done stay done: only this one goes to the new store.
            return self._follower.ask_there(command, reply, by=self.engine)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def _follow(self, ticket: Ticket, reply: Any) -> bool:
        """Submit a command to the new store if its reply says that the jobs have moved; else False."""
        if self._follower is None or not isinstance(reply, Moved):
            return False
        return self._follower.resubmit(ticket, reply, by=self.engine)

    def _run_in_pool(self, ticket: Ticket) -> bool:
        """Run a command in a thread, since a committer must not wait for another; False if closed."""
        with self._lock:
            if self._closed:
                return False
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-shards")
            self._pool.submit(self._answer, ticket)
            return True

    def _answer(self, ticket: Ticket) -> None:
        try:
            reply: Any = self._run(ticket.command)
        except Exception as error:
            reply = error
        if not self._follow(ticket, reply) and ticket.answer(reply):
            deliver([ticket], self.give_back)

    def _divert(self, ticket: Ticket, error: Exception) -> bool:
        """Take over a ticket whose error another shard may resolve; else False."""
        if isinstance(ticket, PartTicket | ClaimPart):
            return False
        if isinstance(error, Moved):
            return self._follow(ticket, error)
        again = isinstance(error, StoreError) and not isinstance(error, Unsettled)
        return again and self._is_free(ticket.command) and self._run_in_pool(ticket)


def _where_not(fault: StoreError) -> Unavailable:
    return Unavailable(f"done, but not everywhere; say it again when all are there. {fault}")


# Commands that need several shards, or choose one; of limits and pauses those that name no domain.
_RUNS: dict[type[c.Command], Callable[[ShardRouter, Any], Any]] = {
    c.Add: ShardRouter._add,
    c.Enlist: ShardRouter._enlist,
    c.Purge: ShardRouter._purge,
    c.Publish: ShardRouter._publish,
    c.RequeueAll: ShardRouter._requeue_all,
    c.SetSchedule: ShardRouter._set_schedule,
    **dict.fromkeys((c.DeleteSchedule, c.PauseSchedule, RunSchedule, StopWorker), ShardRouter._ask_by_name),
    **dict.fromkeys((h.SetHandler, h.RollBackHandler, h.DeleteHandler), ShardRouter._change_handler),
    **dict.fromkeys((c.SetLimit, c.Pause, c.Upkeep, c.Dismiss, SetRetention), ShardRouter._ask_all),
    **dict.fromkeys((MarkRestored, RepairCounts), ShardRouter._ask_all),
}
