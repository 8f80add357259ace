"""The group commit: callers put commands in, one thread takes all that wait and commits them at once.

    callers ──▶ inbox ──▶ one transaction for all ──▶ replies, one wake-up for each
                  ▲                │
        watcher ──┘ (bell)         └──▶ claims that found nothing, and results not there yet, wait here
                                        until a commit, the bell, or the next moment gives them a chance

A thread that adds while nobody else asks for anything commits by itself (`alone.py`). Where a store lets
several commits be under way at once, more lanes help (`sidelanes.py`). Waiting costs nobody a thread. The
watcher sleeps in `store.wait`, and rings when another process may have changed something; it runs only while
somebody waits.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..core import commands as c
from ..core.bounds import BATCH_BYTES, BATCH_JOBS
from ..core.errors import Closed, StoreError
from ..store.common.clock import monotonic_s
from ..store.common.gifts import Run, heed, lanes_of
from .alone import may_commit
from .asking import Asking
from .done import Done
from .engine import Engine
from .inbox import Inbox
from .look import find_ended
from .sidelanes import SideLanes, is_free, load_of
from .ticket import Ticket, deliver
from .watcher import Watcher

# Clocks may jump, so nobody sleeps longer than this on what a clock said.
LONGEST_SLEEP_S = 1.0
# What a server's clock says and what is reckoned of it between may differ by so much.
CLOCK_SLACK_MS = 1_000
# What nearly always brings something to claim.
BRINGING = (c.Add, c.Release, c.Requeue, c.RequeueAll)
_BELL, _NUDGE, _STOP = object(), object(), object()


class Committer(Asking):
    """Commits to one store, in one lane or, where the store says so, in several (`sidelanes.py`).

    As one of several it hands over what is not for it alone: errors that may be set right elsewhere
    (`divert` says whether it takes the ticket), and what a commit leaves to be done in other lanes (`after`).
    """

    def __init__(
        self,
        engine: Engine,
        *,
        divert: Callable[[Ticket, Exception], bool] | None = None,
        after: Callable[[Done], None] | None = None,
    ) -> None:
        self.engine = engine
        self._divert, self._after = divert, after
        self._inbox = Inbox()
        self._claims: list[Ticket] = []
        self._awaits: list[Ticket] = []
        self._listeners: list[Callable[[], None]] = []
        # When something next becomes true by itself, as far as is known, and when that was said; and whether
        # those who wait should look: something of ours was committed, or perhaps of another's.
        self._next_ms: int | None = None
        self._said_ms = 0
        self._look = self._rung = False
        self._closed = False
        # Whether our own thread is at work; and whose turn it is to commit, its or a caller's.
        self._busy = False
        self._turn = threading.Lock()
        self._side = SideLanes(lanes_of(engine.store) - 1, self._commit_beside)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._watcher = Watcher(engine.store, lambda: self._inbox.put(_BELL))

    def submit(self, ticket: Ticket) -> None:
        """Put a command in; its ticket will be answered."""
        if self._is_quiet and may_commit(ticket) and self._submit_alone(ticket):
            return
        with self._lock:
            if self._closed:
                raise Closed("this queue was closed; open another with holdfast.connect")
            self._begin()
            if self._side and self._is_busy and is_free(ticket.command):
                self._side.put(ticket)
                if not self._is_busy:
                    # It has just become free, and may have looked before: all lanes may be held up.
                    self._inbox.put(_NUDGE)
            else:
                self._inbox.put(ticket)

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Put in many whose order is theirs; where it is too late they are answered so."""
        with self._lock:
            if not self._closed:
                self._begin()
                for ticket in tickets:
                    self._inbox.put(ticket)
                return
        super().submit_all(tickets)

    @property
    def _is_busy(self) -> bool:
        """Whether a commit is under way, of our own thread or of a caller's, beside which others may be."""
        return self._busy or self._turn.locked()

    @property
    def _is_quiet(self) -> bool:
        """Whether nobody has asked for anything, nor is likely to before a single command is done."""
        return self._inbox.is_quiet and not self._claims

    def _submit_alone(self, ticket: Ticket) -> bool:
        """Commit it in this thread, if it is still quiet; whether that was done."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if self._closed or not self._is_quiet:
                return False
            try:
                (reply,) = self.engine.execute([ticket.command]).replies
            except Exception as error:
                reply = error
        finally:
            self._turn.release()
            if self._side.waiting:
                self._inbox.put(_NUDGE)
        self._answer([(ticket, reply)])
        return True

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="holdfast-committer", daemon=True)
            self._thread.start()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called, from our thread, whenever progress or a log may have moved: a hint.

        It must return at once and never raise.
        """
        with self._lock:
            self._listeners = [*self._listeners, listener]
            if not self._closed:
                self._begin()
                # So that the watcher watches from now on.
                self._inbox.put(_BELL)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undo `listen`."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
            if not self._closed:
                # So that the watcher may rest.
                self._inbox.put(_BELL)

    def close(self) -> None:
        """Commit what was put in, tell those who wait, and end the threads."""
        with self._lock:
            if self._closed:
                return
            # Nothing is put in after the end, where nobody would answer it.
            self._closed = True
        # What the lanes cannot answer they leave to our own thread.
        self._side.close()
        self._inbox.put(_STOP)
        self._watcher.close()
        if self._thread is not None:
            self._thread.join()
        with self._turn:
            self.engine.close()

    def _loop(self) -> None:
        going = True
        while going:
            going, tickets = self._gather()
            self._busy = True
            with self._turn:
                self._round(tickets + self._side.take())
            self._busy = False
        late = Closed("this queue was closed while the call waited")
        self._answer([(ticket, late) for ticket in (*self._claims, *self._awaits)])

    def _gather(self) -> tuple[bool, list[Ticket]]:
        """What waits in the inbox, up to one transaction's worth; at least the first, unless time is up."""
        tickets: list[Ticket] = []
        jobs = size = 0
        try:
            item = self._inbox.first(self._sleep_s())
            while True:
                if item is _STOP:
                    return False, tickets
                if item is _NUDGE:
                    pass
                elif item is _BELL:
                    self._rung = True
                elif isinstance(item, Done):
                    self._note(item)
                    self._look = self._look or bool(item.ended and self._awaits)
                else:
                    tickets.append(item)
                    count, weight = load_of(item.command)
                    jobs, size = jobs + count, size + weight
                if len(tickets) + jobs >= BATCH_JOBS or size >= BATCH_BYTES:
                    return True, tickets
                item = self._inbox.another()
        except queue.Empty:
            return True, tickets

    def _sleep_s(self) -> float | None:
        if self._look or self._rung or self._side.waiting:
            return 0.0
        waiting = [ticket.deadline_s for ticket in (*self._claims, *self._awaits)]
        if not waiting:
            return None
        sleep = min(min(waiting) - monotonic_s(), LONGEST_SLEEP_S)
        if self._claims and self._next_ms is not None:
            next_ms = min(self._next_ms, self.engine.next_upkeep_ms)
            sleep = min(sleep, (next_ms - self.engine.store.now_ms()) / 1000)
        return max(sleep, 0.0)

    def _round(self, tickets: list[Ticket]) -> None:
        """One transaction, and those that wait for what it, or somebody else, may have brought."""
        awaits = [ticket for ticket in tickets if isinstance(ticket.command, c.Await)]
        # Before anything is looked at: what is said from then on is heard.
        heed(self.engine.store, ends=bool(awaits or self._awaits or self._listeners))
        # Whoever went away must get nothing: what he gives back just now would come to him again.
        writes = [
            ticket
            for ticket in tickets
            if not isinstance(ticket.command, c.Await)
            and not (ticket.abandoned and isinstance(ticket.command, c.Claim))
        ]
        self._claims = [ticket for ticket in self._claims if not ticket.abandoned]
        # What is just being added is claimed in the same commit.
        brings = any(isinstance(ticket.command, BRINGING) for ticket in writes)
        by = None if writes else self._seeker()
        if self._claims and (brings or by or self._is_promising(busy=bool(writes))):
            # First come, first served: those who have waited longest are asked first.
            writes = [*self._claims, *writes]
            self._claims = []
        looked = self._look or self._rung
        self._look = self._rung = False
        ended: set[int] = set()
        if writes:
            ended = self._commit(writes, by)
        known = {ticket.command.job_id for ticket in self._awaits if isinstance(ticket.command, c.Await)}
        if awaits or (self._awaits and (looked or ended & known)):
            self._awaits += awaits
            self._resolve_awaits()
        self._expire()
        if looked:
            self._tell()
        self._watcher.watch(bool(self._claims or self._awaits or self._listeners))

    def _seeker(self) -> Run[Done] | None:
        """What looks and claims at once for one who waits alone, and was woken."""
        if len(self._claims) != 1 or self._look or not self._rung or self._is_due():
            return None
        return self.engine.seeker(self._claims[0].command)

    def _is_promising(self, *, busy: bool) -> bool:
        """Whether those who wait for a job may find one, or something is due that brings one.

        Another process may have committed anything. Before all who wait queue for the write lock, which
        would cost whoever adds most of his speed, each looks beside it whether there is anything to get.
        """
        due = self._is_due()
        if not self._rung:
            return self._look or due
        if not (busy or self._look or due):
            try:
                found = self.engine.hopes([ticket.command for ticket in self._claims])
            except Exception:
                # Whoever writes meets the same, and has somebody to tell.
                return True
            if not found.any:
                self._next_ms = found.next_ms or self.engine.next_upkeep_ms
                self._said_ms = self.engine.store.now_ms()
            return found.any
        # What has no moment of its own may have changed too.
        self.engine.next_upkeep_ms = 0
        return True

    def _is_due(self) -> bool:
        """Whether something has become true by itself; where the clock was set back, nobody knows what."""
        if self._next_ms is None:
            return False
        now_ms = self.engine.store.now_ms()
        is_past = now_ms >= min(self._next_ms, self.engine.next_upkeep_ms)
        return is_past or now_ms < self._said_ms - CLOCK_SLACK_MS

    def _commit(self, tickets: list[Ticket], by: Run[Done] | None = None) -> set[int]:
        started_s, commands = monotonic_s(), [ticket.command for ticket in tickets]
        try:
            done = self.engine.execute_by(commands, by) if by else self.engine.execute(commands)
        except Exception as error:
            return self._commit_failed(tickets, error)
        self._inbox.committed(len(tickets), monotonic_s() - started_s)
        replies = []
        for ticket, reply in zip(tickets, done.replies, strict=True):
            if _goes_on(ticket, reply):
                self._claims.append(ticket)
            else:
                replies.append((ticket, reply))
        self._answer(replies)
        self._note(done)
        return done.ended

    def _commit_beside(self, tickets: list[Ticket]) -> None:
        """Commit what a lane has taken. What cannot be answered there is left to our own thread."""
        try:
            done = self.engine.execute([ticket.command for ticket in tickets])
        except Exception as error:
            if len(tickets) == 1 or isinstance(error, StoreError):
                self._answer([(ticket, error) for ticket in tickets])
            else:
                for ticket in tickets:
                    self._inbox.put(ticket)
            return
        # Before those that go on: what they find there is newer.
        self._inbox.put(done)
        replies = []
        for ticket, reply in zip(tickets, done.replies, strict=True):
            if _goes_on(ticket, reply):
                self._inbox.put(ticket)
            else:
                replies.append((ticket, reply))
        self._answer(replies)

    def _commit_failed(self, tickets: list[Ticket], error: Exception) -> set[int]:
        """A store that cannot be used fails all; anything else is one command's fault: find it."""
        if len(tickets) == 1 or isinstance(error, StoreError):
            self._answer([(ticket, error) for ticket in tickets])
            return set()
        return set().union(*(self._commit([ticket]) for ticket in tickets))

    def _note(self, done: Done) -> None:
        if self._after is not None:
            self._after(done)
        self._look = self._look or (done.woke and bool(self._claims))
        if done.news:
            self._tell()
        if done.next_ms is not None:
            self._next_ms, self._said_ms = done.next_ms, done.now_ms

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _resolve_awaits(self) -> None:
        tickets = self._awaits
        wanted = [t.command.job_id for t in tickets if isinstance(t.command, c.Await)]
        try:
            found = self.engine.read(lambda txn: find_ended(txn, wanted))
        except Exception as error:
            self._awaits = []
            self._answer([(ticket, error) for ticket in tickets])
            return
        self._awaits = [ticket for ticket in tickets if found[ticket.command.job_id] is None]  # type: ignore[attr-defined]
        self._answer(
            [(t, found[t.command.job_id]) for t in tickets if found[t.command.job_id] is not None]  # type: ignore[attr-defined]
        )

    def _expire(self) -> None:
        now_s = monotonic_s()
        late = [ticket for ticket in (*self._claims, *self._awaits) if ticket.deadline_s <= now_s]
        if late:
            self._claims = [ticket for ticket in self._claims if ticket.deadline_s > now_s]
            self._awaits = [ticket for ticket in self._awaits if ticket.deadline_s > now_s]
            self._answer([(t, [] if isinstance(t.command, c.Claim) else None) for t in late])

    def _answer(self, replies: Sequence[tuple[Ticket, Any]]) -> None:
        if self._divert is not None:
            replies = [pair for pair in replies if not self._is_diverted(*pair)]
        for ticket, reply in replies:
            if not ticket.answer(reply):
                ticket.reply = reply
                self.give_back(ticket)
        deliver((ticket for ticket, _ in replies if ticket.answered), self.give_back)

    def _is_diverted(self, ticket: Ticket, reply: Any) -> bool:
        return isinstance(reply, Exception) and self._divert is not None and self._divert(ticket, reply)

    def give_back(self, ticket: Ticket) -> None:
        """Release what was claimed for somebody who is gone."""
        if not isinstance(ticket.command, c.Claim) or not isinstance(ticket.reply, list):
            return
        for claimed in ticket.reply:
            job = claimed.job
            hold = c.hold_of(job)
            self._inbox.put(Ticket(c.Release(hold=hold)))


def _goes_on(ticket: Ticket, reply: Any) -> bool:
    """Whether it is a claim that found nothing, of somebody who has time."""
    return isinstance(ticket.command, c.Claim) and not reply and ticket.deadline_s > monotonic_s()
