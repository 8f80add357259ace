"""Schedules in the store: set, changed, paused, fired.

Each firing adds an ordinary job, whose id is computed from the schedule's number and the firing time, and
advances the schedule in the same transaction. So the job is added once, however many processes do upkeep.
"""

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import ids
from ...core import schedule as s
from ...core.checks import check_new
from ...core.commands import RunSchedule
from ...core.errors import BadInput, HoldfastError, NotFound, StoreFull
from ...core.job import Place, Record
from ...core.kinds import FLOOR, NUMBER, SCHEDULE, name_of
from ...core.schedule import HISTORY, LastRun, Schedule
from ...core.slots import slot_of_schedule
from ..batch.batch import Batch
from .adding import add_one

# How often a firing that waits for the schedule's last job is tried again, without a wake-up.
RETRY_MS = 1_000


class Kept(Record, frozen=True, kw_only=True):
    """A stored schedule with the job that it adds; binary data has its own field, as JSON has only text."""

    schedule: Schedule
    job: c.NewJob
    raw: bytes | None = None

    def new_job(self) -> c.NewJob:
        """The job that the schedule adds, with its data."""
        return self.job if self.raw is None else replace(self.job, data=self.raw)


def read_kept(raw: bytes) -> Kept:
    """Decode a schedule."""
    return msgspec.json.decode(raw, type=Kept)


@lru_cache(maxsize=4096)
def fires_at(raw: bytes) -> int | None:
    """When a stored schedule fires next. Cached: every waiting process asks each time it polls."""
    schedule = read_kept(raw).schedule
    return None if schedule.paused or schedule.ended or not schedule.next_at else schedule.next_at


def _keep(batch: Batch, kept: Kept) -> None:
    name = name_of(kept.schedule.tenant, kept.schedule.name)
    batch.rows[SCHEDULE, name] = msgspec.json.encode(kept)


def _find(batch: Batch, tenant: str, name: str) -> Kept | None:
    key = name_of(tenant, name)
    raw = batch.rows_of(SCHEDULE, [key]).get(key)
    return read_kept(raw) if raw else None


def _get(batch: Batch, tenant: str, name: str) -> Kept:
    kept = _find(batch, tenant, name)
    if kept is None:
        raise NotFound("schedule", name)
    return kept


def set_schedule(batch: Batch, command: c.SetSchedule) -> Schedule:
    """Create or change a schedule; the same definition changes nothing, so every start may repeat it."""
    wanted = command.schedule
    s.check(wanted)
    job = replace(command.job, tenant=wanted.tenant, schedule=wanted.name)
    check_new(job)
    if job.id:
        raise BadInput("id", job.id, needed="absent: each job of a schedule has its own")
    if job.parent_id:
        raise BadInput("parent", job.parent_id, needed="absent: a parent waits for its children, and ends")
    raw = job.data if isinstance(job.data, bytes) else None
    kept = Kept(schedule=wanted, job=replace(job, data="{}") if raw is not None else job, raw=raw)
    before = _find(batch, wanted.tenant, wanted.name)
    if before is None:
        life = {"last_at": 0, "last_id": 0, "fired": 0, "skipped": 0, "created_at": batch.now_ms}
        begun = replace(wanted, number=_number(batch), **life)
        kept = replace(kept, schedule=s.started(begun, batch.now_ms))
    else:
        kept = replace(kept, schedule=_changed(before.schedule, wanted, batch.now_ms))
    if kept != before:
        _keep(batch, kept)
        batch.woke = batch.wants_upkeep = True
    return kept.schedule


def _changed(before: Schedule, wanted: Schedule, now_ms: int) -> Schedule:
    """The new definition with the history of the old one; changed times start from now."""
    after = replace(wanted, **{field: getattr(before, field) for field in (*HISTORY, "paused")})
    when = ("cron", "every_ms", "repeat", "tz")
    if all(getattr(before, field) == getattr(wanted, field) for field in when):
        return after
    return s.started(replace(after, ended=False), now_ms)


