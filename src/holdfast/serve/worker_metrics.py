"""The metrics of a worker over HTTP: one path, GET /metrics, without the libraries of `holdfast serve`.

On loopback no token is needed, but the Host must be a loopback name: a page in a browser may not read them.
Elsewhere the token must allow to read all tenants.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from ..core.access import confine
from ..core.errors import BadInput, Forbidden, HoldfastError, RateLimited, Unauthenticated
from ..core.queries import ListWorkers
from ..engine.connection import Connection
from ..engine.metrics import TYPE
from .guard import Guard, incidents, is_loopback_name
from .service import ListenAddress, is_loopback

# Clients at once, bytes of a request's head, and how long it may take.
MOST_CLIENTS = 32
HEAD_BYTES = 8_192
HEAD_S = 10.0
STATUSES: tuple[tuple[type[HoldfastError], HTTPStatus], ...] = (
    (Unauthenticated, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (RateLimited, HTTPStatus.TOO_MANY_REQUESTS),
)


class WorkerMetricsServer:
    """Listens at one address."""

    def __init__(self, address: ListenAddress, connection: Connection, render: Callable[[], bytes]) -> None:
        self._address, self._render = address, render
        self._loopback = is_loopback(address.host)
        if not self._loopback:
            _check_has_tokens(address, connection)
        self._guard = Guard(connection)
        self._server: asyncio.Server | None = None
        self._clients = 0

    async def start(self) -> list[str]:
        """Listen, as long as the event loop runs; returns the addresses."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._address.host, self._address.port, limit=HEAD_BYTES
            )
        except OSError as error:
            needed = f"an address that is free ({error.strerror})"
            raise BadInput("metrics", str(self._address), needed=needed) from None
        return [str(ListenAddress(*one.getsockname()[:2])) for one in self._server.sockets]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= MOST_CLIENTS:
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head.decode("latin-1"), writer))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client is gone, slow, or sends something else.
            pass
        finally:
            self._clients -= 1
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> bytes:
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if rest.partition(" ")[0].partition("?")[0] != "/metrics":
            return _response(HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n")
        if method != "GET":
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n")
        try:
            await self._admit(headers, str(writer.get_extra_info("peername", ("",))[0]))
        except HoldfastError as error:
            found = (status for kind, status in STATUSES if isinstance(error, kind))
            text = f"{incidents.report(error)}\n"
            return _response(next(found, HTTPStatus.SERVICE_UNAVAILABLE), text.encode())
        return _response(HTTPStatus.OK, self._render(), TYPE)

    async def _admit(self, headers: dict[str, str], peer: str) -> None:
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        given = secret.strip() if scheme.lower() == "bearer" else None
        if given is None and self._loopback and not is_loopback_name(headers.get("host", "")):
            raise Forbidden("without a token the Host must be localhost, 127.0.0.1 or [::1]")
        grant = await self._guard.admit(given, loopback=self._loopback, peer=peer)
        confine(grant, ListWorkers())
        if grant.tenant is not None:
            raise Forbidden("the metrics of a worker are of all tenants, and the token is of one")


def _check_has_tokens(address: ListenAddress, connection: Connection) -> None:
    try:
        _ = connection.engine
    except BadInput:
        needed = "on loopback: the tokens are checked by the server that this worker is connected to"
        raise BadInput("metrics", str(address), needed=needed) from None


def _response(status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    )
    return head.encode() + body
