"""The steps by which a unique key is taken for a job of another shard. See docs/decisions/0010.

TakeKey   at the key's home: point to a job that is about to be added, unless the key is held
Hit       at the holder's: what adding the key again does to it, if it holds the key
FreeKey   at the key's home: drop a pointer to a job that does not hold the key
"""

import msgspec

from ..core import commands as c
from ..core import unique
from ..core.bounds import MINUTE_MS
from ..core.job import Record
from ..core.unique import UniqueKey
from ..store.sharded_keys import Pointer, pointer_name
from . import pointers
from .adding import add_to
from .batch import Batch
from .records import POINTER

# An add takes no longer than this from its first step to its second.
STEPS_MS = MINUTE_MS


class TakeKey(c.Command, frozen=True, kw_only=True):
    """Point to a job; replies the id that has the key: this one's, or another's that was faster.

    `again`: the job is there already, and is about to be put back.
    """

    key: UniqueKey
    job_id: int
    again: bool = False


class FreeKey(c.Command, frozen=True, kw_only=True):
    """Drop the pointer to a job that does not hold the key; replies whether it is gone.

    `exists`: that job is there, so it has ended; one that is not may be about to come. `given_back`: the
    job was never added.
    """

    key: UniqueKey
    job_id: int
    exists: bool = False
    given_back: bool = False


class Hit(c.Command, frozen=True, kw_only=True):
    """Add to the holder of a key; replies its id, or `NotHeld`."""

    job: c.NewJob
    holder: int
    follows: bool = False


class NotHeld(Record, frozen=True, kw_only=True):
    """The job does not hold the key; whether it is there at all."""

    exists: bool


def take_key(batch: Batch, command: TakeKey) -> int:
    """See `TakeKey`."""
    holder = batch.holders.here(command.key)
    if holder is not None:
        return holder.job_id
    pointer = pointers.find(batch, command.key)
    if pointer is not None and pointer.job_id != command.job_id:
        return pointer.job_id
    taken = Pointer(job_id=command.job_id, taken_ms=batch.now_ms, again=command.again)
    batch.records[POINTER, pointer_name(command.key)] = msgspec.json.encode(taken)
    return command.job_id


def free_key(batch: Batch, command: FreeKey) -> bool:
    """See `FreeKey`."""
    pointer = pointers.find(batch, command.key)
    if pointer is None or pointer.job_id != command.job_id:
        return True
    ended = command.exists and not pointer.again
    if not (ended or command.given_back or batch.now_ms >= pointer.taken_ms + STEPS_MS):
        return False
    batch.records[POINTER, pointer_name(command.key)] = None
    return True


def hit(batch: Batch, command: Hit) -> int | NotHeld:
    """See `Hit`."""
    key = unique.key_of(command.job)
    assert key is not None
    holder = batch.holders.here(key)
    if holder is None or holder.job_id != command.holder:
        there = batch.find(command.holder) or batch.txn.archived([command.holder])
        return NotHeld(exists=bool(there))
    return add_to(batch, command.job, holder, follows=command.follows)
