"""Translates Redis errors: no exception of a connection leaves the store.

connection lost             refused, disconnected, loading, no master, cluster down           Lost
no such host                the host name of the address does not exist                       UnknownHost
anything else               wrong password, read-only, out of memory, no permission …         StoreError…
"""

from collections.abc import Callable

import hiredis

from ...core.errors import HoldfastError, StoreError, StoreFull
from ..common.outage import UNKNOWN_HOST, Lost, UnknownHost
from .url import Address


class ReplyError(Exception):
    """An error reply of the server."""


# All exceptions of a connection. They are not chained to ours, as they may show data.
FAULTS = (ReplyError, hiredis.HiredisError, OSError)
# The first words of error replies after which the call is retried: the server is loading, failing over, …
AWAY = (
    *("LOADING", "BUSY", "NOREPLICAS", "UNBLOCKED", "MASTERDOWN"),
    *("TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"),
)


def translated(error: Exception, address: Address) -> Exception:
    """The Holdfast error for one of Redis's, with the store, the problem and the remedy."""
    where, text = address.shown, first_line(error)
    for words, make in _BY_WORDS:
        if any(word in text for word in words):
            return make(where, text)
    if is_lost(error):
        return Lost(_lost(where, text))
    return StoreError(f"{where}: Redis says {text}")


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or the server is down."""
    return not isinstance(error, ReplyError) or first_line(error).startswith(AWAY)


def first_line(error: Exception) -> str:
    """The first line of an error, without the details of a script."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].partition(" script: ")[0].removeprefix("ERR ")


def _lost(where: str, text: str) -> str:
    return f"{where} cannot be reached ({text}); is the server running, and the address right?"


def _unknown_host(where: str, text: str) -> HoldfastError:
    return UnknownHost(f"{where} cannot be reached ({text}); look at the address")


def _refused(where: str, text: str) -> HoldfastError:
    return StoreError(f"{where} lets nobody in by that user and password ({text}); look at the address")


def _no_right(where: str, text: str) -> HoldfastError:
    return StoreError(
        f"{where} does not allow that ({text}); the user needs the rights that docs/redis.md lists, on the "
        "store's keys and its channel"
    )


def _read_only(where: str, text: str) -> HoldfastError:
    return StoreError(f"{where} cannot be written ({text}); it is a replica: use the address of the master")


def _memory(where: str, text: str) -> HoldfastError:
    return StoreFull(
        f"{where}: no memory is left to its server ({text}); raise maxmemory, or purge the archive"
    )


def _disk(where: str, text: str) -> HoldfastError:
    return StoreFull(
        f"{where}: its server cannot write its disk ({text}); make room there, and look at the server's log"
    )


# By words in the message.
_BY_WORDS: tuple[tuple[tuple[str, ...], Callable[[str, str], HoldfastError]], ...] = (
    (UNKNOWN_HOST, _unknown_host),
    (("WRONGPASS", "NOAUTH", "invalid username-password", "invalid password", "AUTH "), _refused),
    (("Authentication required", "without any password configured"), _refused),
    (("NOPERM", "no permissions", "has no permission"), _no_right),
    (("READONLY", "read only replica", "against a read only"), _read_only),
    (("OOM ", "used memory > 'maxmemory'"), _memory),
    (("MISCONF", "unable to persist", "Errors writing to the AOF", "No space left"), _disk),
)
