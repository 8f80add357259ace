"""Recurrence: the repeats and date modifiers of the documents, and cron lines.

    repeat    HOURLY | DAILY | WEEKLY | BASE, MOD[, MOD…]
    BASE      SCHEDULED | STARTED | FINISHED
    MOD       ±N SECOND[S]                          N of 1 to 8 digits
              ±N MINUTE|HOUR|DAY|MONTH|YEAR[S]      N of 1 to 3 digits
              START OF HOUR|DAY|MONTH|YEAR          HOUR in repeats only
              WEEKDAY d                             0 is Sunday; today counts
    cron      minute hour day-of-month month day-of-week, or @hourly and the like

Case is ignored. Spaces before a part are ignored, spaces after it are not allowed, and within it there is
exactly one. Modifiers are applied from left to right as in SQLite's `datetime()`: a day that the month does
not have rolls over (January 31, +1 MONTH is March 3, or March 2 in leap years).

In a time zone other than UTC they change the local time, and only the outcome is converted to UTC: a local
time that does not exist moves forward by the gap. Of one that occurs twice the first is used, or the second
if the first would turn a step forward into a step back.

Nothing here reads a clock. Times are integer milliseconds UTC.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from . import bounds
from .errors import BadInput

Base = Literal["SCHEDULED", "STARTED", "FINISHED"]

# Longer than any real line; it keeps the caches small.
TEXT_CHARS = 1_024
CACHED = 1_024
# How many single steps the search for the latest time takes before it skips many at once.
STRIDE_STEPS = 1_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)

BASES: dict[str, Base] = {"SCHEDULED": "SCHEDULED", "STARTED": "STARTED", "FINISHED": "FINISHED"}
CANNED = {"HOURLY": "+1 HOUR", "DAILY": "+1 DAY", "WEEKLY": "+7 DAYS"}

_SHIFT = r"([+-][0-9]{1,8}) (SECOND|MINUTE|HOUR|DAY|MONTH|YEAR)S?"
_START = r"START OF (HOUR|DAY|MONTH|YEAR)"
_WEEKDAY = r"WEEKDAY ([0-6])"

_REPEAT_NEEDED = "HOURLY, DAILY, WEEKLY or BASE, MODIFIER[, MODIFIER…], such as FINISHED, +1 HOUR"
_MODIFIER_NEEDED = "one modifier, such as +5 MINUTES or WEEKDAY 1"
_RANGE_NEEDED = "one whose outcome lies in the years 1970 to 2248"


class Modifier(Struct, frozen=True):
    """One modifier, applied to the local time; `text` is how it was given, in upper case."""

    text: str
    unit: str
    amount: int = 0


class Repeat(Struct, frozen=True):
    """A repeat as it was given, in upper case; `str()` is its canonical text, which parses to the same."""

    base: Base
    modifiers: tuple[str, ...]
    canned: str = ""

    def __str__(self) -> str:
        return self.canned or ", ".join((self.base, *self.modifiers))


# ── texts ────────────────────────────────────────────────────────────────────────────────────────


def parse_repeat(text: str) -> Repeat:
    """Parse a repeat. Raises `BadInput` for any text outside the grammar."""
    return _parse_repeat(_text("repeat", text, needed=_REPEAT_NEEDED))


@lru_cache(CACHED)
def _parse_repeat(text: str) -> Repeat:
    first, *rest = (piece.lstrip(" ") for piece in text.upper().split(","))
    if first in CANNED and not rest:
        return Repeat("FINISHED", (CANNED[first],), canned=first)
    if first not in BASES or not rest:
        raise BadInput("repeat", text, needed=_REPEAT_NEEDED)
    if any(_modifier(piece) is None for piece in rest):
        raise BadInput("repeat", text, needed=_REPEAT_NEEDED)
    return Repeat(BASES[first], tuple(rest))


def parse_modifier(text: str, *, name: str = "modifier") -> Modifier:
    """Parse a single modifier. START OF HOUR is refused: it is for repeats only."""
    found = _modifier(_text(name, text, needed=_MODIFIER_NEEDED).upper().lstrip(" "))
    if found is None or found.unit == "START OF HOUR":
        raise BadInput(name, text, needed=_MODIFIER_NEEDED)
    return found


def check_retry_after(text: str) -> str:
    """Return the text if it is one modifier that can lead to the future.

    `+0 SECOND` is allowed: the job can then be claimed again at once. Steps back and START OF are not.
    """
    found = parse_modifier(text, name="retry_after")
    if found.unit != "WEEKDAY" and not found.text.startswith("+"):
        raise BadInput("retry_after", text, needed="a modifier that leads forward, such as +5 MINUTES")
    return text


@lru_cache(CACHED)
def _modifier(text: str) -> Modifier | None:
    if match := re.fullmatch(_SHIFT, text):
        amount, unit = match.groups()
        # One sign and three digits; only seconds have up to eight.
        return Modifier(text, unit, int(amount)) if unit == "SECOND" or len(amount) <= 4 else None
    if re.fullmatch(_START, text):
        return Modifier(text, text)
    if match := re.fullmatch(_WEEKDAY, text):
        return Modifier(text, "WEEKDAY", int(match[1]))
    return None


def _text(name: str, text: object, *, needed: str) -> str:
    # ASCII only, because upper() turns some other letters into ASCII ones: "ſ" into "S".
    if not isinstance(text, str) or len(text) > TEXT_CHARS or not text.isascii():
        raise BadInput(name, text, needed=needed)
    return text


# ── the wall clock ───────────────────────────────────────────────────────────────────────────────


def _months(wall: datetime, count: int) -> datetime:
    years, month = divmod(wall.month - 1 + count, 12)
    first = wall.replace(year=wall.year + years, month=month + 1, day=1)
    return first + timedelta(days=wall.day - 1)


_STEPS: dict[str, Callable[[datetime, int], datetime]] = {
    "SECOND": lambda wall, n: wall + timedelta(seconds=n),
    "MINUTE": lambda wall, n: wall + timedelta(minutes=n),
    "HOUR": lambda wall, n: wall + timedelta(hours=n),
    "DAY": lambda wall, n: wall + timedelta(days=n),
    "MONTH": _months,
    "YEAR": lambda wall, n: _months(wall, 12 * n),
    "START OF HOUR": lambda wall, _: wall.replace(minute=0, second=0, microsecond=0),
    "START OF DAY": lambda wall, _: wall.replace(hour=0, minute=0, second=0, microsecond=0),
    "START OF MONTH": lambda wall, _: wall.replace(day=1, hour=0, minute=0, second=0, microsecond=0),
    "START OF YEAR": lambda wall, _: wall.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0),
    "WEEKDAY": lambda wall, day: wall + timedelta(days=(day - wall.isoweekday()) % 7),
}


def zone_of(tz: str) -> tzinfo:
    """The time zone of that IANA name. Raises `BadInput` for one that is unknown.

    `localtime` and the like are refused: their meaning depends on the machine.
    """
    needed = "the name of a time zone, such as UTC or Europe/Berlin"
    zone = _zone(_text("tz", tz, needed=needed))
    if zone is None:
        raise BadInput("tz", tz, needed=needed)
    return zone


@lru_cache(CACHED)
def _zone(tz: str) -> tzinfo | None:
    if tz == "UTC":
        return UTC
    if not tz or tz in ("localtime", "posixrules") or tz.startswith(("posix/", "right/")):
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):
        return None


def _wall(at_ms: int, zone: tzinfo) -> datetime:
    return (EPOCH + at_ms * MS).astimezone(zone).replace(tzinfo=None, fold=0)


def _moment(wall: datetime, zone: tzinfo, *, fold: int = 0) -> int:
    return (wall.replace(tzinfo=zone, fold=fold) - EPOCH) // MS


def _apply(steps: tuple[Modifier, ...], from_ms: int, zone: tzinfo) -> int | None:
    """`from_ms` after the modifiers; None if that is outside the years 1970 to 2248."""
    try:
        start = wall = _wall(from_ms, zone)
        for step in steps:
            wall = _STEPS[step.unit](wall, step.amount)
        moment = _moment(wall, zone)
        if moment < from_ms and wall >= start:
            moment = _moment(wall, zone, fold=1)
    except (OverflowError, ValueError):  # a year that datetime does not support, perhaps in between
        return None
    return moment if 0 <= moment <= bounds.MAX_TIME_MS else None


# ── what comes next ──────────────────────────────────────────────────────────────────────────────


def after_ms(modifier_text: str, at_ms: int) -> int:
    """`at_ms` after one modifier, in UTC. Milliseconds are kept, so that a wait is never too short."""
    moment = _apply((parse_modifier(modifier_text),), at_ms, UTC)
    if moment is None:
        raise BadInput("modifier", modifier_text, needed=_RANGE_NEEDED)
    return moment


def next_run_ms(
    repeat: Repeat, *, scheduled_ms: int, started_ms: int, finished_ms: int, tz: str = "UTC"
) -> int:
    """When a job with this repeat runs again: a whole second, which may be in the past.

    A missed SCHEDULED run is not skipped, so such a job catches up run by run.
    """
    base = {"SCHEDULED": scheduled_ms, "STARTED": started_ms, "FINISHED": finished_ms}[repeat.base]
    moment = _step(repeat, base, zone_of(tz))
    if moment is None:
        raise BadInput("repeat", str(repeat), needed=_RANGE_NEEDED)
    return moment


def latest_run_ms(repeat: Repeat, *, first_ms: int, until_ms: int, tz: str = "UTC") -> int:
    """The last time up to `until_ms` in the sequence that starts at `first_ms`.

    The work is bounded: after a thousand steps it skips whole multiples of their length. That keeps the phase
    of a regular repeat; one that is aligned to the calendar aligns itself again.
    """
    zone = zone_of(tz)
    # The first step may be shorter, to the next hour or day; the others are regular.
    begun, arrived = _walk(repeat, first_ms, until_ms, zone, limit=1)
    moment, arrived = (begun, True) if arrived else _walk(repeat, begun, until_ms, zone, limit=STRIDE_STEPS)
    if arrived:
        return moment
    landing = _stride(repeat, begun, moment, until_ms, zone)
    return _walk(repeat, landing, until_ms, zone, limit=4 * STRIDE_STEPS)[0]


def _walk(repeat: Repeat, moment: int, until_ms: int, zone: tzinfo, *, limit: int) -> tuple[int, bool]:
    """The time after at most `limit` steps, and whether it is the last one up to `until_ms`."""
    for _ in range(limit):
        following = _step(repeat, moment, zone)
        if following is None or not moment < following <= until_ms:
            return moment, True
        moment = following
    return moment, False


def _stride(repeat: Repeat, begun: int, moment: int, until_ms: int, zone: tzinfo) -> int:
    """A time of the repeat shortly before `until_ms`, extrapolated from `begun` and `moment`."""
    here = _wall(moment, zone)
    walked, ahead = here - _wall(begun, zone), _wall(until_ms, zone) - here
    back = walked
    while timedelta(0) < walked <= ahead - back:
        landing = _moment(here + (ahead - back) // walked * walked, zone)
        found = _step(repeat, landing, zone)
        if found is not None and landing < found <= until_ms:
            return found
        back *= 2  # within a long gap of the repeat, such as a week with one active day
    return moment


def _step(repeat: Repeat, from_ms: int, zone: tzinfo) -> int | None:
    whole_ms = from_ms - from_ms % bounds.SECOND_MS
    return _apply(_steps_of(repeat.modifiers), whole_ms, zone)


@lru_cache(CACHED)
def _steps_of(modifiers: tuple[str, ...]) -> tuple[Modifier, ...]:
    found = tuple(_modifier(text) for text in modifiers)
    if not found or None in found:  # a Repeat that was not made by parse_repeat
        raise BadInput("repeat", ", ".join(modifiers), needed=_REPEAT_NEEDED)
    return tuple(step for step in found if step is not None)


# ── cron lines ───────────────────────────────────────────────────────────────────────────────────

CRON_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L or LW",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, FRI#2 or 5L",
}
_CRON_NEEDED = f"five fields ({', '.join(CRON_FIELDS)}) or one of {', '.join(CRON_NAMES)}"


def parse_cron(line: str, tz: str = "UTC") -> str:
    """The five fields of a cron line, with single spaces. Raises `BadInput` that names an invalid field.

    A valid line may have no times at all, such as February 30: then `next_cron_ms` returns None.
    """
    zone_of(tz)
    return _parse_cron(_text("cron", line, needed=_CRON_NEEDED))


@lru_cache(CACHED)
def _parse_cron(line: str) -> str:
    if not line.replace("\t", " ").isprintable():
        raise BadInput("cron", line, needed=_CRON_NEEDED)
    fields = CRON_NAMES.get(line.strip().lower(), line).split()
    if len(fields) != len(CRON_FIELDS):
        raise BadInput("cron", line, needed=_CRON_NEEDED)
    from cronsim import CronSim, CronSimError

    for at, (name, needed) in enumerate(CRON_FIELDS.items()):
        alone = ["*"] * len(fields)
        alone[at] = fields[at]
        try:
            CronSim(" ".join(alone), EPOCH)
        except CronSimError:
            raise BadInput(
                f"cron {name}", fields[at], needed=f"{needed}, or *, lists, ranges, steps"
            ) from None
    return " ".join(fields)


def next_cron_ms(line: str, tz: str, after_ms: int) -> int | None:
    """The first time of a cron line strictly after `after_ms`; None if there is none.

    Daylight saving time is handled as in Debian's cron. A line with fixed hours and minutes runs at the end
    of a gap, and only in the first of two equal hours. A line with a star in these fields follows the local
    time.
    """
    from cronsim import CronSim, CronSimError

    fields, zone = parse_cron(line, tz), zone_of(tz)
    try:
        moments = CronSim(fields, (EPOCH + after_ms * MS).astimezone(zone))
    except CronSimError:  # each field is valid, so none of these months has such a day
        return None
    for found in moments:
        moment = (found - EPOCH) // MS
        if moment > bounds.MAX_TIME_MS:
            return None
        # In the second of two equal hours, CronSim starts with the first one.
        if moment > after_ms:
            return moment
    return None


def latest_cron_ms(line: str, tz: str, *, first_ms: int, until_ms: int) -> int:
    """The last time of a cron line up to `until_ms`, given that `first_ms` is one of its times."""
    low, high = first_ms, until_ms  # low is one of its times, and there is none after high
    while low < high:
        middle = (low + high) // 2
        found = next_cron_ms(line, tz, middle)
        if found is not None and found <= until_ms:
            low = found
        else:
            high = middle
    return low
