"""The services of `holdfast serve`: servers and worker processes. `App` starts and drains all of them.

Also what their connections share: addresses, and whether data has arrived at the other machine.
"""

import asyncio
import errno
import fcntl
import ipaddress
import socket
import struct
import sys
import termios
from typing import Protocol

import msgspec

from ..core.errors import BadInput, HoldfastError
from ..core.queries import FindToken
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s


class ListenAddress(msgspec.Struct, frozen=True):
    """The address on which a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Service(Protocol):
    """What `App` needs from a service."""

    name: str
    # Its address or its name, for errors.
    where: str

    async def start(self) -> list[str]:
        """Start; returns lines for the log, such as "http on 127.0.0.1:8080"."""

    async def drain(self) -> None:
        """Refuse new requests, answer the running ones, and close, within `DRAIN_S`."""


# A server is ready if its store has answered within the last `READY_S`. It is asked every `ASK_S` at most,
# one question for all who want to know: they wait `PROBE_S` for it, however long it hangs.
ASK_S, PROBE_S, READY_S = 1.0, 1.0, 2.0


class StoreProbe:
    """Whether the store of a server answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._asked_s = self._answered_s = float("-inf")

    async def is_ready(self) -> bool:
        """Whether the store has answered just now, or answers within `PROBE_S`."""
        if self._task is None and monotonic_s() - self._asked_s >= ASK_S:
            self._asked_s = monotonic_s()
            self._task = asyncio.create_task(self._ask())
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=PROBE_S)
        return monotonic_s() - self._answered_s <= READY_S

    async def _ask(self) -> None:
        """Read a row: the store's time would be known without it."""
        try:
            await self._connection.ask_async(FindToken(name=""))
            self._answered_s = monotonic_s()
        except HoldfastError:
            # At once, not after `READY_S`.
            self._answered_s = float("-inf")
        finally:
            self._task = None


MAX_PORT = 65_535
# How long a server waits for its last requests before it cuts them off.
DRAIN_S = 10.0


def read_address(what: str, text: str) -> ListenAddress:
    """HOST:PORT, or [HOST]:PORT."""
    host, colon, number = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not number.isascii() or not number.isdigit():
        raise BadInput(what, text, needed="HOST:PORT, such as 127.0.0.1:8888")
    if int(number) > MAX_PORT:
        raise BadInput(what, text, needed=f"HOST:PORT with a port from 0 to {MAX_PORT}")
    return ListenAddress(host, int(number))


def listen_error(what: str, where: str, error: Exception) -> BadInput:
    """The error for an address where a server cannot listen."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return BadInput(what, where, needed=f"another address: port {where.rpartition(':')[2]} is in use")
    needed = f"an address of this machine, with a port that is not in use ({error})"
    return BadInput(what, where, needed=needed)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; of a host name, all its addresses."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput("host", host, needed=f"an address of this machine ({error.strerror})") from None
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def shown_address(listening: socket.socket) -> str:
    """Where a server listens, as text."""
    return str(ListenAddress(*listening.getsockname()[:2]))


# How long the other machine may leave what was sent unacknowledged, and how long it may be silent before it
# is asked whether it is still there: one that was switched off must not hold a job for ever.
UNACKNOWLEDGED_MS = 30_000
SILENT_S, BETWEEN_S, TIMES = 60, 15, 4

# The first byte of TCP_INFO: the connection was reset, or has ended for good.
_CLOSED = 7


def watch_peer(transport: asyncio.Transport) -> None:
    """Make the connection end within minutes, not hours, if the other machine is gone."""
    found = transport.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform.startswith("linux"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, BETWEEN_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TIMES)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


def has_arrived(transport: asyncio.Transport) -> bool | None:
    """True: all of it was acknowledged. False: the connection is gone. None: not yet."""
    found = transport.get_extra_info("socket")
    if transport.is_closing() or found is None:
        return False
    if not sys.platform.startswith("linux"):  # no TCP_INFO: written data counts as arrived
        return True if not transport.get_write_buffer_size() else None
    try:
        if found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        if found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED:
            return False
        unsent = struct.unpack("i", fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
    except OSError:
        return False
    return None if unsent or transport.get_write_buffer_size() else True
