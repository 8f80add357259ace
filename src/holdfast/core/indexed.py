"""The rules of progress and logs: what indexed consumers and their producers keep in a store.

    P, processed     every index up to it has been worked on to its end; it only goes forward
    a log            items at 1, 2, 3 … head without a gap, those up to `trimmed` gone again

Each function takes a record and returns it as it should become, or raises. See docs/decisions/0008.
"""

from msgspec.structs import replace

from .bounds import SECOND_MS
from .errors import Backwards, BadInput
from .job import Body, Record

# How much of the rate that is shown is the last write's: so that it neither jumps nor sleeps.
NEWEST_PART = 0.3


class Mark(Record, frozen=True, kw_only=True):
    """How far a consumer has come. What follows `log` is for people, as of the last move."""

    processed: int = 0
    resets: int = 0
    log: str = ""
    head: int = 0
    in_flight: int = 0
    moved_ms: int = 0
    per_s: float = 0.0


class LogMark(Record, frozen=True, kw_only=True):
    """The ends of a log: its last index, the last that is gone, the last whose key is forgotten."""

    head: int = 0
    trimmed: int = 0
    keys_from: int = 0


class LogItem(Record, frozen=True, kw_only=True):
    """An item to append; one whose key the log knows is there already."""

    data: Body
    key: bytes | None = None


class Seen(Record, frozen=True, kw_only=True):
    """What a consumer tells of itself with its progress, for people."""

    head: int = 0
    in_flight: int = 0


def moved(mark: Mark, *, name: str, to: int, resets: int, seen: Seen, now_ms: int) -> Mark:
    """A consumer's own progress: forward, or where it is already; anything else is `Backwards`."""
    if resets != mark.resets:
        raise Backwards(name, to, found=f"set to {mark.processed:,} by hand meanwhile")
    if to < mark.processed:
        raise Backwards(name, to, found=f"at {mark.processed:,} already: another consumer has its name")
    if to == mark.processed:
        return mark
    return replace(
        mark,
        processed=to,
        head=max(seen.head, to),
        in_flight=seen.in_flight,
        moved_ms=now_ms,
        per_s=_rate(mark, to - mark.processed, now_ms),
    )


def _rate(mark: Mark, count: int, now_ms: int) -> float:
    if not mark.moved_ms:
        return 0.0
    newest = count * SECOND_MS / max(now_ms - mark.moved_ms, 1)
    return newest if not mark.per_s else mark.per_s + (newest - mark.per_s) * NEWEST_PART


def set_by_hand(mark: Mark, *, to: int) -> Mark:
    """An operator's word: forward or back. Consumers that run are refused from then on."""
    return replace(mark, processed=to, resets=mark.resets + 1, in_flight=0, moved_ms=0, per_s=0.0)


def check_reading(name: str, processed: int, log: str, ends: LogMark) -> None:
    """Refuse a consumer that would begin where its log is gone."""
    if processed < ends.trimmed:
        needed = f"{ends.trimmed:,} or more: the log {log} has been trimmed up to there"
        raise BadInput(f"start of consumer {name}", processed, needed=needed)


def trimmed(ends: LogMark, *, up_to: int, keep_keys: int, limit: int) -> LogMark:
    """A log without what lies up to an index, and without the keys far below its head; `limit` of each."""
    up_to = max(ends.trimmed, min(up_to, ends.head, ends.trimmed + limit))
    keys_from = max(ends.keys_from, min(ends.head - keep_keys, up_to, ends.keys_from + limit))
    return replace(ends, trimmed=up_to, keys_from=keys_from)
