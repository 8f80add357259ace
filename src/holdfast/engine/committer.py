"""The committer: commands in, replies out, by group commit (`group`). Claims that wait do so in `waiter`.

    thread      ask ──▶ a group ──▶ one transaction for all that arrived ──▶ its reply
                         claim that found nothing, and has time ──┐
    coroutine   ask_async ────────────────────────────────────────┴─▶ the waiter's thread ──▶ the first group

If a store can run several commits at once, there are several groups. What a thread says as the holder of a
job goes to the group of that job, so that it stays in order; an add or a claim goes to a free group, and
everything else to the first. Many answers of a worker have a thread of their own (`CommitThread`): they and
its claims wait for the server at the same time.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..core import commands as c
from ..core.errors import Closed, StoreError, Unsettled
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import call_in_turn, may_be_interrupted
from .ended import find_awaited
from .engine import Engine
from .group import CommitThread, Group
from .ticket import Done, Submitter, Ticket, deliver
from .waiter import Waiter

# From this many answers on they are committed beside claims. Fewer may be those of jobs with a limit, whose
# next claim needs them.
MANY_ANSWERS = 50


class Committer(Submitter):
    """Commits to one store.

    `divert` may take over a ticket whose error another store may resolve: another shard, or the store that
    this one has moved to.
    """

    def __init__(self, engine: Engine, *, divert: Callable[[Ticket, Exception], bool] | None = None) -> None:
        self.engine = engine
        self._divert = divert
        capabilities = engine.store.capabilities
        self._groups = [Group(self._commit) for _ in range(capabilities.parallel_commits)]
        # Set if there is only one.
        self._group = self._groups[0] if len(self._groups) == 1 else None
        beside = self._groups[1:] or ([Group(self._commit)] if capabilities.answers_beside else [])
        self._waiter = Waiter(engine, self._groups[0], self._answer, claims_apart=bool(beside))
        self._answers = CommitThread(beside[0], "holdfast-answers") if beside else None
        self._closed = False

    def ask(self, command: c.Command, *, wait_s: float = 0.0) -> Any:
        """Run a command and wait for its reply in this thread; raises its error."""
        if self._closed:
            raise Closed
        # Commands that this thread has submitted without waiting come first.
        is_busy = self._waiter.is_busy
        reply = self._find_ended(command) if type(command) is c.Await and not is_busy else None
        if reply is not None:
            return reply
        if type(command) is c.Await or is_busy:
            reply = self._wait(command, wait_s)
        else:
            group = self._group or self._group_of(command)
            if may_be_interrupted():
                reply = self._commit_alone(group, command)
            else:
                ticket = Ticket(command)
                group.commit(ticket)
                reply = ticket.reply
            if reply == [] and wait_s > 0 and type(command) is c.Claim:
                reply = self._wait(command, wait_s)
        if type(reply) is not list and isinstance(reply, BaseException):
            raise reply
        return reply

    def _find_ended(self, command: c.Await) -> Any:
        """The reply if the job has ended, without another thread; else None."""
        try:
            return self.engine.read(lambda txn: find_awaited(txn, [command]))[0]
        except Exception:
            # The waiter meets the same error, and knows whether another store has the job.
            return None

    def submit(self, ticket: Ticket) -> None:
        """Submit a command; its ticket will be answered."""
        self.submit_all([ticket])

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Submit several commands, which are committed in order; after `close` they get an error.

        Steps, and many answers of a worker, are committed beside its other commands if the store can do that.
        """
        thread: Waiter | CommitThread = self._waiter
        if self._answers is not None and self._answers.has_room and _may_go_beside(tickets):
            thread = self._answers
        if not thread.put(tickets):
            late = Closed()
            self._answer([(ticket, late) for ticket in tickets])

    def _group_of(self, command: c.Command) -> Group:
        groups = self._groups
        hold: c.Hold | None = getattr(command, "hold", None)
        if hold is not None:
            return groups[hold.job_id % len(groups)]
        if type(command) is not c.Add and (type(command) is not c.Claim or command.owner):
            # The port's claims have an owner; its clients may send several ahead, which take effect in order.
            return groups[0]
        free = next((group for group in groups if not group.turn.locked()), None)
        return free or min(groups, key=lambda group: len(group.waiting))

    def _commit_alone(self, group: Group, command: c.Command) -> Any:
        """Commit one command in a thread that may be interrupted; jobs claimed by then are released."""
        done, is_committed = Done(), False
        try:
            call_in_turn(group.turn, self.engine.execute, [command], done)
            reply, is_committed = done.replies[0], True
        except Exception as error:
            reply = error
            self._release_unsettled(error, done)
        except BaseException:
            # If the claim was not committed, another caller may have claimed the job since, under the same
            # number: `lease_until` in the release tells the two claims apart.
            for claimed in done.replies:
                self._release(claimed)
            raise
        finally:
            if group.waiting:
                group.wake_next()
        if is_committed and self._waiter.is_watching:
            self._waiter.note(done)
        if self._divert is not None and type(reply) is not list and isinstance(reply, Exception):
            ticket = Ticket(command)
            return self.reply_of(ticket) if self._divert(ticket, reply) else reply
        return reply

    def _wait(self, command: c.Command, wait_s: float) -> Any:
        return self.ask_ticket(Ticket(command, deadline_s=monotonic_s() + wait_s))

    def _commit(self, tickets: Sequence[Ticket]) -> None:
        """Commit tickets as one transaction, and answer them."""
        if not tickets:
            return
        done = Done()
        try:
            self.engine.execute([ticket.command for ticket in tickets], done)
        except Exception as error:
            self._release_unsettled(error, done)
            if len(tickets) == 1 or isinstance(error, StoreError):
                self._answer([(ticket, error) for ticket in tickets])
            else:
                # One of the commands is at fault: commit each by itself.
                for ticket in tickets:
                    self._commit([ticket])
            return
        except BaseException:
            # Raised in this thread by another, such as the time limit of a library; the others wait.
            doubt = Unsettled("the thread that committed it was interrupted: it may have been done, or not")
            self._answer([(ticket, doubt) for ticket in tickets])
            for claimed in done.replies:
                self._release(claimed)
            raise
        if self._waiter.is_watching:
            self._waiter.note(done)
        self._answer(list(zip(tickets, done.replies, strict=True)))

    def _answer(self, replies: Sequence[tuple[Ticket, Any]]) -> None:
        for_loops = []
        for ticket, reply in replies:
            if self._waiter.keeps(ticket, reply) or self._is_diverted(ticket, reply):
                continue
            if not ticket.answer(reply):
                ticket.reply = reply
                self.give_back(ticket)
            elif ticket.loop is not None:
                for_loops.append(ticket)
        if for_loops:
            deliver(for_loops, self.give_back)

    def _is_diverted(self, ticket: Ticket, reply: Any) -> bool:
        return isinstance(reply, Exception) and self._divert is not None and self._divert(ticket, reply)

    def _release_unsettled(self, error: Exception, done: Done) -> None:
        """Release jobs of a claim that may have been committed; the caller gets the error.

        Not those without a lease: these releases could be for another caller's claim of the same number.
        """
        for claimed in done.replies if isinstance(error, Unsettled) else ():
            if isinstance(claimed, list):
                self._release([one for one in claimed if isinstance(one, c.Claimed) and one.job.lease_until])

    def _release(self, claimed: Any) -> None:
        if isinstance(claimed, list) and claimed and isinstance(claimed[0], c.Claimed):
            jobs = [one.job for one in claimed]
            releases = [c.Release(hold=c.hold_of(job), lease_until=job.lease_until) for job in jobs]
            self._waiter.put([Ticket(release) for release in releases])

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function in another thread, as a hint, when progress or a log may have changed.

        It must return at once and never raise.
        """
        self._waiter.listen(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        self._waiter.unlisten(listener)

    def close(self) -> None:
        """Commit what is pending, answer waiting callers, and close the store."""
        if self._closed:
            return
        self._closed = True
        self.engine.store.stop_retrying()
        if self._answers is not None:
            self._answers.close()
        self._waiter.close()
        # Wait for the commits that are running.
        for group in self._groups:
            group.turn.acquire()
        try:
            self.engine.close()
        finally:
            for group in self._groups:
                group.turn.release()


def _may_go_beside(tickets: Sequence[Ticket]) -> bool:
    """Whether no claim needs these soon: steps, or many answers."""
    count = 0
    for ticket in tickets:
        if type(ticket.command) is c.AnswerAll:
            count += len(ticket.command.answers)
        elif type(ticket.command) is not c.Step:
            return False
    return count == 0 or count >= MANY_ANSWERS