def _number(batch: Batch) -> int:
    """A free schedule number; not one whose last firing time is in the future, as job ids would be reused."""
    taken = {read_kept(raw).schedule.number for raw in batch.rows_of(SCHEDULE).values()}
    # The numbers of schedules that have moved to another shard.
    taken |= {int(number) for number in batch.rows_of(NUMBER)}
    floors = {int(number): int(at) for number, at in batch.rows_of(FLOOR).items()}
    free = (n for n in batch.shard_info.schedules if n not in taken and floors.get(n, 0) <= batch.now_ms)
    number = next(free, None)
    if number is None:
        most = len(batch.shard_info.schedules)
        raise StoreFull(f"there are {most:,} schedules already, and no number for another")
    return number


def delete_schedule(batch: Batch, command: c.DeleteSchedule) -> None:
    """Remove a schedule; see `DeleteSchedule`."""
    schedule = _get(batch, command.tenant, command.name).schedule
    number = str(schedule.number)
    # Not below that of an earlier schedule with this number: the clock may be set back.
    floor = max(schedule.last_at, int(batch.rows_of(FLOOR, [number]).get(number, b"0")))
    batch.rows[FLOOR, number] = str(floor).encode()
    batch.rows[SCHEDULE, name_of(command.tenant, command.name)] = None


def pause_schedule(batch: Batch, command: c.PauseSchedule) -> Schedule:
    """Pause or resume a schedule; see `PauseSchedule`."""
    kept = _get(batch, command.tenant, command.name)
    schedule = kept.schedule
    if command.on:
        schedule = replace(schedule, paused=True)
    elif schedule.paused:
        schedule = s.resumed(schedule, now_ms=batch.now_ms, last=_last_run(batch, schedule))
        batch.woke = batch.wants_upkeep = True
    if schedule != kept.schedule:
        _keep(batch, replace(kept, schedule=schedule))
    return schedule


def run_schedule(batch: Batch, command: RunSchedule) -> list[int]:
    """Add the job of a schedule now; see `RunSchedule`."""
    new = _get(batch, command.tenant, command.name).new_job()
    return [add_one(batch, replace(new, run_at=0, delay_ms=0))]


def fire(batch: Batch) -> int | None:
    """Fire due schedules; return when the next is due, or None."""
    again: list[int] = []
    for _, raw in sorted(batch.rows_of(SCHEDULE).items()):
        kept = read_kept(raw)
        schedule = kept.schedule
        if schedule.paused or schedule.ended:
            continue
        if schedule.next_at > batch.now_ms:
            again.append(schedule.next_at)
            continue
        batch.keep()
        try:
            again.append(_fire_one(batch, kept) or 0)
        except HoldfastError:
            # One that cannot fire (a time zone that this machine lacks, a unique key that a child of another
            # parent holds) must not block the others.
            batch.drop()
            again.append(batch.now_ms + RETRY_MS)
    return min((moment for moment in again if moment), default=None)


def _fire_one(batch: Batch, kept: Kept) -> int | None:
    firing = s.fire(kept.schedule, now_ms=batch.now_ms, last=_last_run(batch, kept.schedule))
    after = _add_firings(batch, kept, firing)
    if after != kept.schedule:
        _keep(batch, replace(kept, schedule=after))
    waits = not (after.ended or firing.again_ms)
    return batch.now_ms + RETRY_MS if waits else firing.again_ms


def _add_firings(batch: Batch, kept: Kept, firing: s.Firing) -> Schedule:
    after = firing.schedule
    new = kept.new_job()
    for moment in firing.moments:
        slot = slot_of_schedule(after.name, new)
        run_at = moment + s.jitter_of(after, moment) + new.delay_ms
        job_id = ids.of_schedule(after.number, moment, slot)
        # If its unique key is held, the existing job is the job of this firing.
        after = replace(after, last_id=add_one(batch, replace(new, id=job_id, run_at=run_at, delay_ms=0)))
    return after


def _last_run(batch: Batch, schedule: Schedule) -> LastRun | None:
    if not schedule.last_id:
        return None
    job = batch.find(schedule.last_id) or batch.archived(schedule.last_id)
    if job is None:
        return None
    return LastRun(started_ms=job.started_at, finished_ms=job.finished_at, ended=job.place == Place.DONE)
