"""One request and its reply: who asks, what, and the answer, in JSON.

    token ──▶ grant ──▶ fields ──▶ record ──▶ confined, checked ──▶ asked ──▶ JSON, or a problem

On loopback, where no token is needed, a web page open in a browser could send requests too. So a request
without a token must name a loopback host, and come from no other origin.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...core import commands as c
from ...core import queries as q
from ...core.access import Grant, confine
from ...core.bounds import BATCH_JOBS, HTTP_BUFFERED_BYTES, HTTP_LINES, HTTP_WAIT_S, READ_AT_ONCE_BYTES
from ...core.checks import check_command
from ...core.errors import BadInput, HoldfastError, TooLarge
from ...core.incoming import check_incoming
from ...engine.connection import Connection
from ...engine.metrics import CommitMeter
from ...queue import tracing
from ..asking import Asking, Decoding
from ..guard import Guard, is_loopback_name
from .forms import check_values, form_of
from .problems import Refusal, bad_json

T = TypeVar("T")
JSON, NDJSON, EVENTS, BYTES = (
    "application/json",
    "application/x-ndjson",
    "text/event-stream",
    "application/octet-stream",
)
_encode = msgspec.json.Encoder().encode
# Under this name the connection takes what is to be done if the reply does not arrive.
UNLESS_ARRIVED = "holdfast.unless_arrived"


class Exchange:
    """What all endpoints share: the store, the guard, and the limits."""

    def __init__(self, connection: Connection, guard: Guard, *, loopback: bool, max_body_bytes: int) -> None:
        self.connection, self.guard, self.loopback = connection, guard, loopback
        self.asking, self.decoding = Asking(connection), Decoding()
        # The commits of this server, for its metrics.
        self.commits = CommitMeter()
        connection.measure(self.commits)
        self.max_body_bytes = max_body_bytes
        # Bytes of bodies that are being read.
        self.buffered = 0
        # Set when the server closes: waiting requests are answered at once.
        self.draining = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether clients need no token."""
        return self.loopback and not self.guard.always

    async def admit(self, request: Request) -> Grant:
        """The grant of the client; raises the error for the reply."""
        secret = self._secret(request)
        if not secret and self.loopback:
            _check_origin(request)
        return await self.guard.admit(secret, loopback=self.loopback, peer=peer_of(request))

    async def readmit(self, request: Request) -> None:
        """Raise `Unauthenticated` if the token was revoked, or has expired, since the client was admitted."""
        await self.guard.grant(self._secret(request), loopback=self.loopback, peer=peer_of(request))

    def _secret(self, request: Request) -> str | None:
        header = header_of(request, b"authorization")
        if header is None:
            return None
        scheme, _, secret = header.partition(" ")
        return secret.strip() if scheme.lower() == "bearer" else ""

    async def body(self, request: Request, *, max_bytes: int | None = None) -> bytes:
        """The whole body, if it is not too large, nor all that are being read together.

        `max_bytes` may be less than the limit of the server.
        """
        max_bytes = min(self.max_body_bytes, self.max_body_bytes if max_bytes is None else max_bytes)
        length = header_of(request, b"content-length") or "0"
        if length.isdigit() and int(length) > max_bytes:
            raise _too_large(max_bytes)
        size, parts, is_whole = 0, [], False
        try:
            while not is_whole:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, is_whole = message.get("body", b""), not message.get("more_body", False)
                size += len(part)
                self.buffered += len(part)
                if size > max_bytes:
                    raise _too_large(max_bytes)
                if self.buffered > HTTP_BUFFERED_BYTES:
                    text = "too much is being sent to the server; try again"
                    raise Refusal(503, "BUSY", text, {"Connection": "close", "Retry-After": "1"})
                parts.append(part)
        finally:
            self.buffered -= size
        return b"".join(parts)

    def ask(
        self, grant: Grant, asked: c.Command | q.Query, *, wait_s: float = 0.0, ids_are_own: bool = False
    ) -> Coroutine[Any, Any, Any]:
        """The reply to a command or query of a client, to be awaited; raises what is refused."""
        check_incoming(asked)
        asked = confine(grant, asked, ids_are_own=ids_are_own)
        if isinstance(asked, c.Command):
            check_command(asked)
        return self.asking.ask_async(asked, wait_s=wait_s)

    async def wait(self, request: Request, work: Awaitable[T], otherwise: T) -> T:
        """What is waited for; given up when the client goes away, `otherwise` when the server closes."""
        return await self.unless_gone(request, await self._wait(request, work, otherwise))

    async def unless_gone(self, request: Request, found: T) -> T:
        """What was found for a client; raises if it is gone, or its token was revoked meanwhile.

        Then it gets nothing: claimed jobs are released.
        """
        try:
            await self.readmit(request)
            if await request.is_disconnected():
                raise ClientDisconnect
        except (HoldfastError, ClientDisconnect):
            if isinstance(found, list):
                self.connection.release(one.job for one in found if isinstance(one, c.Claimed))
            raise
        return found

    def release_unless_arrived(self, request: Request, claimed: list[c.Claimed]) -> None:
        """Release the jobs of a reply that does not arrive; but those that must not run twice stay."""
        if claimed and (unless_arrived := request.scope.get(UNLESS_ARRIVED)) is not None:
            jobs = [one.job for one in claimed]
            unless_arrived(lambda: self.connection.release(jobs, was_sent=True))

    async def _wait(self, request: Request, work: Awaitable[T], otherwise: T) -> T:
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(request))
        closing = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait((task, gone, closing), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            task.cancel()
            try:
                # What it has got in the same moment is not lost.
                return await task
            except asyncio.CancelledError:
                if gone.done():
                    raise ClientDisconnect from None
                return otherwise
        finally:
            task.cancel()
            gone.cancel()
            closing.cancel()


def _too_large(max_bytes: int) -> Refusal:
    # The rest is not read: the connection ends with the reply.
    text = f"the body has more than {max_bytes:,} bytes"
    return Refusal(413, "TOO_LARGE", text, {"Connection": "close"})


def mark_trace(request: Request, jobs: Iterable[c.NewJob]) -> tuple[c.NewJob, ...]:
    """The jobs of a request, with the span of its client."""
    return tracing.mark(jobs, tracing.traceparent_for(header_of(request, b"traceparent")))


def peer_of(request: Request) -> str:
    """The address of the client, or ""."""
    return request.client.host if request.client else ""


def header_of(request: Request, name: bytes) -> str | None:
    """The first header of a name in lower case, or None."""
    for one, value in request.scope["headers"]:
        if one == name:
            return str(value, "latin-1")
    return None


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_origin(request: Request) -> None:
    """Refuse requests that a web page of another site sends from the browser of its reader."""
    host = header_of(request, b"host") or ""
    if not is_loopback_name(host):
        raise Refusal(403, "FORBIDDEN", "without a token the Host must be localhost, 127.0.0.1 or [::1]")
    origin = header_of(request, b"origin")
    if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
        raise Refusal(403, "FORBIDDEN", "without a token, pages of other origins are not answered")


def check_site(request: Request) -> None:
    """Refuse what a browser sends for a page of another site, be it with a token or without."""
    if header_of(request, b"sec-fetch-site") not in (None, "same-origin", "none"):
        raise Refusal(403, "FORBIDDEN", "pages of other sites are not answered")


def wait_s_of(said: Any) -> float:
    """How long a client wants to wait, in seconds."""
    try:
        wait_s = float(said or 0)
    except ValueError:
        raise BadInput("wait", said, needed=f"seconds, from 0 to {HTTP_WAIT_S:g}") from None
    if not 0 <= wait_s <= HTTP_WAIT_S:
        raise BadInput("wait", said, needed=f"seconds, from 0 to {HTTP_WAIT_S:g}")
    return wait_s


def decode(raw: bytes, kind: Any) -> Any:
    """JSON as a form; a problem tells the path to what is wrong."""
    try:
        if kind is not msgspec.Raw and len(raw) > READ_AT_ONCE_BYTES and raw.count(b",") >= BATCH_JOBS:
            check_values(raw, kind)
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_json(error, kind, raw) from None


def lines_of(raw: bytes) -> list[bytes]:
    """The lines of a body; counted first, because each empty one would become an object too."""
    if (count := raw.count(b"\n")) > HTTP_LINES:
        raise TooLarge("body", f"{count:,} lines", needed=f"at most {HTTP_LINES:,}; send several requests")
    return raw.split(b"\n")


def read_query(request: Request, kind: Any) -> Any:
    """The query of an address as a form."""
    try:
        return msgspec.convert(dict(request.query_params), kind, strict=False)
    except msgspec.MsgspecError as error:
        raise bad_json(error, kind) from None


def read(kind: Any, value: Any) -> Any:
    """The record of a form."""
    convert = form_of(kind).read
    assert convert is not None
    try:
        return convert(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError) as error:
        raise bad_json(error) from None


def respond(value: Any, status: int = 200) -> Response:
    """A response in JSON."""
    return Response(_encode(value), status, media_type=JSON)


Endpoint = Callable[[Exchange, Request, Grant], Awaitable[Response]]
