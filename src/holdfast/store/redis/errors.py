"""What Redis says, in our words: no exception of a connection ever leaves the store.

the connection is gone      refused, cut, loading, no master yet, a cluster that is down      Lost
no such host                the name of the address does not exist                            UnknownHost
anything else               as it is: wrong password, read-only, full, no right               StoreError…
"""

from collections.abc import Callable

import hiredis

from ...core.errors import HoldfastError, StoreError, StoreFull
from ..common.outage import UNKNOWN_HOST, Lost, UnknownHost
from .url import Address


class ReplyError(Exception):
    """What the server replied instead of an answer."""


# All that a connection may raise. None of it is shown along with an error of ours: it may tell what was sent.
FAULTS = (ReplyError, hiredis.HiredisError, OSError)
# The first words of what a server replies that will be back, or that has given the store to another.
AWAY = (
    *("LOADING", "BUSY", "NOREPLICAS", "UNBLOCKED", "MASTERDOWN"),
    *("TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"),
)


def translated(error: Exception, address: Address) -> Exception:
    """The error of ours for one of Redis's: the store, what is wrong with it, and what to do."""
    where, text = address.shown, first_line(error)
    for words, make in _TOLD:
        if any(word in text for word in words):
            return make(where, text)
    if is_lost(error):
        return Lost(_lost(where, text))
    return StoreError(f"{where}: Redis says {text}")


def is_lost(error: Exception) -> bool:
    """Whether it is the connection, or the server behind it, that failed."""
    return not isinstance(error, ReplyError) or first_line(error).startswith(AWAY)


def first_line(error: Exception) -> str:
    """The first line, without what a script adds about itself."""
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


# By words in them.
_TOLD: tuple[tuple[tuple[str, ...], Callable[[str, str], HoldfastError]], ...] = (
    (UNKNOWN_HOST, _unknown_host),
    (("WRONGPASS", "NOAUTH", "invalid username-password", "invalid password", "AUTH "), _refused),
    (("Authentication required", "without any password configured"), _refused),
    (("NOPERM", "no permissions", "has no permission"), _no_right),
    (("READONLY", "read only replica", "against a read only"), _read_only),
    (("OOM ", "used memory > 'maxmemory'"), _memory),
    (("MISCONF", "unable to persist", "Errors writing to the AOF", "No space left"), _disk),
)
