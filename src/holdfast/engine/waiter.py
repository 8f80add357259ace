"""The waiter: a thread that waits on behalf of all callers, and commits for coroutines.

    claims that found nothing     repeated when a commit, another process or a due time may bring a job
    results that are not there    read when a job has ended
    listeners                     called when progress or a log may have changed
    tickets of coroutines         committed, together with those of waiting threads

The thread runs only while it has something to do. While a caller waits for another process, it sleeps in
`store.wait`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..core import commands as c
from ..core.errors import Closed, StoreError
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import ServiceThread, wake
from .engine import Engine
from .group import Group, take
from .ticket import Done, Ticket

# The longest sleep until a due time, because clocks may jump.
LONGEST_SLEEP_S = 1.0
# How much the estimated time of a server may differ from its clock.
CLOCK_SLACK_MS = 1_000
# Commands that nearly always make a job claimable.
BRINGING = (c.Add, c.Release, c.Requeue, c.RequeueAll)

Answer = Callable[[Sequence[tuple[Ticket, Any]]], None]


class Waiter:
    """Waits on behalf of the callers of one committer. `answer` sets the replies of tickets.

    With `claims_apart` claims are transactions of their own: where each statement is a message to a server,
    a plain claim and a plain commit are fewer messages than one transaction that does both.
    """

    def __init__(self, engine: Engine, group: Group, answer: Answer, *, claims_apart: bool = False) -> None:
        self._engine, self._group, self._answer = engine, group, answer
        self._claims_apart = claims_apart
        self._inbox: deque[Ticket] = deque()
        self._claims: list[Ticket] = []
        self._awaits: list[Ticket] = []
        self._listeners: list[Callable[[], None]] = []
        # When a job or upkeep is next due, as far as is known, and when that was computed.
        self._next_ms: int | None = None
        self._next_known_ms = 0
        # Whether waiting claims should be tried: this process has committed, or another may have.
        self._look = self._rung = False
        # Whether the last try of waiting claims found jobs, and whether the next must be a read first.
        self._has_found = self._must_read = False
        # Whether the last answers made a job claimable, as those of jobs with a limit do.
        self._answers_bring = False
        self._ended: deque[set[int]] = deque()
        # Whether a caller or listener waits for commits; and whether the thread sleeps in `store.wait`.
        self.is_watching = self._sleeps_in_store = False
        # Whether submitted tickets are not committed yet.
        self.is_busy = False
        # The lock that the thread waits for. Not an `Event`: an interrupt in its `set` would leave it locked.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._is_woken = False
        self._closed = False
        self._thread = ServiceThread(self._loop, "holdfast-waiter")
        self._lock = threading.Lock()

    def put(self, tickets: Sequence[Ticket]) -> bool:
        """Submit tickets; False if the waiter is closed. Its own thread may submit until it ends."""
        with self._lock:
            if self._closed and threading.get_ident() != self._thread.ident:
                return False
            self._inbox.extend(tickets)
            self.is_busy = True
            self._thread.start()
        self._wake()
        return True

    def _wake(self) -> None:
        self._is_woken = True
        wake(self._signal)
        if self._sleeps_in_store:
            self._engine.store.interrupt()

    def keeps(self, ticket: Ticket, reply: Any) -> bool:
        """Keep a claim that found nothing while its deadline has not passed; else False."""
        if reply != [] or ticket.deadline_s <= 0 or not isinstance(ticket.command, c.Claim):
            return False
        if ticket.deadline_s <= monotonic_s():
            return False
        self._claims.append(ticket)
        return True

    def note(self, done: Done) -> None:
        """Wake up what a commit of this process may concern."""
        if done.next_ms is not None:
            self._next_ms, self._next_known_ms = done.next_ms, done.now_ms
        if done.news:
            self._call_listeners()
        ended = done.ended if self._awaits else None
        if ended:
            self._ended.append(ended)
        if done.woke:
            self._look = True
        if (done.woke or ended) and threading.get_ident() != self._thread.ident:
            self._wake()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function when progress or a log may have changed."""
        with self._lock:
            self._listeners = [*self._listeners, listener]
            if not self._closed:
                self._thread.start()
        self._wake()

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Remove a listener."""
        with self._lock:
            self._listeners = [one for one in self._listeners if one != listener]
        self._wake()

    def close(self) -> None:
        """Commit what is pending, answer waiting callers, and end the thread."""
        with self._lock:
            self._closed = True
            if not (self._thread.is_started or self._inbox):
                return
            self._thread.start()
        self._wake()
        self._thread.join()

    def _loop(self) -> None:
        while not self._closed or self._inbox:
            if not self._inbox:
                self._sleep()
            self._is_woken = False
            self._round(take(self._inbox))
            with self._lock:
                self.is_busy = bool(self._inbox)
        late = Closed("this queue was closed while the call waited")
        self._answer([(ticket, late) for ticket in (*self._claims, *self._awaits)])

    def _sleep(self) -> None:
        timeout_s = self._sleep_s()
        if timeout_s == 0:
            return
        if timeout_s is None:
            self._signal.acquire()
            return
        self._sleeps_in_store = True
        try:
            if not self._is_woken and self._engine.store.wait(timeout_s, ends=self._waits_for_ends):
                self._rung = True
        except Exception:
            # The next command gets the same error, and has a caller to raise it. It may be temporary.
            self._signal.acquire(timeout=LONGEST_SLEEP_S)
            self._rung = True
        finally:
            self._sleeps_in_store = False

    @property
    def _waits_for_ends(self) -> bool:
        return bool(self._awaits or self._listeners)

    def _sleep_s(self) -> float | None:
        if self._closed or self._look or self._rung or self._ended or (self._must_read and self._claims):
            return 0.0
        if not self.is_watching:
            return None
        sleep_s = LONGEST_SLEEP_S
        if waiting := [ticket.deadline_s for ticket in (*self._claims, *self._awaits)]:
            sleep_s = min(min(waiting) - monotonic_s(), sleep_s)
        if self._claims and self._next_ms is not None:
            next_ms = min(self._next_ms, self._engine.next_upkeep_ms)
            sleep_s = min(sleep_s, (next_ms - self._now_ms()) / 1000)
        return max(sleep_s, 0.0)

    def _round(self, tickets: list[Ticket]) -> None:
        """Commit new tickets, and try waiting claims and awaits."""
        # Set first: commits of this process during the reads below must not be missed.
        self.is_watching = True
        awaits = [ticket for ticket in tickets if isinstance(ticket.command, c.Await)]
        writes = [ticket for ticket in tickets if not isinstance(ticket.command, c.Await)]
        self._claims = [ticket for ticket in self._claims if not ticket.abandoned]
        self._awaits += awaits
        look, rung, self._rung = self._look, self._rung, False
        if look:
            # Reset before the claims: a later commit is handled in the next round.
            self._look = False
        answers = any(isinstance(ticket.command, c.AnswerAll) for ticket in writes)
        brings = any(isinstance(ticket.command, BRINGING) for ticket in writes)
        brings = brings or (answers and self._answers_bring)
        waiting: list[Ticket] = []
        if self._claims and (brings or self._may_find_jobs(look=look, rung=rung, busy=bool(writes))):
            # First come, first served: the claims that have waited longest come first.
            waiting, self._claims = self._claims, []
        for tickets in self._transactions(waiting, writes):
            self._group.commit_all(tickets)
        if waiting and not writes:
            self._has_found = any(ticket.answered for ticket in waiting)
        if answers:
            self._answers_bring = any(ticket.answered for ticket in waiting) if waiting else self._look
        ended: set[int] = set()
        while self._ended:
            ended |= self._ended.popleft()
        waited_for = {ticket.command.job_id for ticket in self._awaits}  # type: ignore[attr-defined]
        if awaits or (self._awaits and (rung or ended & waited_for)):
            self._resolve_awaits()
        self._expire()
        if rung:
            self._call_listeners()
        self.is_watching = bool(self._claims or self._awaits or self._listeners)

    def _transactions(self, waiting: list[Ticket], writes: list[Ticket]) -> list[list[Ticket]]:
        """The tickets of each transaction: waiting claims, and new tickets."""
        claims = [t for t in writes if type(t.command) is c.Claim] if self._claims_apart else []
        if not self._claims_apart or len(claims) == len(writes):
            return [[*waiting, *writes]] if waiting or writes else []
        others = [ticket for ticket in writes if type(ticket.command) is not c.Claim]
        return [others, [*waiting, *claims]] if waiting or claims else [others]

    def _may_find_jobs(self, *, look: bool, rung: bool, busy: bool) -> bool:
        """Whether waiting claims may find a job.

        After a wake-up by another process a read tells whether there is a job to claim: if all waiting claims
        took the write lock instead, adds would lose most of their speed. If there is something to commit
        anyway, or the last wake-up brought jobs and this one probably does too, the claim comes first. The
        read comes after it, when there is nothing to commit: rows without a due time, such as chores, may
        have changed too.
        """
        due = look or self._is_due()
        if rung and (busy or due or (self._has_found and not self._must_read)):
            self._must_read = True
            return True
        if busy or due or not (rung or self._must_read):
            return due
        self._must_read = False
        try:
            found = self._engine.claim_hint([ticket.command for ticket in self._claims])
        except Exception:
            # The claim gets the same error, and has a caller to raise it.
            return True
        if not found.has_work:
            self._next_ms = found.next_ms or self._engine.next_upkeep_ms
            self._next_known_ms = self._now_ms()
        return found.has_work

    def _is_due(self) -> bool:
        """Whether a job or upkeep is due, or may be because the clock was set back."""
        if self._next_ms is None:
            return False
        now_ms = self._now_ms()
        is_past = now_ms >= min(self._next_ms, self._engine.next_upkeep_ms)
        return is_past or now_ms < self._next_known_ms - CLOCK_SLACK_MS

    def _now_ms(self) -> int:
        """The store's time, or the last one known: the next commit meets what is wrong with the store."""
        try:
            return self._engine.store.now_ms()
        except StoreError:
            return self._next_known_ms

    def _resolve_awaits(self) -> None:
        from .ended import find_awaited

        tickets = self._awaits
        wanted = [t.command for t in tickets if isinstance(t.command, c.Await)]
        try:
            found = self._engine.read(lambda txn: find_awaited(txn, wanted))
        except Exception as error:
            self._awaits = []
            self._answer([(ticket, error) for ticket in tickets])
            return
        replies = list(zip(tickets, found, strict=True))
        self._awaits = [ticket for ticket, reply in replies if reply is None]
        self._answer([one for one in replies if one[1] is not None])

    def _expire(self) -> None:
        now_s = monotonic_s()
        late = [ticket for ticket in (*self._claims, *self._awaits) if ticket.deadline_s <= now_s]
        if late:
            self._claims = [ticket for ticket in self._claims if ticket.deadline_s > now_s]
            self._awaits = [ticket for ticket in self._awaits if ticket.deadline_s > now_s]
            self._answer([(t, [] if isinstance(t.command, c.Claim) else None) for t in late])

    def _call_listeners(self) -> None:
        for listener in self._listeners:
            listener()
