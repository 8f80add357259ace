"""Multi-shard operations: routes a command to its shard, and runs those that need several shards in steps.

    one shard     nearly all commands: its committer runs them
    Add           split by shard; jobs whose unique key belongs to another shard in two steps (`_add_keyed`)
    requeue       first the key, if it belongs to another shard, then the job
    handlers      versions in the shard of (tenant, task), and a mark in every shard that there is one
    all shards    pauses, patterns, purging, upkeep

Every step is a transaction of one shard, run by `ask`, which returns its reply or raises. docs/decisions/0010
describes what a crash between two steps leaves.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from time import sleep
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core import handler as h
from ...core import unique
from ...core.errors import HoldfastError, Moved, NotFound, StoreError, Unavailable, Unsettled
from ...core.job import Job, whole_second
from ...core.managing import StopWorker
from ...core.slots import shard_of, slot_of_key, slot_of_worker
from ...core.sysid import TakeSysid
from ...core.unique import UniqueKey
from ...store.contract import ReadTxn
from ...store.sharded.shard import Shard
from ..batch.holders import Freed, find_holders, put_back_refused
from ..batch.pointers import Elsewhere
from ..commands.handlers import MarkHandled
from ..commands.keys import FreeKey, Hit, NotHeld, TakeKey, key_after, taken
from ..commands.outbox import DeliverJob, RemoveMessage, read
from . import places
from .shared_ids import SharedIds

# The delays after which an add checks again whether another add of the same key has finished its second step.
KEY_RETRY_S = (0.002, 0.01, 0.03, 0.1, 0.3, 0.6)

Ask = Callable[[int, c.Command], Any]
Send = Callable[[int, c.NewJob], int]


class ShardOperations:
    """Runs commands on the shards of one queue."""

    def __init__(self, shards: Sequence[Shard], ids: SharedIds, ask: Ask) -> None:
        self._shards, self._ids, self._ask = shards, ids, ask
        self._turns = count()

    # Where

    def find_shard(self, command: c.Command) -> int | None:
        """The one shard that a command needs, or None; raises if a job would belong to two shards."""
        if isinstance(command, c.Add):
            return self._only_add(command)
        if self._is_anywhere(command):
            return self.turn()[0]
        if isinstance(command, c.Requeue | h.SetHandler) or getattr(command, "task", None) is not None:
            return None
        slot = places.slot_of(command)
        return None if slot is None else slot % len(self._shards)

    def _only_add(self, command: c.Add) -> int | None:
        for new in command.every() if command.ids else command.jobs:
            places.check_place(new)
        if command.ids:
            homes = {shard_of(job_id, len(self._shards)) for job_id in command.ids}
            in_steps = any(self._in_steps(new) for new in command.every())
            return None if in_steps or len(homes) > 1 else homes.pop()
        found = {self._shard_for(new) for new in command.jobs} - {None}
        if len(found) > 1 or any(self._in_steps(new) for new in command.jobs):
            return None
        return found.pop() if found else self.turn()[0]

    def _in_steps(self, new: c.NewJob) -> bool:
        """Whether adding a job needs several steps in different shards."""
        away = places.is_away(new, len(self._shards))
        return away or (new.strict and new.unique is not None and len(self._shards) > 1)

    def _shard_for(self, new: c.NewJob) -> int | None:
        slot = places.slot_of_new(new)
        return None if slot is None else slot % len(self._shards)

    def turn(self) -> list[int]:
        """All shards in round-robin order; those that are down come last."""
        first, of = next(self._turns), len(self._shards)
        order = [(first + step) % of for step in range(of)]
        return sorted(order, key=lambda at: not self._shards[at].is_up)

    def _is_anywhere(self, command: c.Command) -> bool:
        """Whether any shard can run a command: it asks for ids or a sysid."""
        return isinstance(command, c.ReserveIds) or (isinstance(command, TakeSysid) and not command.number)

    def is_free(self, command: c.Command) -> bool:
        """Whether a command may go to any shard."""
        if self._is_anywhere(command):
            return True
        if not isinstance(command, c.Add) or command.ids:
            return False
        return all(self._shard_for(new) is None for new in command.jobs)

    # What

    def do(self, command: c.Command) -> Any:
        """The reply to any command but a claim."""
        if isinstance(command, c.Add):
            return self._add(command)
        if isinstance(command, c.ReserveIds | TakeSysid) and self._is_anywhere(command):
            return self._add_anywhere(command)
        if isinstance(command, c.Enlist | c.Dismiss):
            return self._workers(command)
        if isinstance(command, StopWorker):
            return self._stop_worker(command)
        if isinstance(command, c.RequeueAll):
            return self._requeue_all(command)
        if isinstance(command, h.SetHandler | h.RollBackHandler | h.DeleteHandler):
            return self._change_handler(command)
        at = self.find_shard(command)
        if at is not None:
            return self._settled(at, command)
        if places.slot_of(command) is not None:
            return self._put_back(command)
        return self._all(command)

    def deliver(self, outbox: dict[str, bytes]) -> None:
        """Deliver outbox messages to their shards; upkeep retries those that fail."""
        for name, raw in outbox.items():
            try:
                self._deliver(read(raw))
                self.do(RemoveMessage(name=name))
            except HoldfastError:
                # A job that cannot be added must not block the others.
                continue

    def _deliver(self, new: c.NewJob) -> None:
        def send(at: int, job: c.NewJob) -> int:
            (job_id,) = self._ask(at, DeliverJob(job=job))
            return int(job_id)

        if new.unique is not None:
            self._add_keyed(new, send, follows=True)
        else:
            send(shard_of(new.id, len(self._shards)), new)

    def freed(self, keys: dict[UniqueKey, Freed]) -> None:
        """Delete pointers to jobs that have freed their keys; a stale pointer would be harmless."""
        for key, one in keys.items():
            try:
                self.do(FreeKey(key=key, job_id=one.job_id, version=one.version, stays=one.stays))
            except StoreError:
                continue

    def _workers(self, command: c.Enlist | c.Dismiss) -> None:
        """Register a worker in the shard of its name, or the next that is up; unregister it in all shards."""
        name = command.worker.name if isinstance(command, c.Enlist) else command.name
        first = slot_of_worker(name) % len(self._shards)
        fault: StoreError | None = None
        for step in range(len(self._shards)):
            try:
                self._ask((first + step) % len(self._shards), command)
            except StoreError as error:
                fault = fault or error
                continue
            if isinstance(command, c.Enlist):
                return
        if fault is not None and isinstance(command, c.Enlist):
            raise fault

    def _stop_worker(self, command: StopWorker) -> None:
        """Stop a worker wherever it is registered."""
        refused: list[HoldfastError] = []
        for at in range(len(self._shards)):
            try:
                self._ask(at, command)
            except (NotFound, StoreError) as error:
                refused.append(error)
        if len(refused) == len(self._shards):
            raise next((one for one in refused if not isinstance(one, NotFound)), refused[0])

    def _change_handler(self, command: h.SetHandler | h.RollBackHandler | h.DeleteHandler) -> Any:
        """Change a handler in its shard, and the marks in all: after it is set, before it is deleted."""
        home = (places.slot_of(command) or 0) % len(self._shards)
        of = command.handler if isinstance(command, h.SetHandler) else command
        on = not isinstance(command, h.DeleteHandler)
        reply = self._ask(home, command) if on else None
        for at in range(len(self._shards)):
            if at != home:
                self._ask(at, MarkHandled(tenant=of.tenant, task=of.task, on=on))
        return reply if on else self._ask(home, command)

    def _all(self, command: c.Command) -> Any:
        """Run a command in every shard; return the combined reply."""
        replies: list[Any] = []
        faults: list[StoreError] = []
        for at in range(len(self._shards)):
            if isinstance(command, c.Purge):
                command = replace(command, limit=command.limit - (replies[-1] if replies else 0))
                if command.limit <= 0:
                    break
            try:
                replies.append(self._ask(at, command))
            except StoreError as error:
                faults.append(error)
        if faults and (not replies or not isinstance(command, c.Upkeep)):
            if not replies:
                raise faults[0]
            raise Unavailable(f"done, but not everywhere; say it again when all are there. {faults[0]}")
        if isinstance(command, c.Purge):
            return sum(replies)
        return min((reply for reply in replies if reply is not None), default=None)

    # Adding

    def _add(self, command: c.Add) -> list[int]:
        if self.is_free(command):
            found: list[int] = self._add_anywhere(command)
            return found
        at = self.find_shard(command)
        if at is not None:
            return self._add_at(at, command)
        command = replace(command, jobs=tuple(command.every()), more=(), ids=())
        made: dict[int, int] = {}
        for where, those in self._parts(command):
            part = replace(command, jobs=tuple(command.jobs[one] for one in those))
            found = self._add_anywhere(part) if where is None else self._add_at(where, part)
            made |= dict(zip(those, found, strict=True))
        return [made[one] for one in range(len(command.jobs))]

    def _parts(self, command: c.Add) -> Iterator[tuple[int | None, list[int]]]:
        """Groups of jobs by shard; None: any. Jobs for any shard join the others if there is one group."""
        groups: dict[int | None, list[int]] = {}
        for one, new in enumerate(command.jobs):
            groups.setdefault(self._shard_for(new), []).append(one)
        if None in groups and len(groups) == 2:
            (where,) = groups.keys() - {None}
            groups = {where: sorted(one for those in groups.values() for one in those)}
        yield from groups.items()

    def _add_anywhere(self, command: c.Add | c.ReserveIds | TakeSysid) -> Any:
        """Run a command in the next shard of the round robin that is up."""
        fault: StoreError | None = None
        for at in self.turn():
            try:
                return self._ask(at, command)
            except Unsettled:
                raise
            except StoreError as error:
                fault = fault or error
        assert fault is not None
        raise fault

    def _add_at(self, at: int, command: c.Add) -> list[int]:
        """Add in one transaction, unless unique keys are held, or have their home, in another shard."""
        if not any(self._in_steps(new) for new in (command.every() if command.ids else command.jobs)):
            try:
                found: list[int] = self._ask(at, command)
                return found
            except Elsewhere:
                pass

        def send(at: int, new: c.NewJob) -> int:
            (job_id,) = self._ask(at, replace(command, jobs=(new,), more=(), ids=()))
            return int(job_id)

        def add(new: c.NewJob) -> int:
            with suppress(Moved):
                # Otherwise the whole command is repeated: no step of it has added anything.
                if new.unique is not None:
                    return self._add_keyed(new, send)
            return send(at, new)

        return [add(new) for new in command.every()]

    def _add_keyed(self, new: c.NewJob, send: Send, *, follows: bool = False) -> int:
        """Add a unique job: apply it to the holder of its key in any shard, or make it the holder."""
        new = self._as_its_parent(new)
        key, of = unique.key_of(new), len(self._shards)
        assert key is not None
        home, at = slot_of_key(key) % of, self._shard_for(new)
        assert at is not None
        if new.id and self._look(new.id, key)[1]:
            return new.id
        if new.strict and (other := self._namesake(new, home)):
            found = self._ask(shard_of(other, of), Hit(job=new, holder=other, follows=follows))
            if not isinstance(found, NotHeld):
                return int(found)
        for nap_s in KEY_RETRY_S:
            if at == home:
                try:
                    return send(home, new)
                except Elsewhere as error:
                    holder = error.job_id
            else:
                new = replace(new, id=new.id or self._make_id(new))
                holder = self._ask(home, TakeKey(key=key, job_id=new.id))
                if holder == new.id:
                    return self._second_step(new, key, send)
            found = self._ask(shard_of(holder, of), Hit(job=new, holder=holder, follows=follows))
            if not isinstance(found, NotHeld):
                return int(found)
            if not self._ask(home, FreeKey(key=key, job_id=holder, version=found.version)):
                sleep(nap_s)
        raise taken(holder)

    def _as_its_parent(self, new: c.NewJob) -> c.NewJob:
        """The new job, mocked if its parent is: that is part of its unique key."""
        parent = self._live(new.parent_id) if new.parent_id else None
        return new if parent is None else replace(new, mock=parent.mock)

    def _live(self, job_id: int) -> Job | None:
        shard = self._shards[shard_of(job_id, len(self._shards))]
        return shard.read(lambda txn: txn.load([job_id]).get(job_id))

    def _namesake(self, new: c.NewJob, home: int) -> int | None:
        """A job with the same name in another shard than its key's home, where the add itself finds it."""
        for at, shard in enumerate(self._shards):
            # A shard that is down is skipped, so that it does not block jobs of other shards.
            if at != home and shard.is_up:
                found = shard.read(lambda txn: txn.named(new.tenant, new.task, mock=new.mock))
                if found:
                    return found
        return None

    def _make_id(self, new: c.NewJob) -> int:
        slot = places.slot_of_new(new)
        assert slot is not None
        return self._ids.make(slot, self._shards[slot % len(self._shards)].now_ms())

    def _second_step(self, new: c.NewJob, key: UniqueKey, send: Send) -> int:
        try:
            return send(shard_of(new.id, len(self._shards)), new)
        except Unsettled:
            # The job may have been added.
            raise
        except HoldfastError:
            self._give_key_back(key, new.id)
            raise

    def _give_key_back(self, key: UniqueKey, job_id: int) -> None:
        try:
            self.do(FreeKey(key=key, job_id=job_id, given_back=True))
        except StoreError:
            # The key is freed in a minute.
            pass

    # Keys

    def _settled(self, at: int, command: c.Command) -> Any:
        """Run a command in one shard; a key that points to another shard is checked, and freed if stale."""
        for nap_s in KEY_RETRY_S:
            try:
                return self._ask(at, command)
            except Elsewhere as error:
                holder = error.job_id
                self._is_free(error.key, holder, self._job_id(command), nap_s)
        raise taken(holder)

    def _put_back(self, command: c.Command) -> Any:
        """Run a command by which a job may get a key; a key with its home in another shard is taken first."""
        job_id = self._job_id(command)
        at = shard_of(job_id, len(self._shards))
        job = self._live(job_id)
        if job is not None and getattr(command, "tenant", None) not in (None, job.tenant):
            raise NotFound("job", job_id)
        key = None if job is None else key_after(job, command)
        if key is None or slot_of_key(key) % len(self._shards) == at:
            return self._settled(at, command)
        assert job is not None
        take = TakeKey(key=key, job_id=job_id, version=job.version)
        try:
            for nap_s in KEY_RETRY_S:
                holder = self.do(take)
                if holder == job_id:
                    return self._put_back_at(at, command, key)
                self._is_free(key, holder, job_id, nap_s)
        except Moved:
            return self._ask(at, command)
        raise taken(holder)

    def _requeue_all(self, command: c.RequeueAll) -> Any:
        """Requeue all jobs or none if they are in one shard and have no unique keys, else one by one."""
        homes = {shard_of(job_id, len(self._shards)) for job_id in command.job_ids}
        jobs = [job for job in map(self._live, command.job_ids) if job is not None]
        has_keys = command.task is not None or any(job.unique is not None for job in jobs)
        if len(homes) == 1 and (len(self._shards) == 1 or not has_keys):
            return self._ask(homes.pop(), command)
        how: dict[str, Any] = {"task": command.task, "forgive": command.forgive}
        for job in jobs:
            if job.tenant == command.tenant:
                with suppress(NotFound):
                    self.do(c.Requeue(job_id=job.id, run_at=whole_second(job.created_at), **how))
        return None

    def _put_back_at(self, at: int, command: c.Command, key: UniqueKey) -> Any:
        try:
            return self._ask(at, command)
        except Unsettled:
            raise
        except HoldfastError:
            job_id = self._job_id(command)
            if not self._look(job_id, key)[0]:
                self._give_key_back(key, job_id)
            raise

    def _is_free(self, key: UniqueKey, holder: int, job_id: int, nap_s: float) -> None:
        """Delete a stale pointer; raises `Refused` if another job has the key."""
        held, version = self._look(holder, key)
        if held:
            raise put_back_refused(job_id, holder)
        if not self.do(FreeKey(key=key, job_id=holder, version=version)):
            sleep(nap_s)

    def _look(self, job_id: int, key: UniqueKey) -> tuple[bool, int]:
        """Whether a job holds a key, and its version, 0 if it does not exist."""

        def see(txn: ReadTxn) -> tuple[bool, int]:
            live = txn.load([job_id]).get(job_id)
            holder = find_holders(txn, [key]).get(key)
            job = live or txn.archived([job_id]).get(job_id)
            version = job.version if job else 0
            if holder is None or holder.job_id != job_id:
                return False, version
            return holder.until_ms > txn.now_ms if holder.until_ms else live is not None, version

        return self._shards[shard_of(job_id, len(self._shards))].read(see)

    def _job_id(self, command: Any) -> int:
        return int(places.slot_of(command) or 0)
