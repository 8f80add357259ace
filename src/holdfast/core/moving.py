"""The notice in a store that is being moved, has moved, or was the target of a move.

    source   (none) ──▶ COPYING ──▶ STOPPED ──▶ MOVED            target   (none) ──▶ FILLING ──▶ OPEN
                        as usual   writes wait  every command                     commands    as usual
                                                raises Moved                      are refused

`token` identifies the move: the store at the address of a MOVED notice keeps it as `origin`. `run` identifies
the process that moves: if a second one takes over, the first can write no more. See docs/decisions/0011.
"""

from enum import StrEnum
from functools import lru_cache

import msgspec

from .errors import Filling, Moved, Stopped
from .job import Record


class Standing(StrEnum):
    """The state of a move, in one of its two stores."""

    COPYING = "copying"
    STOPPED = "stopped"
    MOVED = "moved"
    FILLING = "filling"
    OPEN = "open"


class Notice(Record, frozen=True, kw_only=True):
    """A notice. `other` is the address of the other store, without its password."""

    standing: Standing
    token: str = ""
    run: str = ""
    other: str = ""
    # The token of the move that filled this store; "": it began empty.
    origin: str = ""
    # The digest of everything that was moved, for comparison by people.
    digest: str = ""


@lru_cache(maxsize=64)
def read_notice(raw: bytes) -> Notice:
    """Decode a notice. Cached, because every batch reads it."""
    return msgspec.json.decode(raw, type=Notice)


def check_open(raw: bytes | None, *, writes: bool) -> None:
    """Refuse a command if a move requires it. A stopped store can still be read."""
    if raw is None:
        return
    notice = read_notice(raw)
    if notice.standing is Standing.MOVED:
        raise Moved(notice.other, token=notice.token)
    if notice.standing is Standing.FILLING:
        raise Filling(notice.other)
    if notice.standing is Standing.STOPPED and writes:
        raise Stopped(notice.other)
