"""One ask on its way to the server, the messages that many of them become, and what a lost reply means.

Queries, adds under ids known beforehand, claims and what sets a value are asked again, and what a holder said
too: where that is refused, the job tells whether it was done the first time. See docs/decisions/0017.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..core import commands as c
from ..core import handler as h
from ..core.bounds import GRPC_REQUEST_BYTES
from ..core.errors import (
    BadInput,
    Closed,
    Forbidden,
    HoldfastError,
    LeaseLost,
    NotFound,
    StoreError,
    TooLarge,
    Unauthenticated,
    Unsettled,
)
from ..core.job import Job, Place, State
from ..core.queries import GetJob, Query
from ..engine.group import bytes_of
from ..engine.ticket import Ticket
from ..proto.conversion import VERBS, decode_error
from ..store.common.clock import monotonic_s

Asked = c.Command | Query
# The largest message, unless a single request is larger.
MESSAGE_ASKS = 1_000
MESSAGE_BYTES = 4 * 1024 * 1024


class Ask:
    """A command or query, and who gets the reply: a ticket, or (`then`) a function of the link."""

    __slots__ = ("asked", "is_again", "number", "put_s", "size", "then", "ticket", "verb")

    def __init__(
        self, asked: Asked, ticket: Ticket | None = None, then: Callable[["Ask", Any], None] | None = None
    ) -> None:
        self.asked, self.ticket, self.then = asked, ticket, then
        verb = VERBS.get(type(asked))
        if verb is None:
            raise Forbidden(f"{type(asked).__name__} is not for clients")
        self.verb = verb
        self.number = 0
        # About how many bytes it has.
        self.size = bytes_of(asked) if isinstance(asked, c.Command) else 0
        # Whether it was sent before, and the connection lost.
        self.is_again = False
        self.put_s = monotonic_s()

    @property
    def is_unwanted(self) -> bool:
        """Whether its caller has gone, so that it need not be sent."""
        return isinstance(self.asked, c.Claim) and self.ticket is not None and self.ticket.abandoned

    @property
    def waits(self) -> bool:
        """Whether it may take long by intent."""
        return self.ticket is not None and self.ticket.deadline_s > 0

    def encode(self) -> dict[str, Any]:
        """The fields of its `Ask`; what cannot be sent is `BadInput`."""
        self.check_size(self.size)
        made = {"number": self.number, self.verb.field: self.verb.encode(self.asked)}
        if self.waits:
            assert self.ticket is not None
            made["wait_ms"] = max(int((self.ticket.deadline_s - monotonic_s()) * 1000), 0)
        return made

    def check_size(self, size: int) -> None:
        """Raise `TooLarge` if it has more bytes than the server takes at once."""
        if size > GRPC_REQUEST_BYTES:
            needed = f"at most {GRPC_REQUEST_BYTES:,} in one message"
            raise TooLarge(self.verb.name, f"{size:,} bytes", needed=needed)

    def decode(self, reply: Any) -> Any:
        """What was replied: a value, or an error."""
        field = reply.WhichOneof("reply")
        if field == "error":
            return decode_error(reply.error)
        if field != self.verb.field:
            return HoldfastError(f"the server replied {field} to {self.verb.name}")
        try:
            return self.verb.decode_reply(getattr(reply, field))
        except (ValueError, TypeError, LookupError) as error:
            return HoldfastError(
                f"the server's reply to {self.verb.name} cannot be read, as if of another version: {error}"
            )


def encoded(kind: Any, fields: dict[str, Any], asks: list[Ask]) -> tuple[bytes, list[tuple[Ask, Exception]]]:
    """One message of asks, and those that cannot be sent."""
    made: list[dict[str, Any]] = []
    refused: list[tuple[Ask, Exception]] = []
    for ask in asks:
        try:
            made.append(ask.encode())
        except HoldfastError as error:
            refused.append((ask, error))
    try:
        raw: bytes = kind(asks=made, **fields).SerializeToString()
        if len(raw) <= GRPC_REQUEST_BYTES:
            return raw, refused
    except (TypeError, ValueError):
        pass
    # One of them has what no message can, or more than the server takes: find it.
    good = []
    for one, ask in zip(made, [ask for ask in asks if ask not in dict(refused)], strict=True):
        try:
            alone = kind(asks=[one]).asks[0]
            ask.check_size(alone.ByteSize())
            good.append(alone)
        except TooLarge as error:
            refused.append((ask, error))
        except (TypeError, ValueError) as error:
            refused.append((ask, BadInput(ask.verb.field, "what cannot be sent", needed=str(error))))
    message = kind(**fields)
    message.asks.extend(good)
    return message.SerializeToString(), refused


# Lost replies

# To do these twice is not the same as once.
ONCE = (
    c.Requeue,
    c.RequeueAll,
    c.RunSchedule,
    c.Delete,
    c.WriteLog,
    c.CreateToken,
    c.RevokeToken,
    h.RollBackHandler,
    h.DeleteHandler,
)
# These change nothing, or what they claimed for a session that is lost is released.
HARMLESS = (c.Claim, c.Await, c.ReserveIds)
# Errors that tell nothing about an earlier try. A server that has started meanwhile does not know the ids
# that were reserved for a token of one tenant, and refuses them.
UNTELLING = (StoreError, Closed, Unauthenticated, Forbidden)
# Under a claim that their first try has ended, these are refused the second time.
ENDING = (c.Answer, c.Release)


def may_ask_again(asked: c.Command | Query) -> bool:
    """Whether a command that may have been done can be asked for once more."""
    if isinstance(asked, c.Append):
        return all(item.key is not None for item in asked.items)
    if isinstance(asked, c.SendSignal):
        return bool(asked.key)
    if isinstance(asked, c.Add):
        return bool(asked.ids) or all(new.id for new in asked.jobs)
    return not isinstance(asked, ONCE)


def is_change(asked: c.Command | Query) -> bool:
    """Whether it matters if a command was done."""
    return isinstance(asked, c.Command) and not isinstance(asked, HARMLESS)


def may_be_done(asked: c.Command | Query, reply: Any) -> bool:
    """Whether an ask that was asked again, and met an error, may have been done the first time."""
    return is_change(asked) and isinstance(reply, UNTELLING)


def unsettled(asked: c.Command | Query, where: object) -> Unsettled:
    """The error of an ask that cannot be asked again."""
    name = type(asked).__name__
    return Unsettled(f"the connection to {where} was lost: {name} may have been done, or not")


def lookup_of(asked: c.Command | Query, reply: Any) -> GetJob | None:
    """What to look up before a refusal is believed that an ask met when it was asked again."""
    if isinstance(asked, ENDING) and isinstance(reply, LeaseLost | NotFound) and asked.hold.claim is not None:
        return GetJob(job_id=asked.hold.job_id, tenant=asked.hold.tenant)
    return None


def settled_reply(asked: c.Command | Query, refusal: HoldfastError, found: Any) -> Any:
    """The reply to an ask that was refused the second time; `found` is its job as it is now."""
    assert isinstance(asked, ENDING)
    if isinstance(found, Job):
        if isinstance(asked, c.Release):
            # Another worker has it, or it waits: either way it was given back.
            return found
        return found if _was_answered(found, asked) else refusal
    if isinstance(found, NotFound) and isinstance(asked, c.Answer) and asked.held is not None:
        # A claimed job cannot be deleted, so it has ended, and was purged at once.
        return replace(asked.held, place=Place.DONE, ended=State.FINISHED, owner=0)
    return refusal


def _was_answered(job: Job, answer: c.Answer) -> bool:
    """Whether the last run of a job ended under that claim, as the answer says."""
    end = job.outcome
    if end is None or job.claim != answer.hold.claim or job.owner:
        return False
    return end.code is answer.code and 0 < job.started_at <= end.at
