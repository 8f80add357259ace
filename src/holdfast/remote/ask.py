"""One ask on its way to the server, and the messages that many of them become."""

from collections.abc import Callable
from typing import Any

from ..core import commands as c
from ..core.bounds import GRPC_REQUEST_BYTES
from ..core.errors import BadInput, Forbidden, HoldfastError, TooLarge
from ..core.queries import Query
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
