"""`Session`: commands and queries of one client, many in a message, answered in any order."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ...core import commands as c
from ...core.access import Grant
from ...core.commands import Command
from ...core.errors import BadInput, HoldfastError, TooLarge
from ...proto.conversion import BY_FIELD, Asks, Replies, Verb
from .admission import ReservedIds, allowed, shown_error
from .decoding import decode, parse
from .stream import (
    MESSAGE_ASKS,
    MESSAGE_BYTES,
    MESSAGE_REPLIES,
    MOST_WAITS,
    Stream,
    StreamTicket,
    wait_s_of,
    weight_of,
)

# What a client receives at the most.
REPLY_BYTES = 128 * 1024 * 1024

Note = tuple[int, Verb]


class ReadAsk(NamedTuple):
    """An ask of a message: what is to be run, or the error that is replied instead."""

    number: int
    wait_ms: int
    verb: Verb | None
    asked: Any


class ClientSession(Stream):
    """The session of a client."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._outbox: deque[tuple[int, Verb | None, Any]] = deque()
        self._waiting_asks: dict[int, StreamTicket] = {}
        self._tenant: str | None = None
        self._reserved: ReservedIds | None = None
        self._is_listening = self._has_changed = False

    async def handle_message(self, raw: bytes, grant: Grant) -> None:
        """Do what a message asks for."""
        sent, asks = await self._caller.decoding.run(len(raw), partial(self._read_asks, raw, grant))
        self._tenant = grant.tenant
        for number in sent.received:
            self.unreceived.pop(number, None)
        tickets: list[StreamTicket] = []
        for ask in asks:
            try:
                self._start_ask(ask, tickets)
            except HoldfastError as error:
                self._put(ask.number, None, error)
        if tickets:
            self.submit(tickets)
        for number in sent.cancelled:
            self._cancel(number)
        if sent.HasField("listen"):
            self._listen(sent.listen)

    def _read_asks(self, raw: bytes, grant: Grant) -> tuple[Any, list[ReadAsk]]:
        """A message and its asks, each kept to what the client may do. In any thread."""
        sent = parse(Asks, raw)
        if len(sent.asks) > MESSAGE_ASKS:
            raise TooLarge(
                "asks", f"{len(sent.asks):,} asks", needed=f"at most {MESSAGE_ASKS:,} in a message"
            )
        return sent, [self._read_ask(ask, grant) for ask in sent.asks]

    def _read_ask(self, ask: Any, grant: Grant) -> ReadAsk:
        field = ask.WhichOneof("asked")
        if field is None:
            error = BadInput("asked", None, needed="a command or query that this server knows")
            return ReadAsk(ask.number, 0, None, error)
        verb = BY_FIELD[field]
        try:
            asked = allowed(grant, decode(verb, getattr(ask, field), grant), self._caller.reservations)
        except HoldfastError as error:
            asked = error
        return ReadAsk(ask.number, ask.wait_ms, verb, asked)

    def _start_ask(self, ask: ReadAsk, tickets: list[StreamTicket]) -> None:
        verb, kept = ask.verb, ask.asked
        if verb is None or isinstance(kept, HoldfastError):
            raise kept
        if not isinstance(kept, Command):
            self.query(kept, (ask.number, verb))
            return
        can_wait = isinstance(kept, c.Claim | c.Await)
        wait_s = wait_s_of(ask.wait_ms) if can_wait else 0.0
        if wait_s and len(self.waits) + len(tickets) >= MOST_WAITS:
            raise TooLarge("calls that wait", f"{len(self.waits):,}", needed=f"at most {MOST_WAITS:,}")
        ticket = StreamTicket(self.with_held(kept), self, (ask.number, verb), wait_s=wait_s)
        if can_wait:
            self._waiting_asks[ask.number] = ticket
        tickets.append(ticket)

    def _cancel(self, number: int) -> None:
        """The client no longer wants the reply to an ask: what it claims is given back."""
        ticket = self._waiting_asks.pop(number, None)
        if ticket is not None:
            self._abandon([ticket])
        self._connection.release(self.unreceived.pop(number, []))

    def put_reply(self, note: Note, reply: Any) -> None:
        """Put a reply into the outbox."""
        number, verb = note
        if verb.kind is c.Claim or verb.kind is c.Await:
            is_wanted = self._waiting_asks.pop(number, None) is not None
            if verb.kind is c.Claim and isinstance(reply, list) and reply:
                if not is_wanted:
                    self._connection.release(one.job for one in reply)
                    return
                self.unreceived[number] = [one.job for one in reply]
        if verb.kind is c.ReserveIds and isinstance(reply, list) and self._tenant is not None:
            self._reserved = self._reserved or self._caller.reservations.open(self._tenant)
            self._reserved.add(reply)
        self._put(number, verb, reply)

    def _put(self, number: int, verb: Verb | None, reply: Any) -> None:
        self._outbox.append((number, verb, reply))
        self.unsent += weight_of(reply)
        self.wake()

    def next_message(self) -> tuple[bytes, bool] | None:
        """The next replies, as one message."""
        if not self._outbox and not self._has_changed:
            return None
        taken: list[tuple[int, Verb | None, Any]] = []
        size_kb = 0
        while self._outbox and len(taken) < MESSAGE_REPLIES and size_kb * 1_000 < MESSAGE_BYTES:
            taken.append(self._outbox.popleft())
            size_kb += weight_of(taken[-1][2])
        raw = self._encoded(taken)
        if len(raw) > REPLY_BYTES and len(taken) > 1:
            self._outbox.extendleft(reversed(taken[1:]))
            del taken[1:]
            size_kb, raw = weight_of(taken[0][2]), self._encoded(taken)
        if len(raw) > REPLY_BYTES:
            error = TooLarge("reply", f"{len(raw):,} bytes", needed=f"at most {REPLY_BYTES:,}; ask for fewer")
            raw = self._encoded([(taken[0][0], None, error)])
        self._has_changed = False
        self.unsent -= size_kb
        was_awaited = any(
            verb is not None and verb.kind in (c.Claim, c.Await) and reply for _, verb, reply in taken
        )
        return raw, was_awaited

    def _encoded(self, taken: Sequence[tuple[int, Verb | None, Any]]) -> bytes:
        replies: list[dict[str, Any]] = []
        for number, verb, reply in taken:
            if verb is None or isinstance(reply, BaseException):
                replies.append({"number": number, "error": shown_error(reply)})
            else:
                replies.append({"number": number, verb.field: verb.encode_reply(reply)})
        raw: bytes = Replies(replies=replies, changed=self._has_changed).SerializeToString()
        return raw

    def _listen(self, on: bool) -> None:
        if on != self._is_listening:
            self._is_listening = on
            (self._connection.listen if on else self._connection.unlisten)(self._changed)

    def _changed(self) -> None:
        """Progress or a log may have moved. In another thread."""
        try:
            self.loop.call_soon_threadsafe(self._on_change)
        except RuntimeError:
            # The server has stopped.
            pass

    def _on_change(self) -> None:
        self._has_changed = True
        self.wake()

    def close(self) -> None:
        """Listen no more, and release jobs that were not sent."""
        self._listen(False)
        unsent = [job for number, _, _ in self._outbox for job in self.unreceived.pop(number, [])]
        self._connection.release(unsent)
        self._outbox.clear()
        if self._reserved is not None:
            self._reserved.is_over = True
