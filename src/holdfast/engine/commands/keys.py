"""The steps by which a unique key is taken for a job of another shard. See docs/decisions/0010.

TakeKey   at the key's home: point to a job that is about to be added, unless the key is held
Hit       at the holder's: what adding the key again does to it, if it holds the key
FreeKey   at the key's home: drop a pointer to a job that does not hold the key
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import rules, unique
from ...core.bounds import MINUTE_MS
from ...core.errors import LeaseLost, Unavailable
from ...core.job import Job, Record
from ...core.unique import UniqueKey
from ...store.sharded.keys import Pointer, pointer_name
from ..batch import pointers
from ..batch.batch import Batch
from ..records import POINTER
from .adding import add_to, add_to_namesake

# An add takes no longer than this from its first step to its second.
STEPS_MS = MINUTE_MS


class TakeKey(c.Command, frozen=True, kw_only=True):
    """Point to a job; replies the id that has the key: this one's, or another's that was faster.

    `version` is that of a job which is there already, and is about to be put back.
    """

    key: UniqueKey
    job_id: int
    version: int = 0


class FreeKey(c.Command, frozen=True, kw_only=True):
    """Drop the pointer to a job that does not hold the key; replies whether it is gone.

    `version` is that of the job, 0 if there is none: one later than the pointer knows has ended since; any
    other may be about to come. `given_back`: it will not. `stays`: it has ended and holds the key on for a
    while, so the pointer stays, and is known to be of one that was there.
    """

    key: UniqueKey
    job_id: int
    version: int = 0
    given_back: bool = False
    stays: bool = False


class Hit(c.Command, frozen=True, kw_only=True):
    """Add to the holder of a key, at the port to any job of its name; replies its id, or `NotHeld`."""

    job: c.NewJob
    holder: int
    follows: bool = False


def key_after(job: Job, command: Any) -> UniqueKey | None:
    """The key that a job has after a command; None also where a late worker says it, who changes nothing."""
    hold, task = getattr(command, "hold", None), getattr(command, "task", None)
    if hold is not None:
        try:
            rules.check_hold(job, hold, "retry")
        except LeaseLost:
            return None
    return unique.key_of(job if task is None else replace(job, task=task))


class NotHeld(Record, frozen=True, kw_only=True):
    """The job does not hold the key; its version, 0 if it is not there at all."""

    version: int = 0


def take_key(batch: Batch, command: TakeKey) -> int:
    """See `TakeKey`."""
    holder = batch.holders.here(command.key)
    if holder is not None:
        return holder.job_id
    pointer = pointers.find(batch, command.key)
    if pointer is not None and pointer.job_id != command.job_id:
        return pointer.job_id
    batch.holders.forget(command.key)
    taken = Pointer(job_id=command.job_id, taken_ms=batch.now_ms, version=command.version)
    batch.rows[POINTER, pointer_name(command.key)] = msgspec.json.encode(taken)
    return command.job_id


def free_key(batch: Batch, command: FreeKey) -> bool:
    """See `FreeKey`."""
    pointer = pointers.find(batch, command.key)
    if pointer is None or pointer.job_id != command.job_id:
        return True
    ended = command.version > pointer.version
    # Or as long before it, where the clock was set back.
    late = abs(batch.now_ms - pointer.taken_ms) >= STEPS_MS
    if not (ended or command.given_back or late):
        return False
    after = msgspec.json.encode(replace(pointer, taken_ms=0)) if command.stays else None
    batch.rows[POINTER, pointer_name(command.key)] = after
    return True


def hit(batch: Batch, command: Hit) -> int | NotHeld:
    """See `Hit`."""
    key = unique.key_of(command.job)
    assert key is not None
    holder = batch.holders.here(key)
    if holder is not None and holder.job_id == command.holder:
        return add_to(batch, command.job, holder, follows=command.follows)
    job = batch.find(command.holder)
    if (
        job is not None
        and command.job.strict
        and unique.key_of(replace(job, unique=command.job.unique)) == key
    ):
        return add_to_namesake(batch, command.job, job)
    job = job or batch.archived(command.holder)
    return NotHeld(version=job.version if job else 0)


def taken(job_id: int) -> Unavailable:
    """What an add hears whose key another add is just taking, and does not come to its end."""
    return Unavailable(
        f"a unique key is being taken for job {job_id}, which is not there yet; "
        "it is free again within a minute, try again"
    )
