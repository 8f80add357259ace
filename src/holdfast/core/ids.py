"""The number of a job: 63 bits that say when, by whom and where, and are never made twice.

    41 bits  ms since 2025 ┆ 11 bits sysid ┆ 5 bits sequence ┆ 6 bits slot

Adding is idempotent by id, so an id made twice would be a job lost. Therefore a process makes ids
only below the moment that it has reserved in the store together with its sysid, and whoever has
the sysid next starts at that moment: whatever clocks, crashes and expiry do, the two never meet.
Within a process (time, sequence) is one counter, a *tick*, which only goes up; when a millisecond
is used up or the clock went back it runs ahead of the clock. See docs/decisions/0001.
"""

import msgspec

from .bounds import MAX_SCHEDULES, SECOND_MS

EPOCH_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
SEQUENCE_BITS, SLOT_BITS, SYSID_BITS = 5, 6, 11
SEQUENCES, SLOTS, SYSIDS = 1 << SEQUENCE_BITS, 1 << SLOT_BITS, 1 << SYSID_BITS
MAX_ID = (1 << 63) - 1

# Jobs of schedules have ids of their own making (`of_schedule`), and the job-command port one
# owner common to all servers. Processes take the sysids from FIRST_SYSID on, and journals, which hold them
# for days, those from FIRST_JOURNAL_SYSID on: neither can use up the other's.
SCHEDULE_SYSID, PORT_SYSID, FIRST_SYSID, FIRST_JOURNAL_SYSID = 0, 1, 2, 1_536


class Parts(msgspec.Struct, frozen=True):
    """An id taken apart."""

    time_ms: int
    sysid: int
    sequence: int
    slot: int


class IdRange(msgspec.Struct, frozen=True, kw_only=True):
    """Unique ids: `first` and the next ones, each `SLOTS` above the one before.

    Their low bits, the slot, are 0: whoever uses an id sets the slot that its job must live in.
    """

    first: int
    count: int


def first_at(at_ms: int) -> int:
    """The first id that can be made at a moment; 0 before there were any."""
    return max(at_ms - EPOCH_MS, 0) << (SYSID_BITS + SEQUENCE_BITS + SLOT_BITS)


def ms_of(job_id: int) -> int:
    """When an id was made, by the clock that it went by."""
    return (job_id >> (SYSID_BITS + SEQUENCE_BITS + SLOT_BITS)) + EPOCH_MS


def pack(tick: int, sysid: int, slot: int) -> int:
    """The id of a tick, made by the holder of `sysid`, living in `slot`."""
    time, sequence = tick >> SEQUENCE_BITS, tick & (SEQUENCES - 1)
    return ((time << SYSID_BITS | sysid) << SEQUENCE_BITS | sequence) << SLOT_BITS | slot


def pack_all(ticks: range, sysid: int, slots: range) -> list[int]:
    """The ids of ticks, each in the next of these slots."""
    count = len(slots)
    # `pack`, said again in one expression: a call for each would take twice as long.
    return [
        ((tick >> SEQUENCE_BITS << SYSID_BITS | sysid) << SEQUENCE_BITS | tick & (SEQUENCES - 1)) << SLOT_BITS
        | slots[tick % count]
        for tick in ticks
    ]


def moved(job_id: int, slot: int) -> int:
    """The same id living in another slot."""
    return job_id >> SLOT_BITS << SLOT_BITS | slot


def unpack(job_id: int) -> Parts:
    """What an id says."""
    rest, slot = job_id >> SLOT_BITS, job_id & (SLOTS - 1)
    rest, sequence = rest >> SEQUENCE_BITS, rest & (SEQUENCES - 1)
    return Parts((rest >> SYSID_BITS) + EPOCH_MS, rest & (SYSIDS - 1), sequence, slot)


def tick_at(time_ms: int) -> int:
    """The first tick of a moment."""
    return (time_ms - EPOCH_MS if time_ms > EPOCH_MS else 0) << SEQUENCE_BITS


def time_of(tick: int) -> int:
    """The moment that a tick belongs to."""
    return (tick >> SEQUENCE_BITS) + EPOCH_MS


def next_ticks(last: int, count: int, *, now_ms: int) -> range:
    """The next ticks after `last`, not before the clock: strictly increasing whatever the clock does."""
    first = tick_at(now_ms)
    start = first if first > last else last + 1
    return range(start, start + count)


def of_schedule(number: int, moment_ms: int, slot: int) -> int:
    """The id of the job that a schedule adds for a moment: the same whoever adds it.

    Moments are whole seconds, so the thousand milliseconds of one, 32 sequences each, tell
    MAX_SCHEDULES schedules apart.
    """
    assert 0 <= number < MAX_SCHEDULES and moment_ms % SECOND_MS == 0
    return pack(tick_at(moment_ms) + number, SCHEDULE_SYSID, slot)


def slot_of(tenant: str, *parts: str | bytes) -> int:
    """The slot that a (tenant, domain) or (tenant, task, unique key) always has."""
    # Not imported above: a program whose jobs have neither domain nor key does not need it.
    from hashlib import blake2b

    digest = blake2b(digest_size=8, person=b"holdfast-slot")
    for part in (tenant, *parts):
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return digest.digest()[0] & (SLOTS - 1)
