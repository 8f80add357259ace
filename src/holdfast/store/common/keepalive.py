"""Connections that end when their other end is gone, also where that has gone without a word.

Whoever only listens sends nothing, and would not notice: the system's own limit is hours.
"""

import os
import socket

# By when: asked after 15 s of silence, three times; and what was sent is acknowledged within half a minute.
_OPTIONS = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}


def keep_lively(fd: int) -> None:
    """Have a connection end half a minute after its other end is gone; a local one does so by itself."""
    with socket.socket(fileno=os.dup(fd)) as line:
        if line.family not in (socket.AF_INET, socket.AF_INET6):
            return
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            # Not every system has each of them.
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
