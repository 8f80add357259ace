"""Commands between shards that take a unique key for a job of another shard. See docs/decisions/0010.

TakeKey   in the key's home shard: write a pointer to a job that is about to be added, unless the key is held
Hit       in the holder's shard: apply the add to the job that holds the key
FreeKey   in the key's home shard: delete a pointer to a job that does not hold the key
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import rules, unique
from ...core.bounds import MINUTE_MS
from ...core.errors import LeaseLost, Unavailable
from ...core.job import Job, Record
from ...core.kinds import POINTER
from ...core.unique import UniqueKey
from ...store.common.pointers import Pointer, pointer_name
from ..batch import pointers
from ..batch.batch import Batch
from .adding import add_to, add_to_namesake

# The longest time from the first step of an add to the second.
STEPS_MS = MINUTE_MS


class TakeKey(c.Command, frozen=True, kw_only=True):
    """Write a pointer to a job; replies the id of the job that has the key: this one, or another.

    `version` is that of an existing job that is about to be requeued.
    """

    key: UniqueKey
    job_id: int
    version: int = 0


class FreeKey(c.Command, frozen=True, kw_only=True):
    """Delete the pointer to a job that does not hold the key; replies whether it is deleted.

    `version` is that of the job, 0 if there is none. A version later than the pointer's means that the job
    has ended since; any other, that the job may still be about to be added. `given_back`: it will not be
    added. `stays`: it has ended and holds the key until a given time, so the pointer stays.
    """

    key: UniqueKey
    job_id: int
    version: int = 0
    given_back: bool = False
    stays: bool = False


class Hit(c.Command, frozen=True, kw_only=True):
    """Apply an add to the holder of a key, or (port) a job of its name; replies its id, or `NotHeld`."""

    job: c.NewJob
    holder: int
    follows: bool = False


def key_after(job: Job, command: Any) -> UniqueKey | None:
    """The key of a job after a command; None also for a hold that is no longer valid."""
    hold, task = getattr(command, "hold", None), getattr(command, "task", None)
    if hold is not None:
        try:
            rules.check_hold(job, hold, "retry")
        except LeaseLost:
            return None
    return unique.key_of(job if task is None else replace(job, task=task))


class NotHeld(Record, frozen=True, kw_only=True):
    """The job does not hold the key; its version, 0 if it does not exist."""

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
    # `abs`: the clock may have been set back.
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
    """The error for an add whose key another, unfinished add has taken."""
    return Unavailable(
        f"a unique key is being taken for job {job_id}, which is not there yet; "
        "it is free again within a minute, try again"
    )
