"""Job ids: 63 bits that contain the time, the process and the slot, and are never made twice.

    41 bits  ms since 2025 ┆ 11 bits sysid ┆ 5 bits sequence ┆ 6 bits slot

Adding is idempotent by id, so an id made twice would lose a job. Therefore a process reserves a time in the
store together with its sysid, and makes only ids below it; the next process with that sysid starts at that
time. So their ids never overlap, whatever clocks and crashes do. Within a process (time, sequence) is one
counter, a *tick*, which only increases: if a millisecond is used up, or the clock was set back, it runs ahead
of the clock. See docs/decisions/0001.
"""

from collections.abc import Iterable

import msgspec

from .bounds import MAX_SCHEDULES, SECOND_MS

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
SEQUENCE_BITS, SLOT_BITS, SYSID_BITS = 5, 6, 11
SEQUENCES, SLOTS, SYSIDS = 1 << SEQUENCE_BITS, 1 << SLOT_BITS, 1 << SYSID_BITS
MAX_ID = (1 << 63) - 1

# Sysids below FIRST_SYSID: for the jobs of schedules (`of_schedule`), and for the job-command port, whose
# servers have one common owner, and jobs that SQL adds. Processes take sysids from FIRST_SYSID on. Journals,
# which keep them for days, take those from FIRST_JOURNAL_SYSID on, so that neither can use up those of the
# other.
SCHEDULE_SYSID, PORT_SYSID, FIRST_SYSID, FIRST_JOURNAL_SYSID = 0, 1, 2, 1_536


class Parts(msgspec.Struct, frozen=True):
    """The parts of an id."""

    time_ms: int
    sysid: int
    sequence: int
    slot: int


class IdRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of unique ids: `first` and the next ones, each `SLOTS` above the one before.

    Their low bits, the slot, are 0: the caller that uses an id sets the slot of its job.
    """

    first: int
    count: int


def first_at(at_ms: int) -> int:
    """The smallest id of a time; 0 before 2025."""
    return max(at_ms - EPOCH_MS, 0) << (SYSID_BITS + SEQUENCE_BITS + SLOT_BITS)


def ms_of(job_id: int) -> int:
    """The time in an id."""
    return (job_id >> (SYSID_BITS + SEQUENCE_BITS + SLOT_BITS)) + EPOCH_MS


def pack(tick: int, sysid: int, slot: int) -> int:
    """The id of a tick, a sysid and a slot."""
    time, sequence = tick >> SEQUENCE_BITS, tick & (SEQUENCES - 1)
    return ((time << SYSID_BITS | sysid) << SEQUENCE_BITS | sequence) << SLOT_BITS | slot


def pack_all(ticks: range, sysid: int, slots: range) -> list[int]:
    """The ids of ticks, with one slot for each."""
    count = len(slots)
    # The same as `pack`, inlined: a call for each id would take twice as long.
    return [
        ((tick >> SEQUENCE_BITS << SYSID_BITS | sysid) << SEQUENCE_BITS | tick & (SEQUENCES - 1)) << SLOT_BITS
        | slots[tick % count]
        for tick in ticks
    ]


def moved(job_id: int, slot: int) -> int:
    """The same id with another slot."""
    return job_id >> SLOT_BITS << SLOT_BITS | slot


def unpack(job_id: int) -> Parts:
    """The parts of an id."""
    rest, slot = job_id >> SLOT_BITS, job_id & (SLOTS - 1)
    rest, sequence = rest >> SEQUENCE_BITS, rest & (SEQUENCES - 1)
    return Parts((rest >> SYSID_BITS) + EPOCH_MS, rest & (SYSIDS - 1), sequence, slot)


def tick_at(time_ms: int) -> int:
    """The first tick of a time."""
    return (time_ms - EPOCH_MS if time_ms > EPOCH_MS else 0) << SEQUENCE_BITS


def time_of(tick: int) -> int:
    """The time of a tick."""
    return (tick >> SEQUENCE_BITS) + EPOCH_MS


def next_ticks(last: int, count: int, *, now_ms: int) -> range:
    """The next ticks, after `last` and not before the clock: they increase even if the clock is set back."""
    first = tick_at(now_ms)
    start = first if first > last else last + 1
    return range(start, start + count)


def of_schedule(number: int, moment_ms: int, slot: int) -> int:
    """The id of the job that a schedule adds for a time: every process computes the same.

    These times are whole seconds, so the 1,000 milliseconds of a second, with 32 sequences each, encode the
    number of the schedule (up to MAX_SCHEDULES).
    """
    assert 0 <= number < MAX_SCHEDULES and moment_ms % SECOND_MS == 0
    return pack(tick_at(moment_ms) + number, SCHEDULE_SYSID, slot)


def slot_of(tenant: str, *parts: str | bytes) -> int:
    """The fixed slot of a (tenant, domain) or (tenant, task, unique key)."""
    # Imported here: a program whose jobs have neither domain nor key does not need it.
    from hashlib import blake2b

    digest = blake2b(digest_size=8, person=b"holdfast-slot")
    for part in (tenant, *parts):
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return digest.digest()[0] & (SLOTS - 1)


def ranges_of(ids: Iterable[int]) -> list[IdRange]:
    """Ids of slot 0, in order, as ranges in which each is the next possible one."""
    ranges: list[IdRange] = []
    first, count = -1, 0
    for job_id in ids:
        if job_id == first + count * SLOTS:
            count += 1
            continue
        if count:
            ranges.append(IdRange(first=first, count=count))
        first, count = job_id, 1
    return [*ranges, IdRange(first=first, count=count)]
