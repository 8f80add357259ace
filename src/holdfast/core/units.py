"""Durations, times, sizes and counts as users write and read them, and as numbers.

duration   90 · 1.5 (seconds) · timedelta(minutes=2) · "90" · "2h 30m" · "1.5h" · "250ms" · "1w 2d"
           "5min" · "2 hours 30 minutes": the spellings of the units are in _UNITS
moment     an aware datetime · seconds since 1970 · "2026-11-15T01:02:03Z" · "…T01:02+01:00"
           "2026-11-15", "2026-11-15 01:02" and "2026-11-15T01:02:03", which mean UTC
size       500MB · 1.5 GB · 512MiB · a number of bytes
"""

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from . import bounds
from .errors import BadInput

if TYPE_CHECKING:
    from fractions import Fraction


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Longer texts are refused unparsed, so that no input can cost much time.
TEXT_CHARS = 64

# The length of each unit, and its spellings.
_UNITS = (
    (7 * bounds.DAY_MS, "w|weeks?"),
    (bounds.DAY_MS, "d|days?"),
    (bounds.HOUR_MS, "h|hrs?|hours?"),
    (bounds.MINUTE_MS, "m|mins?|minutes?"),
    (bounds.SECOND_MS, "s|secs?|seconds?"),
    (1, "ms|msecs?|milliseconds?"),
)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Each unit at most once, the largest first: "1h 1h" is a typing error, not two hours.
_PARTS = " *".join(rf"(?:({_NUMBER}) ?(?:{unit})(?![a-z]))?" for _, unit in _UNITS)
_SECONDS = _NUMBER
_DURATION_NEEDED = 'a duration from {} to ten years, such as 90 (seconds), "2h 30m", "1.5h" or "250ms"'

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
_IN_UTC = rf"{_DATE}(?:[T ]{_TIME})?"
_WITH_OFFSET = rf"{_DATE}[T ]{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})"
_MOMENT_NEEDED = (
    'a moment in the years 1970 to 2248, such as "2026-11-15T01:02:03Z", "2026-11-15 01:02" (UTC), '
    "seconds since 1970, or a datetime with a time zone"
)


def duration_ms(value: float | timedelta | str, *, name: str, least_ms: int = 0) -> int:
    """A duration in milliseconds, rounded, but only 0 becomes 0. `name` is for the error."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    if is_whole and least_ms <= value * 1000 <= bounds.MAX_DURATION_MS:  # type: ignore[operator]
        return int(value) * 1000  # type: ignore[arg-type]
    exact = _exact_ms(value)
    if exact is None or not least_ms <= exact <= bounds.MAX_DURATION_MS:
        raise BadInput(name, value, needed=_DURATION_NEEDED.format(f"{least_ms} ms" if least_ms else 0))
    return round(exact) or (1 if exact else 0)


def _exact_ms(value: object) -> "Fraction | None":
    """The exact milliseconds of a value; None if it is not a duration."""
    from fractions import Fraction

    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1000)
    if isinstance(value, str):
        text = value.strip(" ")
        return _text_ms(text) if 0 < len(text) <= TEXT_CHARS else None
    return _seconds_ms(value)


def _seconds_ms(value: object) -> "Fraction | None":
    from fractions import Fraction

    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value * 1000)
    if isinstance(value, float) and math.isfinite(value):
        # The decimal number that is printed, 0.1, not the binary fraction next to it.
        return Fraction(repr(float(value))) * 1000
    return None


@lru_cache(maxsize=1024)
def _text_ms(text: str) -> "Fraction | None":
    from fractions import Fraction

    if re.fullmatch(_SECONDS, text):
        return Fraction(text) * 1000
    match = re.fullmatch(_PARTS, text)
    if match is None:
        return None
    parts = zip(match.groups(default="0"), _UNITS, strict=True)
    return sum((Fraction(number) * unit_ms for number, (unit_ms, _) in parts), Fraction(0))


def moment_ms(value: datetime | float | str, *, name: str) -> int:
    """A time in milliseconds UTC. Text without a time zone means UTC.

    A datetime without a time zone is refused: programs use those for local time as often as for UTC.
    """
    found: int | None = None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            needed = "a datetime with a time zone, such as datetime.now(UTC) or value.astimezone()"
            raise BadInput(name, value, needed=needed)
        found = _datetime_ms(value)
    elif isinstance(value, str):
        found = _written_ms(value.strip(" "))
    elif (exact := _seconds_ms(value)) is not None:
        found = round(exact)
    if found is None or not 0 <= found <= bounds.MAX_TIME_MS:
        raise BadInput(name, value, needed=_MOMENT_NEEDED)
    return found


def _datetime_ms(value: datetime) -> int:
    return (value - EPOCH) // timedelta(milliseconds=1)


def _written_ms(text: str) -> int | None:
    try:
        if re.fullmatch(_WITH_OFFSET, text):
            return _datetime_ms(datetime.fromisoformat(text))
        if re.fullmatch(_IN_UTC, text):
            return _datetime_ms(datetime.fromisoformat(text).replace(tzinfo=UTC))
    except (ValueError, OverflowError):  # the form is valid, but there is no such day or hour
        return None
    return None


def iso(ms: int) -> str:
    """A time as text: 2026-11-15T01:02:03.004Z. `moment_ms` parses it."""
    moment = EPOCH + timedelta(milliseconds=ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def counted(count: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 job`, `2,000 jobs`; `many` is the plural if it is not formed with s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


_SIZE_UNITS = {"": 1, "b": 1}
_SIZE_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_SIZE_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
# Longer numbers are refused unparsed.
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([a-z]{0,3})")
MAX_SIZE = 2**50


def size_bytes(text: str, *, name: str, least: int = 1) -> int:
    """A size in bytes. `name` is for the error."""
    match = _SIZE.fullmatch(text.strip().lower())
    unit = _SIZE_UNITS.get(match[2]) if match else None
    found = int(float(match[1]) * unit) if match and unit else 0
    if not least <= found <= MAX_SIZE:
        bound = f", at least {size_text(least)}" if least > 1 else ""
        raise BadInput(name, text, needed=f"a size such as 500MB, 1.5GB or 512MiB{bound}")
    return found


def size_text(count: int) -> str:
    """A size for display."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count} B"
