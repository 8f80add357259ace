"""What stands on the door of a store that is being moved, has moved, or was moved to.

    source   (none) ──▶ COPYING ──▶ STOPPED ──▶ MOVED            target   (none) ──▶ FILLING ──▶ OPEN
                         verbs go on  writes wait  every verb                       nobody may   verbs go on
                                                  answers Moved

`token` is the move's own: the store that a MOVED notice leads to has it as its `origin`, for ever. `run` is
that of the process which moves: a later one takes over, and the earlier writes no more. See
docs/decisions/0011.
"""

from enum import StrEnum
from functools import lru_cache

import msgspec

from .errors import Filling, Moved, Stopped
from .job import Record


class Standing(StrEnum):
    """How far a move has come, as the store at hand sees it."""

    COPYING = "copying"
    STOPPED = "stopped"
    MOVED = "moved"
    FILLING = "filling"
    OPEN = "open"


class Notice(Record, frozen=True, kw_only=True):
    """A notice. `other` is the address of the store at the other end, without its password."""

    standing: Standing
    token: str = ""
    run: str = ""
    other: str = ""
    # The move by which this store was filled; "": it began empty.
    origin: str = ""
    # Of all that was moved, for people who compare.
    digest: str = ""


@lru_cache(maxsize=64)
def read_notice(raw: bytes) -> Notice:
    """A notice as it stands in a store; asked for by every batch, so remembered."""
    return msgspec.json.decode(raw, type=Notice)


def check_open(raw: bytes | None, *, writes: bool) -> None:
    """Refuse a command if the notice of a move does. A stopped store can still be read."""
    if raw is None:
        return
    notice = read_notice(raw)
    if notice.standing is Standing.MOVED:
        raise Moved(notice.other, token=notice.token)
    if notice.standing is Standing.FILLING:
        raise Filling(notice.other)
    if notice.standing is Standing.STOPPED and writes:
        raise Stopped(notice.other)
