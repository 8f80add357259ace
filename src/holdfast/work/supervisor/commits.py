"""What a worker commits about its jobs: answers and releases, and the renewal of leases."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.errors import HoldfastError, LeaseLost, NotFound, SchemaMismatch, StoreError
from ...core.job import Code, Job, Place, State
from ...core.units import counted
from ...engine.connection import Connection
from ...engine.ticket import CallbackTicket
from ...queue.lease import RETRY_S as LEASE_RETRY_S
from ...store.common.clock import system_clock
from ..messages import CancelJob
from .executor_handle import HeldJob
from .executor_pool import ExecutorPool
from .sources import JobSource
from .suspects import Suspects

# How long a stopping supervisor waits for its last commits.
COMMIT_WAIT_S = 5.0
# When a command is submitted again that the store could not take.
RETRY_S = 1.0
# How often running jobs are checked for cancellation.
STOP_POLL_S = 0.5

AnswerCommand = c.AnswerAll | c.Answer | c.Release


class AnswerWriter:
    """Submits answers and releases, again while the store cannot be written to, and logs those that fail."""

    def __init__(self, log: Callable[[str], None], on_lost: Callable[[Job], None] | None = None) -> None:
        self._log = log
        # Called with each job that has ended because its executor did.
        self._on_lost = on_lost
        self._unsent: dict[Connection, list[CallbackTicket]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # Commands without a reply.
        self._pending = 0
        self._settled = asyncio.Event()
        # How many jobs have ended by these commands, and how many of them failed.
        self.done = self.failed = 0
        # The last error that was logged of a store that cannot be written to.
        self._store_error = ""

    def put(self, connection: Connection, command: AnswerCommand) -> None:
        """Submit a command, together with all others of this iteration of the event loop."""
        if not self._unsent:
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._send)
        assert self._loop is not None
        self._pending += 1
        self._unsent.setdefault(connection, []).append(
            CallbackTicket(command, self._loop, partial(self._on_reply, connection))
        )

    def answer(self, connection: Connection, ended: Sequence[tuple[c.Answer, Job]]) -> None:
        """Submit the answers of jobs, each with the job's last known record."""
        answers, held = zip(*ended, strict=True)
        self.put(connection, c.AnswerAll(answers=answers, held=held))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for connection, tickets in unsent.items():
            connection.submit_all(tickets)

    def _on_reply(self, connection: Connection, ticket: CallbackTicket) -> None:
        self._pending -= 1
        command, reply = ticket.command, ticket.reply
        assert isinstance(command, AnswerCommand)
        if isinstance(reply, SchemaMismatch):
            count = len(command.answers) if isinstance(command, c.AnswerAll) else 1
            self._log(f"{counted(count, 'answer')} not stored, so the jobs will run again: {reply}")
        elif isinstance(reply, StoreError):
            self._submit_later(connection, command, reply)
        elif not isinstance(command, c.AnswerAll):
            self._count_replies([(command, reply)])
        elif not isinstance(reply, BaseException):
            self._on_replies(connection, command, reply)
        else:
            # One of them is at fault: submit each by itself, so that the others are committed.
            for answer, job in zip(command.answers, command.held, strict=True):
                self.put(connection, replace(answer, held=job))
        if not self._pending:
            self._settled.set()

    def _on_replies(self, connection: Connection, command: c.AnswerAll, replies: list[Any]) -> None:
        """Count the replies to many answers; those that could not be committed are submitted again."""
        settled: list[tuple[c.Answer | c.Release, Any]] = []
        for answer, job, reply in zip(command.answers, command.held, replies, strict=True):
            if isinstance(reply, StoreError):
                self._submit_later(connection, replace(answer, held=job), reply)
            else:
                settled.append((answer, reply))
        self._count_replies(settled)

    def _submit_later(self, connection: Connection, command: AnswerCommand, error: StoreError) -> None:
        """Submit a command again in a moment: until another worker claims the job, its answer counts."""
        if str(error) != self._store_error:
            self._log(f"cannot commit answers, and tries again: {error}")
        self._store_error = str(error)
        self._pending += 1
        assert self._loop is not None
        self._loop.call_later(RETRY_S, self._submit_again, connection, command)

    def _submit_again(self, connection: Connection, command: AnswerCommand) -> None:
        self._pending -= 1
        self.put(connection, command)

    def _count_replies(self, replies: list[tuple[c.Answer | c.Release, Any]]) -> None:
        """Count jobs that have ended, and log errors. A repeating job counts after each successful run."""
        for command, reply in replies:
            is_job = type(reply) is Job
            if not is_job and isinstance(reply, BaseException):
                self._log(f"job {command.hold.job_id}: {reply}")
            else:
                self._store_error = ""
                # A job that was lost too often has ended too.
                has_ended = is_job and reply.place is Place.DONE
                self.done += has_ended or (type(command) is c.Answer and command.code is Code.OK)
                self.failed += has_ended and reply.ended is State.FAILED
                if has_ended and self._on_lost and type(command) is c.Release:
                    self._on_lost(reply)

    async def wait_until_committed(self) -> None:
        """Wait until every command has its reply."""
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                while self._pending:
                    self._settled.clear()
                    await self._settled.wait()
        except TimeoutError:
            pending = counted(self._pending, "answer or release", "answers and releases")
            self._log(f"not committed in time: {pending}")


