"""Schedules: records that add a job at certain times, and the rules for when they do.

                          ┌── wait: the last job still runs; check again when it ends ─┐
                          ▼                                                            │
    started ──▶ next_at is ahead ──time passes──▶ due ──catch_up──▶ times ────overlap──┤
                          ▲                                                            │
                          ├────────── next_at = the next time (cron, every, ───────────┤ fired,
                          │           SCHEDULED)                                       │ skipped
                          └── its job ended ◀── next_at = 0 (STARTED, FINISHED) ◀──────┘

These times ("moments") are whole seconds. The id of a job is computed from (schedule, moment), so if several
processes fire the same moment, the job is added once. The functions take a schedule and the current facts and
return the changed schedule. The caller sets `last_id` and `version`.
"""

from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from . import bounds
from .errors import BadInput
from .repeat import (
    latest_cron_ms,
    latest_run_ms,
    next_cron_ms,
    next_run_ms,
    parse_cron,
    parse_repeat,
    zone_of,
)

# With catch_up="none" a moment that is this late still counts as on time, because upkeep needs some time.
GRACE_MS = 60 * bounds.SECOND_MS
# How many moments are computed to check that a schedule advances, and by how much.
MOMENTS_CHECKED = 12
# The fields of a schedule that the store sets.
HISTORY = ("number", "created_at", "next_at", "last_at", "last_id", "fired", "skipped", "ended", "version")


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. Exactly one of `cron`, `every_ms` and `repeat` is set."""

    name: str
    tenant: str = ""
    number: int = 0  # part of the ids of its jobs
    cron: str = ""
    every_ms: int = 0  # whole seconds
    repeat: str = ""
    tz: str = "UTC"
    catch_up: Literal["none", "one", "all"] = "one"
    overlap: Literal["skip", "wait", "allow"] = "skip"
    jitter_ms: int = 0
    created_at: int = 0
    next_at: int = 0  # 0: waits for its last job to end (STARTED, FINISHED), or ended
    last_at: int = 0  # the last moment that was fired or dropped
    last_id: int = 0  # its last job
    fired: int = 0
    skipped: int = 0  # dropped because the last job still ran
    paused: bool = False
    ended: bool = False
    version: int = 1


class LastRun(Struct, frozen=True, kw_only=True):
    """The state of job `last_id`; None instead of a `LastRun` if the job no longer exists."""

    started_ms: int
    finished_ms: int
    ended: bool


class Firing(Struct, frozen=True, kw_only=True):
    """What to do now: add a job for each of `moments`, store `schedule`, check again at `again_ms`.

    `again_ms` in the past: there is more to do at once. None: check when the last job ends, or when the
    schedule is changed.
    """

    schedule: Schedule
    moments: tuple[int, ...] = ()
    again_ms: int | None = None


# ── checks ──────────────────────────────────────────────────────────────────────────────────────


def check(schedule: Schedule) -> None:
    """Raise `BadInput` unless the schedule is valid: it has one kind of time, and its moments advance."""
    _check_name("name", schedule.name)
    if schedule.tenant != "":
        _check_name("tenant", schedule.tenant)
    if not 0 <= schedule.number <= bounds.MAX_SCHEDULES:
        raise BadInput("number", schedule.number, needed=f"0 to {bounds.MAX_SCHEDULES}")
    given = [kind for kind in ("cron", "every_ms", "repeat") if getattr(schedule, kind)]
    if len(given) != 1:
        found = " and ".join(kind.removesuffix("_ms") for kind in given) or "none"
        raise BadInput("the time of a schedule", found, needed="exactly one of cron, every and repeat")
    for name, value, allowed in (
        ("catch_up", schedule.catch_up, ("none", "one", "all")),
        ("overlap", schedule.overlap, ("skip", "wait", "allow")),
    ):
        if value not in allowed:
            raise BadInput(name, value, needed=f"one of {', '.join(allowed)}")
    zone_of(schedule.tz)
    _check_times(schedule, given[0])


def _check_name(name: str, value: str) -> None:
    # Not `checks.check_name`: `commands` imports this module, and `checks` imports `commands`.
    try:
        fits = isinstance(value, str) and 1 <= len(value.encode()) <= bounds.NAME_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits or any(ord(char) < 32 or ord(char) == 127 for char in value):
        needed = f"1 to {bounds.NAME_BYTES} bytes of UTF-8 text without control characters"
        raise BadInput(name, value, needed=needed)


def _check_times(schedule: Schedule, kind: str) -> None:
    if kind == "every_ms":
        every = schedule.every_ms
        if every % bounds.SECOND_MS or not bounds.SECOND_MS <= every <= bounds.MAX_DURATION_MS:
            raise BadInput("every", every / 1000, needed="whole seconds, at least 1 and at most ten years")
    elif kind == "cron":
        parse_cron(schedule.cron, schedule.tz)
    else:
        parse_repeat(schedule.repeat)
    moments = [_first(schedule, schedule.created_at)]
    while moments[-1] is not None and len(moments) < MOMENTS_CHECKED:
        moments.append(_next_moment(schedule, moments[-1]))
    # A None at the end only means that no more moments follow; but a schedule needs at least two.
    known = [moment for moment in moments if moment is not None]
    if len(known) < 2:
        raise BadInput(kind, getattr(schedule, kind), needed="a time that comes again and again")
    apart_ms = min(late - early for early, late in pairwise(known))
    if not 0 <= schedule.jitter_ms < apart_ms:
        needed = f"at least 0 and less than the {apart_ms / 1000:g} seconds between two moments"
        raise BadInput("jitter", schedule.jitter_ms / 1000, needed=needed)


# ── moments ─────────────────────────────────────────────────────────────────────────────────────


def _depends_on_last_job(schedule: Schedule) -> bool:
    """Whether the next moment is known only after the last job has ended."""
    return bool(schedule.repeat) and parse_repeat(schedule.repeat).base != "SCHEDULED"


def _repeat_after(schedule: Schedule, *, scheduled: int, started: int, finished: int) -> int | None:
    repeat = parse_repeat(schedule.repeat)
    try:
        return next_run_ms(
            repeat, scheduled_ms=scheduled, started_ms=started, finished_ms=finished, tz=schedule.tz
        )
    except BadInput:  # past the year 2248
        return None


def _first(schedule: Schedule, after_ms: int) -> int | None:
    """The first moment of a schedule that starts at `after_ms`; None: there is none."""
    if schedule.cron:
        return next_cron_ms(schedule.cron, schedule.tz, after_ms)
    if schedule.every_ms:
        anchor = schedule.created_at // bounds.SECOND_MS * bounds.SECOND_MS
        passed = max(0, after_ms - anchor) // schedule.every_ms
        moment = anchor + (passed + 1) * schedule.every_ms
        return moment if moment <= bounds.MAX_TIME_MS else None
    found = _repeat_after(schedule, scheduled=after_ms, started=after_ms, finished=after_ms)
    return found if found is not None and found > after_ms else None


def _next_moment(schedule: Schedule, moment: int) -> int | None:
    """The moment after `moment`; None: it was the last."""
    if schedule.every_ms:
        following = moment + schedule.every_ms
        return following if following <= bounds.MAX_TIME_MS else None
    return _first(schedule, moment)


def _latest(schedule: Schedule, until_ms: int) -> int:
    """The last moment from `next_at`, itself one, up to `until_ms`."""
    first = schedule.next_at
    if schedule.every_ms:
        return first + (until_ms - first) // schedule.every_ms * schedule.every_ms
    if schedule.cron:
        return latest_cron_ms(schedule.cron, schedule.tz, first_ms=first, until_ms=until_ms)
    if _depends_on_last_job(schedule):
        return first
    repeat = parse_repeat(schedule.repeat)
    return latest_run_ms(repeat, first_ms=first, until_ms=until_ms, tz=schedule.tz)


def _moments_until(schedule: Schedule, until_ms: int, limit: int) -> tuple[int, ...]:
    """The first `limit` moments from `next_at` up to `until_ms`."""
    moments: list[int] = []
    moment: int | None = schedule.next_at
    while moment is not None and moment <= until_ms and len(moments) < limit:
        moments.append(moment)
        moment = None if _depends_on_last_job(schedule) else _next_moment(schedule, moment)
    return tuple(moments)


def upcoming(schedule: Schedule, after_ms: int, count: int) -> list[int]:
    """The next moments after `after_ms`, at most `count`, for display.

    If the schedule depends on when its jobs start or finish, one is known, or none while its job runs. A
    paused or ended schedule has none.
    """
    if schedule.paused or schedule.ended:
        return []
    if not schedule.next_at and not schedule.last_at:
        schedule = started(schedule, after_ms)
    shown = _skip_past(schedule, after_ms)
    return (
        list(_moments_until(shown, bounds.MAX_TIME_MS, min(count, bounds.PAGE_JOBS))) if shown.next_at else []
    )


def jitter_of(schedule: Schedule, moment: int) -> int:
    """The delay of the job of a moment, 0 to `jitter_ms`; every process computes the same."""
    if not schedule.jitter_ms:
        return 0
    from hashlib import blake2b

    key = f"{schedule.tenant}\0{schedule.name}\0{moment}".encode(errors="replace")
    return int.from_bytes(blake2b(key, digest_size=8).digest()) % (schedule.jitter_ms + 1)


# ── changes ─────────────────────────────────────────────────────────────────────────────────────


def _with_next(schedule: Schedule, next_at: int | None) -> Schedule:
    return replace(schedule, next_at=next_at or 0, ended=next_at is None)


def started(schedule: Schedule, now_ms: int) -> Schedule:
    """Return the schedule with its first moment, strictly after now; its phase is that of `created_at`."""
    schedule = replace(schedule, created_at=schedule.created_at or now_ms)
    return _with_next(schedule, _first(schedule, max(now_ms, schedule.last_at)))


def resumed(schedule: Schedule, *, now_ms: int, last: LastRun | None = None) -> Schedule:
    """Resume a paused schedule. The moments since the pause are dropped; its phase is kept."""
    schedule = replace(schedule, paused=False)
    if schedule.ended:
        return schedule
    if not schedule.next_at and (last is None or last.ended):
        schedule = _after_last_job(schedule, last, now_ms)
    return _skip_past(schedule, now_ms)


def _skip_past(schedule: Schedule, now_ms: int) -> Schedule:
    """Drop the moments up to now."""
    if not 0 < schedule.next_at <= now_ms:
        return schedule
    if _depends_on_last_job(schedule):
        return _with_next(schedule, _first(schedule, now_ms))
    return _with_next(schedule, _next_moment(schedule, _latest(schedule, now_ms)))


def _after_last_job(schedule: Schedule, last: LastRun | None, now_ms: int) -> Schedule:
    """Set the next moment after the last job has ended or was deleted."""
    if not schedule.last_at or not _depends_on_last_job(schedule):
        return started(schedule, now_ms)
    finished = last.finished_ms if last and last.finished_ms else now_ms
    begun = last.started_ms if last and last.started_ms else finished
    found = _repeat_after(schedule, scheduled=schedule.last_at, started=begun, finished=finished)
    if found is None:
        return _with_next(schedule, None)
    # Always a later moment, even if the clock was set back: two equal moments would be one job.
    return _with_next(schedule, max(found, schedule.last_at + bounds.SECOND_MS))


def fire(schedule: Schedule, *, now_ms: int, last: LastRun | None = None) -> Firing:
    """Return what a schedule must do now: before `next_at` nothing. Equal facts give an equal result.

    `last` is the state of job `last_id`: None (no such job) counts as ended.
    """
    busy = last is not None and not last.ended
    if schedule.paused or schedule.ended or (busy and not schedule.next_at):
        return Firing(schedule=schedule)
    if not schedule.next_at:
        schedule = _after_last_job(schedule, last, now_ms)
    if schedule.ended:
        return Firing(schedule=schedule)
    if now_ms < schedule.next_at:
        return Firing(schedule=schedule, again_ms=schedule.next_at)
    if busy and schedule.overlap == "wait":
        return Firing(schedule=schedule)
    moments, seen = _apply_catch_up(schedule, now_ms, last)
    if not moments:
        dropped = _skip_past(replace(schedule, last_at=seen), now_ms)
        return Firing(schedule=dropped, again_ms=dropped.next_at or None)
    return _apply_overlap(schedule, moments, now_ms=now_ms, busy=busy)


def _apply_catch_up(schedule: Schedule, now_ms: int, last: LastRun | None) -> tuple[tuple[int, ...], int]:
    """The due moments that `catch_up` keeps, and the last one that was considered."""
    if schedule.catch_up == "all":
        moments = _moments_until(schedule, now_ms, bounds.CATCH_UP_FIRINGS)
        return moments, moments[-1]
    latest = _latest(schedule, now_ms)
    # A moment that waited for the end of the last job counts as late only from that end on.
    waited_for = last.finished_ms if last is not None and schedule.overlap == "wait" else 0
    if schedule.catch_up == "none" and now_ms - max(latest, waited_for) > GRACE_MS:
        return (), latest
    return (latest,), latest


def _apply_overlap(schedule: Schedule, moments: tuple[int, ...], *, now_ms: int, busy: bool) -> Firing:
    """Fire due moments, except those that overlap with the last job or with the first of them."""
    fired, seen = moments, moments[-1]
    if schedule.overlap == "skip":
        fired = () if busy else moments[:1]
    elif schedule.overlap == "wait":
        fired = moments[:1]
        seen = moments[0]
    skipped = len(moments) - len(fired) if schedule.overlap == "skip" else 0
    schedule = replace(
        schedule, last_at=seen, fired=schedule.fired + len(fired), skipped=schedule.skipped + skipped
    )
    if _depends_on_last_job(schedule):
        return Firing(schedule=replace(schedule, next_at=0), moments=fired)
    schedule = _with_next(schedule, _next_moment(schedule, seen))
    held_up = schedule.overlap == "wait" and schedule.next_at <= now_ms
    return Firing(schedule=schedule, moments=fired, again_ms=None if held_up else schedule.next_at or None)
