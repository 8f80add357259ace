"""Ports for servers that are started later, by another process.

Not those that the system hands out by itself: a port that it has just named it may give, a moment later, to
any connection of another test.
"""

import random
import socket
from pathlib import Path

# Below what systems hand out; a node of a Redis Cluster also takes the port 10,000 above its own.
FIRST_PORT, BUS = 11_000, 10_000
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 1_000
# Not the generator that tests seed: all processes would try the same ports, one after the other.
_rng = random.SystemRandom()


def free_port(*, bus: bool = False) -> int:
    """A port that nobody has now; `bus`: nor the one of its cluster bus."""
    end = _first_handed_out() - BUS
    for _ in range(TRIES):
        port = _rng.randrange(FIRST_PORT, end)
        if _is_free(port) and (not bus or _is_free(port + BUS)):
            return port
    raise RuntimeError("there is no free port")


def _first_handed_out() -> int:
    """The first of the ports that the system gives to connections."""
    try:
        first = int(RANGE.read_text().split()[0])
    except OSError:
        first = 49_152
    # Where it gives nearly all, there is no better choice than any.
    return first if first > FIRST_PORT + 2 * BUS else 65_536


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do, for which connections of the last one that have ended do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