class Leases:
    """Renews leases and watches running jobs, of the queues on one store."""

    def __init__(
        self,
        pool: ExecutorPool,
        suspects: Suspects,
        sources: Sequence[JobSource],
        lease_ms: int,
        log: Callable[[str], None],
    ) -> None:
        self._pool, self._suspects = pool, suspects
        self._sources = {source.queue_index: source for source in sources}
        self._lease_ms, self._log = lease_ms, log
        # The last error that was logged of leases that could not be extended.
        self._logged = ""

    async def keep_renewing(self) -> None:
        """Extend all leases in one commit, each time a third of their length has passed.

        After an error soon again: the store may be back just before the leases end.
        """
        pause_s = self._lease_ms / 3000
        is_extended = True
        while True:
            await asyncio.sleep(pause_s if is_extended else min(pause_s, LEASE_RETRY_S))
            is_extended = await self._extend(self._held())

    def _held(self) -> list[HeldJob]:
        return self._mine(self._pool.held() + self._suspects.held())

    def _mine(self, held: Sequence[HeldJob]) -> list[HeldJob]:
        return [one for one in held if one.queue_index in self._sources]

    async def _extend(self, held: Sequence[HeldJob]) -> bool:
        """Extend leases in one commit, which also stores since when each handler runs.

        False if the store could not be used.
        """
        jobs = [(one.queue_index, one.job) for one in held]
        for one in held:
            one.is_start_committed = bool(one.started_s)
        asks = (
            self._sources[one.queue_index].connection.ask_async(
                c.Extend(hold=c.hold_of(one.job), lease_ms=self._lease_ms, ran_ms=one.ran_ms)
            )
            for one in held
        )
        replies = await asyncio.gather(*asks, return_exceptions=True)
        self._apply_renewals(jobs, replies)
        return all(isinstance(reply, Job | LeaseLost | NotFound) for reply in replies)

    def _apply_renewals(self, held: list[tuple[int, Job]], replies: Sequence[Job | BaseException]) -> None:
        failed: list[BaseException] = []
        for (queue_index, job), reply in zip(held, replies, strict=True):
            if isinstance(reply, Job):
                self._pool.update_record(reply, queue_index)
                self._suspects.update_record(reply, queue_index)
                if reply.cancel_requested and not job.cancel_requested:
                    self._pool.send((queue_index, job.id), CancelJob(job=reply, queue_index=queue_index))
            elif self._pool.has_claim((queue_index, job.id), job.claim):
                failed.append(reply)
        # One line for all: a worker that was suspended has lost all its leases.
        more = f", and {len(failed) - 1:,} more like it" if failed[1:] else ""
        text = str(failed[0]) if failed else ""
        if text and text != self._logged:
            self._log(f"{text}{more}")
        if held:
            self._logged = text

    async def watch_running(self) -> None:
        """Poll for cancelled jobs, and commit the start of jobs that have been running for a while.

        One read for all jobs, and one write in the life of each.
        """
        jump = system_clock.jump
        while True:
            await asyncio.sleep(STOP_POLL_S)
            system_clock()
            if system_clock.jump is not jump:
                # The clock has jumped: renew before another process takes the leases for expired.
                jump = system_clock.jump
                await self._extend(self._held())
            running = self._mine(self._pool.running(STOP_POLL_S))
            await self._extend([held for held in running if not held.is_start_committed])
            for source in self._sources.values():
                if mine := [held for held in running if held.queue_index == source.queue_index]:
                    await self._check_running(source, mine)

    async def _check_running(self, source: JobSource, running: list[HeldJob]) -> None:
        query = q.LoadJobs(job_ids=tuple(held.job.id for held in running))
        try:
            now: dict[int, Job] = (await source.connection.ask_async(query)).jobs
        except HoldfastError as error:
            if len(running) > 1:
                # One of several shards may be down: read each job by itself.
                for held in running:
                    await self._check_running(source, [held])
            else:
                self._log(f"cannot check running jobs: {error}")
            return
        for held in running:
            job, live = held.job, now.get(held.job.id)
            if not self._pool.has_claim((held.queue_index, job.id), job.claim):
                # It has ended meanwhile, and may run here again under another claim.
                continue
            if live is None or live.claim != job.claim:
                # Cancelled by force, or the claim is lost.
                stopped = replace(job, cancel_requested=True)
                self._pool.send(
                    (held.queue_index, job.id), CancelJob(job=stopped, queue_index=held.queue_index)
                )
            elif live.cancel_requested:
                self._pool.update_record(live, held.queue_index)
                self._pool.send((held.queue_index, job.id), CancelJob(job=live, queue_index=held.queue_index))
