"""The rules of progress and logs, which indexed consumers and their producers keep in a store.

    P, processed     every index up to P has been processed; P only moves forward
    a log            items at 1, 2, 3 … head without a gap; those up to `trimmed` have been removed

Each function takes a record and returns the changed record, or raises. See docs/decisions/0008.
"""

from msgspec.structs import replace

from .bounds import SECOND_MS
from .errors import Backwards, BadInput
from .job import Body, Record

# The weight of the last write in the displayed rate: a moving average.
NEWEST_PART = 0.3


class Mark(Record, frozen=True, kw_only=True):
    """The progress of a consumer. The fields after `log` are for display, as of the last move."""

    processed: int = 0
    resets: int = 0
    log: str = ""
    head: int = 0
    in_flight: int = 0
    moved_ms: int = 0
    per_s: float = 0.0

    @property
    def lag(self) -> int:
        """How many items the consumer has yet to process."""
        return max(self.head - self.processed, 0)


class LogMark(Record, frozen=True, kw_only=True):
    """The ends of a log: its last index, the last one trimmed, and the last one whose key is forgotten."""

    head: int = 0
    trimmed: int = 0
    keys_from: int = 0


class LogItem(Record, frozen=True, kw_only=True):
    """An item to append; if the log remembers its key, it is a duplicate."""

    data: Body
    key: bytes | None = None


class Seen(Record, frozen=True, kw_only=True):
    """What a consumer reports with its progress, for display."""

    head: int = 0
    in_flight: int = 0


def moved(mark: Mark, *, name: str, to: int, resets: int, seen: Seen, now_ms: int) -> Mark:
    """Move progress by its consumer: forward, or to where it is; otherwise raise `Backwards`."""
    check_resets(mark, name=name, to=to, resets=resets)
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


def check_resets(mark: Mark, *, name: str, to: int, resets: int) -> None:
    """Raise `Backwards` if an operator has set progress since its consumer started."""
    if resets != mark.resets:
        raise Backwards(name, to, found=f"set to {mark.processed:,} by hand meanwhile")


def _rate(mark: Mark, count: int, now_ms: int) -> float:
    if not mark.moved_ms:
        return 0.0
    newest = count * SECOND_MS / max(now_ms - mark.moved_ms, 1)
    return newest if not mark.per_s else mark.per_s + (newest - mark.per_s) * NEWEST_PART


def set_by_hand(mark: Mark, *, to: int) -> Mark:
    """Set progress by an operator, forward or back. Moves by running consumers are refused from then on."""
    return replace(mark, processed=to, resets=mark.resets + 1, in_flight=0, moved_ms=0, per_s=0.0)


def check_reading(name: str, processed: int, log: str, ends: LogMark) -> None:
    """Refuse a consumer that would start at a trimmed index."""
    if processed < ends.trimmed:
        needed = f"{ends.trimmed:,} or more: the log {log} has been trimmed up to there"
        raise BadInput(f"start of consumer {name}", processed, needed=needed)


def trimmed(ends: LogMark, *, up_to: int, keep_keys: int, limit: int) -> LogMark:
    """The log without the items up to an index, and without the keys far below its head; `limit` of each."""
    up_to = max(ends.trimmed, min(up_to, ends.head, ends.trimmed + limit))
    keys_from = max(ends.keys_from, min(ends.head - keep_keys, up_to, ends.keys_from + limit))
    return replace(ends, trimmed=up_to, keys_from=keys_from)
