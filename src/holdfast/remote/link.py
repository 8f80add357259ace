"""The link to a server: one session at a time, opened again when it is lost; two threads.

put ──▶ outbox ──▶ the sender: all that is there, as one message ──▶ server
                          an add without ids waits until some are reserved, and another change until the
                          server has answered in this session: one that is not reached leaves no doubt
ticket ◀── the receiver: the replies of a message ◀──────────────────────┘
                claims that arrived are acknowledged

the stream is lost ──▶ what may be asked again goes back into the outbox, the rest is `Unsettled`
                   ──▶ another try, soon and then less often; after `patience_s` callers hear `Unavailable`
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import sleep
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from ..core import commands as c
from ..core.bounds import BATCH_JOBS
from ..core.errors import Closed, HoldfastError, StoreError, Unavailable, error_of
from ..core.ids import SLOTS, IdRange
from ..core.queries import GetTime, Query
from ..core.slots import with_slots
from ..engine.ticket import Ticket, deliver
from ..proto.conversion import SERVICE, Asks, Replies
from ..store.common.clock import monotonic_s
from ..store.common.interrupts import ServiceThread
from ..store.common.outage import Outages
from .address import ServerAddress
from .ask import (
    MESSAGE_ASKS,
    MESSAGE_BYTES,
    Ask,
    encoded,
    is_change,
    lookup_of,
    may_ask_again,
    may_be_done,
    settled_reply,
    unsettled,
)

# How long an unreachable server is retried before callers get an error.
PATIENCE_S = 30.0
FIRST_RETRY_S, LONGEST_RETRY_S = 0.02, 1.0
# How long `close` waits for the last replies, and for the stream to end.
CLOSING_S, ENDING_S = 10.0, 2.0
CODE = "holdfast-code"
# What a server that is not ours, or of another version, says.
WRONG_SERVER = (grpc.StatusCode.UNIMPLEMENTED,)
# How many ids are reserved at first, and at most; each time twice as many. Those that are not used are lost.
LEAST, MOST = 32, 8_192


class _Stream:
    """Whether a stream is over: its sender then ends."""

    is_over = False


class Link:
    """One process's session with a server. `changed` is called when progress or a log may have moved."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        changed: Callable[[], None],
        give_back: Callable[[Ticket], None],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._address, self._patience_s = address, patience_s
        self._changed, self._give_back = changed, give_back
        self._outages = Outages(str(address))
        self._lock = threading.RLock()
        self._wakeup = threading.Condition(self._lock)
        self._outbox: deque[Ask] = deque()
        # Asks that wait for ids, or for a first reply, and whether one of these was asked for.
        self._held_back: deque[Ask] = deque()
        self._has_asked = False
        self._ids = IdPool()
        # Whether the server has answered in this session.
        self._has_answered = False
        # Asks that were sent and have no reply yet.
        self._open: dict[int, Ask] = {}
        self._received: list[int] = []
        self._cancelled: list[int] = []
        self._listens, self._must_send_listen = False, False
        self._count = 0
        self._thread = ServiceThread(self._run, "holdfast-remote")
        self._is_closing = False
        self._call: Any = None
        # Since when there is no session, and the pause before the next try.
        self._lost_s = 0.0
        self._retry_s = FIRST_RETRY_S

    # For callers

    def put(self, asks: Sequence[Ask]) -> None:
        """Have asks sent; their tickets will be answered."""
        with self._lock:
            if self._is_closing:
                raise Closed
            self._put(asks)

    def _put(self, asks: Sequence[Ask]) -> None:
        self._outbox.extend(asks)
        self._thread.start()
        self._wakeup.notify_all()

    def cancel(self, ticket: Ticket) -> None:
        """The caller of a ticket is gone: the server need not go on."""
        with self._lock:
            found = next((ask for ask in self._open.values() if ask.ticket is ticket), None)
            if found is not None and found.waits:
                del self._open[found.number]
                self._cancelled.append(found.number)
                self._wakeup.notify_all()

    def listen(self, on: bool) -> None:
        """Have `changed` called from now on, or no longer."""
        with self._lock:
            self._listens = self._must_send_listen = on
            self._put([])

    def close(self) -> None:
        """Wait for the pending replies, answer waiting callers, and end the session."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            waiting = [ask for ask in (*self._outbox, *self._open.values()) if ask.waits]
            for ask in waiting:
                self._open.pop(ask.number, None)
            self._outbox = deque(ask for ask in self._outbox if not ask.waits)
            self._wakeup.notify_all()
        self._finish([(ask, Closed("this queue was closed while the call waited")) for ask in waiting])
        has_ended = not self._thread.is_started or self._thread.join(CLOSING_S)
        if not has_ended and self._call is not None:
            self._call.cancel()
            self._thread.join(ENDING_S)

    # The receiver

    def _run(self) -> None:
        channel = self._address.channel()
        method = channel.stream_stream(f"/{SERVICE.full_name}/Session")
        try:
            while not self._is_idle():
                self._serve(method)
        finally:
            channel.close()
            self._end()

    def _is_idle(self) -> bool:
        """Whether the link was closed, and no message is left to send."""
        with self._lock:
            return self._is_closing and not (self._outbox or self._open or self._held_back)

    def _serve(self, method: Any) -> None:
        """One session, until it is lost, and the nap after it."""
        stream = _Stream()
        with self._lock:
            self._must_send_listen, self._has_answered = self._listens, False
        error: Exception | None = None
        try:
            self._call = call = method(self._messages(stream), metadata=self._address.metadata)
            for raw in call:
                self._receive(raw)
        except grpc.RpcError as lost:
            error = self._reason(lost)
        except DecodeError:
            call.cancel()
            error = self._wrong_server()
        finally:
            with self._lock:
                stream.is_over = True
                self._wakeup.notify_all()
        self._on_lost(error)

    def _reason(self, lost: Any) -> Exception:
        """What a lost session means."""
        code = dict(lost.trailing_metadata() or ()).get(CODE)
        if code is not None:
            return error_of(str(code), lost.details())
        if lost.code() in WRONG_SERVER:
            return self._wrong_server()
        if not self._lost_s and (fault := self._address.find_tls_fault()):
            return StoreError(f"{self._address} cannot be used: {fault}")
        return Unavailable(f"{self._address} cannot be reached: {lost.details() or lost.code().name}")

    def _wrong_server(self) -> StoreError:
        return StoreError(f"{self._address} is no server of Holdfast, or of another version")

    def _receive(self, raw: bytes) -> None:
        sent = Replies.FromString(raw)
        self._lost_s, self._retry_s = 0.0, FIRST_RETRY_S
        self._outages.log_recovery()
        with self._lock:
            self._has_answered = True
            asks = [self._open.pop(reply.number, None) for reply in sent.replies]
        done = [
            (ask, ask.decode(reply)) for ask, reply in zip(asks, sent.replies, strict=True) if ask is not None
        ]
        arrived = [ask.number for ask, reply in done if type(ask.asked) is c.Claim and reply]
        if arrived:
            with self._lock:
                self._received += arrived
                self._wakeup.notify_all()
        self._finish(done)
        if sent.changed:
            self._changed()
        if self._is_closing:
            with self._lock:
                self._wakeup.notify_all()

    def _finish(self, done: Sequence[tuple[Ask, Any]]) -> None:
        """Pass replies to their callers."""
        for_loops: list[Ticket] = []
        for ask, found in done:
            is_open = ask.is_again and may_be_done(ask.asked, found)
            reply = unsettled(ask.asked, self._address) if is_open else found
            if ask.is_again and (query := lookup_of(ask.asked, reply)) is not None:
                self._look_up(ask, query, reply)
            elif ask.then is not None:
                ask.then(ask, reply)
            elif ask.ticket is not None:
                if not ask.ticket.answer(reply):
                    ask.ticket.reply = reply
                    self._give_back(ask.ticket)
                elif ask.ticket.loop is not None:
                    for_loops.append(ask.ticket)
        if for_loops:
            deliver(for_loops, self._give_back)

    def _look_up(self, refused: Ask, query: Any, refusal: HoldfastError) -> None:
        """Ask what became of a job before a refusal is believed."""

        def then(_ask: Ask, found: Any) -> None:
            answered = Ask(refused.asked, refused.ticket, refused.then)
            is_open = may_be_done(refused.asked, found)
            reply = (
                unsettled(refused.asked, self._address)
                if is_open
                else settled_reply(refused.asked, refusal, found)
            )
            self._finish([(answered, reply)])

        with self._lock:
            self._put([Ask(query, then=then)])

    # The sender

    def _messages(self, stream: _Stream) -> Iterator[bytes]:
        while True:
            with self._lock:
                while not stream.is_over and not self._has_news():
                    if self._is_closing and not (self._open or self._held_back):
                        return
                    self._wakeup.wait()
                if stream.is_over:
                    return
                asks, fields = self._gather()
            if not asks and not fields:
                continue
            raw, refused = encoded(Asks, fields, asks)
            if refused:
                with self._lock:
                    for ask, _ in refused:
                        self._open.pop(ask.number, None)
                self._finish(refused)
            yield raw

    def _has_news(self) -> bool:
        return bool(self._outbox or self._received or self._cancelled or self._must_send_listen)

    def _gather(self) -> tuple[list[Ask], dict[str, Any]]:
        """The next asks that go together, and the other fields of their message."""
        asks: list[Ask] = []
        size = 0
        while self._outbox and len(asks) < MESSAGE_ASKS:
            ask = self._outbox[0]
            if asks and size + ask.size > MESSAGE_BYTES:
                break
            self._outbox.popleft()
            if ask.is_unwanted or self._is_split(ask) or not self._may_be_sent(ask):
                continue
            self._count += 1
            ask.number = self._count
            self._open[ask.number] = ask
            asks.append(ask)
            size += ask.size
        fields: dict[str, Any] = {}
        if self._received:
            fields["received"], self._received = self._received, []
        if self._cancelled:
            fields["cancelled"], self._cancelled = self._cancelled, []
        if self._must_send_listen:
            fields["listen"], self._must_send_listen = self._listens, False
        return asks, fields

    def _is_split(self, ask: Ask) -> bool:
        """Whether an ask has more answers than fit in a message: each of them is then an ask in its place."""
        if not isinstance(ask.asked, c.AnswerAll) or ask.size <= MESSAGE_BYTES:
            return False
        self._outbox.extendleft(reversed(self._one_by_one(ask)))
        return True

    def _may_be_sent(self, ask: Ask) -> bool:
        """Whether an ask can be sent now: an add gets its ids, or waits for some."""
        wanted: c.Command | Query
        if not needs_ids(ask.asked):
            if self._has_answered or not is_change(ask.asked):
                return True
            wanted = GetTime()
        else:
            assert isinstance(ask.asked, c.Add)
            if self._ids.has(ask.asked):
                ask.asked = self._ids.assign(ask.asked)
                return True
            wanted = self._ids.wanted(ask.asked)
        self._held_back.append(ask)
        if not self._has_asked:
            self._has_asked = True
            self._outbox.appendleft(Ask(wanted, then=self._on_first_reply))
        return False

    def _on_first_reply(self, asked: Ask, reply: Any) -> None:
        """Ids have come, or another reply, or an error instead."""
        is_reserve, is_error = isinstance(asked.asked, c.ReserveIds), isinstance(reply, BaseException)
        with self._lock:
            self._has_asked = False
            held_back, self._held_back = self._held_back, deque()
            refused = [ask for ask in held_back if is_reserve and is_error and needs_ids(ask.asked)]
            if is_reserve and not is_error:
                self._ids.add(reply)
            self._outbox.extendleft(reversed([ask for ask in held_back if ask not in refused]))
            self._wakeup.notify_all()
        self._finish([(ask, reply) for ask in refused])

    # Without a session

    def _on_lost(self, error: Exception | None) -> None:
        """Put back what may be asked again, and wait before the next try."""
        with self._lock:
            lost, self._open = list(self._open.values()), {}
            self._received, self._cancelled = [], []
            # A token of one tenant may use them only at the server process that has reserved them.
            self._ids = IdPool()
            for ask in lost:
                ask.is_again = True
            again = [one for ask in lost if may_ask_again(ask.asked) for one in self._one_by_one(ask)]
            self._outbox.extendleft(reversed(again))
        self._finish(
            [(ask, unsettled(ask.asked, self._address)) for ask in lost if not may_ask_again(ask.asked)]
        )
        if error is not None and not isinstance(error, Unavailable):
            self._refuse_all(error)
        elif not self._is_idle():
            self._wait_to_retry(error)
        if self._listens:
            # Notifications in the meantime were missed.
            self._changed()

    def _one_by_one(self, ask: Ask) -> list[Ask]:
        """What stands for an ask: of many answers each, so that each fits in a message, and is settled."""
        if not isinstance(ask.asked, c.AnswerAll):
            return [ask]
        held = ask.asked.held or (None,) * len(ask.asked.answers)
        answers = [replace(one, held=job) for one, job in zip(ask.asked.answers, held, strict=True)]
        replies: list[Any] = [None] * len(answers)
        left = len(answers)

        def note(at: int, _ask: Ask, reply: Any) -> None:
            nonlocal left
            replies[at], left = reply, left - 1
            if not left:
                self._finish([(Ask(ask.asked, ask.ticket), replies)])

        apart = [Ask(one, then=partial(note, at)) for at, one in enumerate(answers)]
        for one in apart:
            one.is_again, one.put_s = ask.is_again, ask.put_s
        return apart

    def _refuse_all(self, error: Exception) -> None:
        with self._lock:
            asks = [*self._outbox, *self._held_back]
            self._outbox.clear()
            self._held_back.clear()
            self._has_asked = False
        self._finish([(ask, error) for ask in asks])
        with self._lock:
            while not self._outbox and not self._is_closing:
                self._wakeup.wait()

    def _wait_to_retry(self, error: Exception | None) -> None:
        self._lost_s = self._lost_s or monotonic_s()
        if self._retry_s >= LONGEST_RETRY_S and isinstance(error, StoreError):
            self._outages.log_outage(error, self._patience_s)
        retry_s = self._retry_s * (0.5 + random.random())
        self._retry_s = min(self._retry_s * 2, LONGEST_RETRY_S)
        with self._lock:
            is_closing = self._wakeup.wait_for(lambda: self._is_closing, retry_s)
        if is_closing:
            sleep(retry_s)
        patience_s = CLOSING_S if self._is_closing else self._patience_s
        now_s = monotonic_s()
        with self._lock:
            late = [
                ask
                for ask in (*self._outbox, *self._held_back)
                if max(ask.put_s, self._lost_s) + patience_s <= now_s
            ]
            self._outbox = deque(ask for ask in self._outbox if ask not in late)
            self._held_back = deque(ask for ask in self._held_back if ask not in late)
        reason = error or Unavailable(f"{self._address} cannot be reached")
        self._finish([(ask, reason) for ask in late])

    def _end(self) -> None:
        """Answer the remaining callers with an error: the link has ended."""
        with self._lock:
            self._is_closing = True
            for ask in self._open.values():
                ask.is_again = True
            left = [*self._outbox, *self._held_back, *self._open.values()]
            self._outbox.clear()
            self._held_back.clear()
            self._open.clear()
        self._finish([(ask, Closed("this queue was closed")) for ask in left])


class IdPool:
    """Reserved ids, in the order in which they were made."""

    def __init__(self) -> None:
        self._ranges: deque[range] = deque()
        self._count = 0
        self._next = LEAST

    def add(self, ranges: Iterable[IdRange]) -> None:
        """More ids have come."""
        for one in ranges:
            self._ranges.append(range(one.first, one.first + one.count * SLOTS, SLOTS))
            self._count += one.count

    def has(self, command: c.Add) -> bool:
        """Whether there are ids for all jobs of a command."""
        return self._count >= command.count

    def wanted(self, command: c.Add) -> c.ReserveIds:
        """What to ask for, so that a command has its ids and the next ones need not wait."""
        count = min(max(self._next, command.count), BATCH_JOBS)
        self._next = min(max(self._next, command.count) * 2, MOST)
        return c.ReserveIds(count=count)

    def assign(self, command: c.Add) -> c.Add:
        """The command with ids; see `with_slots`."""
        return with_slots(command, self._take(command.count))

    def _take(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            first = self._ranges[0]
            part = first[: count - len(taken)]
            taken.extend(part)
            if len(part) == len(first):
                self._ranges.popleft()
            else:
                self._ranges[0] = first[len(part) :]
        self._count -= count
        return taken


def needs_ids(command: object) -> bool:
    """Whether a command adds jobs that have no ids yet."""
    if not isinstance(command, c.Add) or command.ids or any(new.id for new in command.jobs):
        return False
    return 0 < command.count <= BATCH_JOBS
