"""Moments as people read them, for the tests of this folder."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from holdfast.core.repeat import next_run_ms, parse_repeat

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
# Clocks that change by half an hour, at midnight, or by a whole day.
ODD_ZONES = ["Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Pacific/Apia"]


def ms(text: str, tz: str = "UTC", *, fold: int = 0) -> int:
    """A wall time of a zone, as a moment."""
    wall = datetime.fromisoformat(text).replace(tzinfo=UTC if tz == "UTC" else ZoneInfo(tz), fold=fold)
    return round(wall.timestamp() * 1000)


def text_of(at_ms: int, tz: str = "UTC") -> str:
    """A moment as the wall time of a zone."""
    zone = UTC if tz == "UTC" else ZoneInfo(tz)
    return f"{datetime.fromtimestamp(at_ms // 1000, zone):%Y-%m-%d %H:%M:%S}"


def next_ms(repeat: str, base_ms: int, tz: str = "UTC") -> int:
    """The next run of a job whose three times are all `base_ms`."""
    return next_run_ms(
        parse_repeat(repeat), scheduled_ms=base_ms, started_ms=base_ms, finished_ms=base_ms, tz=tz
    )


def following(repeat: str, base: str, tz: str = "UTC") -> str:
    """The same, in wall time."""
    return text_of(next_ms(repeat, ms(base, tz), tz), tz)
