"""TCP keepalive, so that a connection ends soon after its peer has disappeared without closing it.

A process that only listens sends nothing, and would notice only after the system's own limit of hours.
"""

import os
import socket

# Probe three times after 15 s without traffic; sent data must be acknowledged within 30 s.
_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


def enable_keepalive(fd: int) -> None:
    """Make a TCP connection end half a minute after its peer disappears; local sockets do so anyway."""
    with socket.socket(fileno=os.dup(fd)) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            # Not every system has all of them.
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
