"""`Work`: jobs for a worker in any language, as many as it grants credit for, and what it says of them."""

from collections import deque
from functools import partial
from typing import Any

from ...core import commands as c
from ...core.access import Grant
from ...core.bounds import CLAIM_JOBS, DEFAULT_LEASE_MS
from ...core.errors import BadInput, HoldfastError, LeaseLost, NotFound, TooLarge
from ...core.job import Job, Place
from ...proto.conversion import VERBS, FromWorker, ToWorker, encode_claimed
from .admission import allowed, shown_error
from .decoding import decode, parse
from .stream import MESSAGE_ASKS, MESSAGE_BYTES, MESSAGE_REPLIES, MOST_WAIT_S, Stream, StreamTicket, weight_of

# What a worker says of jobs, by the field of its message.
SAID = {"answers": VERBS[c.Answer], "extends": VERBS[c.Extend], "releases": VERBS[c.Release]}


class Work(Stream):
    """The stream of a worker."""

    kind = c.Claim

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # The claim that the client wants, and the same as its token allows it.
        self._wanted: c.Claim | None = None
        self._granted: c.Claim | None = None
        self._credit = 0
        self._is_claiming = False
        self._jobs: deque[c.Claimed] = deque()
        self._settled: deque[dict[str, Any]] = deque()

    async def handle_message(self, raw: bytes, grant: Grant) -> None:
        """Do what a message asks for."""
        sent, said = await self._caller.decoding.run(len(raw), partial(_read, raw, grant))
        if sent.HasField("start"):
            self._start(sent.start)
        if self._wanted is None:
            raise BadInput("start", None, needed="in the first message")
        if sent.credit < 0:
            raise BadInput("credit", sent.credit, needed="0 or more")
        self._credit += sent.credit
        for job_id in sent.received:
            self.unreceived.pop(job_id, None)
        tickets: list[StreamTicket] = []
        for hold, asked in said:
            self.unreceived.pop(hold.job_id, None)
            if isinstance(asked, HoldfastError):
                self._settle_hold(hold, asked)
            else:
                tickets.append(StreamTicket(self.with_held(asked), self, hold))
        if tickets:
            self.submit(tickets)
        self._granted = allowed(grant, self._wanted)
        self._claim()

    def _start(self, start: Any) -> None:
        if self._wanted is not None:
            raise BadInput("start", "given again", needed="in the first message only")
        lease_ms = start.lease_ms or DEFAULT_LEASE_MS
        self._wanted = c.Claim(tasks=tuple(start.tasks) or None, tenant=start.tenant, lease_ms=lease_ms)

    def on_all_sent(self) -> None:
        """Claim again: the client has read what it got."""
        self._claim()

    def _claim(self) -> None:
        wanted = self._granted
        if wanted is None or self._is_claiming or not self._credit or self._draining.is_set():
            return
        if self._jobs:
            # However much credit there is: the client has not read these yet.
            return
        self._is_claiming = True
        command = c.Claim(
            tasks=wanted.tasks,
            tenant=wanted.tenant,
            lease_ms=wanted.lease_ms,
            limit=min(self._credit, CLAIM_JOBS),
        )
        self.submit([StreamTicket(command, self, command, wait_s=MOST_WAIT_S)])

    def put_reply(self, note: Any, reply: Any) -> None:
        """Put jobs, or what became of an answer, into the outbox."""
        if not isinstance(note, c.Claim):
            self._settle_hold(note, reply)
            return
        self._is_claiming = False
        if isinstance(reply, Exception):
            # Told by the status of the stream; the worker opens another.
            self.fail(reply)
            return
        self._credit -= len(reply)
        self._jobs.extend(reply)
        self.unsent += weight_of(reply)
        self.unreceived |= {one.job.id: [one.job] for one in reply}
        self._claim()

    def _settle_hold(self, hold: c.Hold, reply: Any) -> None:
        settled: dict[str, Any] = {"job_id": hold.job_id, "claim": hold.claim or 0}
        if isinstance(reply, BaseException):
            settled["error"] = shown_error(reply)
            settled["cancel_requested"] = isinstance(reply, LeaseLost | NotFound)
        elif isinstance(reply, Job) and reply.place is Place.RUNNING and reply.claim == hold.claim:
            settled["cancel_requested"] = reply.cancel_requested
            settled["lease_until"] = reply.lease_until
        self._settled.append(settled)
        self.unsent += 1
        self.wake()

    def close(self) -> None:
        """Release jobs that were not sent."""
        unsent = [job for claimed in self._jobs for job in self.unreceived.pop(claimed.job.id, [])]
        self._connection.release(unsent)
        self._jobs.clear()
        self._settled.clear()

    def next_message(self) -> tuple[bytes, bool] | None:
        """The next jobs and what became of answers, as one message."""
        if not self._jobs and not self._settled:
            return None
        jobs: list[Any] = []
        settled: list[Any] = []
        size = 0
        while self._jobs and len(jobs) < MESSAGE_REPLIES and size < MESSAGE_BYTES:
            claimed = self._jobs.popleft()
            jobs.append(encode_claimed(claimed))
            size += len(claimed.data)
        while self._settled and len(settled) < MESSAGE_REPLIES:
            settled.append(self._settled.popleft())
        self.unsent = weight_of(list(self._jobs)) + len(self._settled) - 1
        raw: bytes = ToWorker(jobs=jobs, settled=settled).SerializeToString()
        return raw, bool(jobs)


def _read(raw: bytes, grant: Grant) -> tuple[Any, list[tuple[c.Hold, Any]]]:
    """A message, and of each job what is said, kept to what the client may do, or an error. In any thread."""
    sent = parse(FromWorker, raw)
    if (count := sum(len(getattr(sent, field)) for field in SAID)) > MESSAGE_ASKS:
        raise TooLarge("answers", f"{count:,}", needed=f"at most {MESSAGE_ASKS:,} in a message")
    said: list[tuple[c.Hold, Any]] = []
    for field, verb in SAID.items():
        for one in getattr(sent, field):
            asked = decode(verb, one, grant)
            try:
                said.append((asked.hold, allowed(grant, asked)))
            except HoldfastError as error:
                said.append((asked.hold, error))
    return sent, said
