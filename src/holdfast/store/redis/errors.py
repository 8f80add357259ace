"""Translates Redis errors: no exception of a connection leaves the store.

connection lost             refused, disconnected, loading, no master, cluster down           Unreachable
no such host                the host name of the address does not exist                       UnknownHost
cannot be written           a replica                                                         ReadOnly
anything else               wrong password, out of memory, no permission …                    StoreError…
"""

import hiredis

from ...core.errors import HoldfastError, StoreError, StoreFull
from ..common.outage import TLS_FAULTS, UNKNOWN_HOST, ReadOnly, UnknownHost, Unreachable
from .url import RedisAddress


class ReplyError(Exception):
    """An error reply of the server."""

    # Which of the commands that were sent together it replies to.
    position = 0


# All exceptions of a connection. They are not chained to ours, as they may show data.
FAULTS = (ReplyError, hiredis.HiredisError, OSError)
# The first words of error replies after which the call is retried: the server is loading, failing over, …
AWAY = (
    *("LOADING", "BUSY", "NOREPLICAS", "UNBLOCKED", "MASTERDOWN"),
    *("TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"),
)


def translated(error: Exception, address: RedisAddress) -> Exception:
    """The Holdfast error for one of Redis's, with the store, the problem and the remedy."""
    where, text = address.shown, first_line(error)
    for words, make, message in _BY_WORDS:
        if any(word in text for word in words):
            return make(message.format(where=where, text=text))
    if is_lost(error):
        return Unreachable(
            f"{where} cannot be reached ({text}); is the server running, and the address right?"
        )
    return StoreError(f"{where}: Redis says {text}")


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or the server is down."""
    return not isinstance(error, ReplyError) or first_line(error).startswith(AWAY)


def first_line(error: Exception) -> str:
    """The first line of an error, without the details of a script."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].partition(" script: ")[0].removeprefix("ERR ")


_REFUSED = "{where} does not accept the user and password ({text}); check the address"
# Words in the message, and our error with its text.
_BY_WORDS: tuple[tuple[tuple[str, ...], type[HoldfastError], str], ...] = (
    (UNKNOWN_HOST, UnknownHost, "{where} cannot be reached ({text}); check the address"),
    (TLS_FAULTS, StoreError, "{where} cannot be used ({text}); check its TLS and the certificates"),
    (("LOADING",), Unreachable, "{where} is not ready ({text}); wait until the server has loaded its data"),
    (
        ("WRONGPASS", "NOAUTH", "invalid username-password", "invalid password", "AUTH "),
        StoreError,
        _REFUSED,
    ),
    (("Authentication required", "without any password configured"), StoreError, _REFUSED),
    (
        ("NOPERM", "no permissions", "has no permission"),
        StoreError,
        "{where} does not allow that ({text}); the user needs the rights that docs/redis.md lists",
    ),
    (
        ("READONLY", "read only replica", "against a read only"),
        ReadOnly,
        "{where} cannot be written ({text}); it is a replica: use the address of the master",
    ),
    (
        ("OOM ", "used memory > 'maxmemory'"),
        StoreFull,
        "{where}: its server has no memory left ({text}); raise maxmemory, or purge the archive",
    ),
    (
        ("MISCONF", "unable to persist", "Errors writing to the AOF", "No space left"),
        StoreFull,
        "{where}: its server cannot write its disk ({text}); free some space, and check the server's log",
    ),
)
