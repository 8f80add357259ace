"""Whether data written to a connection has arrived at the other machine, as far as TCP can tell."""

import asyncio
import fcntl
import socket
import struct
import sys
import termios

# How long the other machine may leave what was sent unacknowledged, and how long it may be silent before it
# is asked whether it is still there: one that was switched off must not hold a job for ever.
UNACKNOWLEDGED_MS = 30_000
SILENT_S, BETWEEN_S, TIMES = 60, 15, 4

# The first byte of TCP_INFO: the connection was reset, or has ended for good.
_CLOSED = 7


def watch(transport: asyncio.Transport) -> None:
    """Make the connection end within minutes, not hours, if the other machine is gone."""
    found = transport.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform.startswith("linux"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, BETWEEN_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TIMES)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)


def arrived(transport: asyncio.Transport) -> bool | None:
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
