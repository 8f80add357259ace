"""Letters: jobs that are decided upon here and belong to another shard. See docs/decisions/0010.

A letter is a small record with the whole job, written in the transaction that decided it. It is delivered
after the commit, by its number, so twice is once; then it is removed. Upkeep finds what a crash left. On a
store alone there are none, unless the queue was on several before it moved: what came along is taken in.
"""

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import unique
from ...core.errors import HoldfastError
from ...core.job import Record
from ...core.slots import slot_for, slot_of_key
from ..batch.batch import Batch
from ..batch.pointers import Elsewhere
from ..records import LETTER, name_of
from .adding import add_one

# So many are delivered at once.
AT_ONCE = 100


class Letter(Record, frozen=True, kw_only=True):
    """The job; bytes cannot be told from text in JSON."""

    job: c.NewJob
    raw: bytes | None = None


class Delivered(c.Command, frozen=True, kw_only=True):
    """A letter has arrived, and is no longer needed."""

    name: str


class Deliver(c.Command, frozen=True, kw_only=True):
    """Add a job that was sent here; see `add_one` of what follows."""

    job: c.NewJob


def add(batch: Batch, new: c.NewJob, *, follows: bool = False) -> int:
    """Add a job here, or send it to where it belongs; its id.

    Also where it belongs here and its unique key does not: that has to be taken first.
    """
    slot, key = new.id or slot_for(new), unique.key_of(new)
    if (slot is None or batch.site.has(slot)) and (key is None or batch.site.has(slot_of_key(key))):
        try:
            return add_one(batch, new, follows=follows)
        except Elsewhere:
            # What it comes to is found out there.
            pass
    return _send(batch, new)


def _send(batch: Batch, new: c.NewJob) -> int:
    new = replace(new, id=new.id or batch.ids.make(slot=slot_for(new)))
    raw = new.data if isinstance(new.data, bytes) else None
    letter = Letter(job=replace(new, data="{}") if raw is not None else new, raw=raw)
    name = name_of(str(batch.site.number), str(new.id))
    batch.rows[LETTER, name] = msgspec.json.encode(letter)
    return new.id


def read(raw: bytes) -> c.NewJob:
    """The job of a letter."""
    letter = msgspec.json.decode(raw, type=Letter)
    return letter.job if letter.raw is None else replace(letter.job, data=letter.raw)


def is_sent(batch: Batch, job_id: int) -> bool:
    """Whether a job is still on its way."""
    name = name_of(str(batch.site.number), str(job_id))
    return name in batch.rows_of(LETTER, [name])


def pick_up(batch: Batch) -> None:
    """Have those delivered that are still here."""
    letters = dict(sorted(batch.rows_of(LETTER).items())[:AT_ONCE])
    if not batch.site.is_alone:
        batch.letters |= letters
        return
    for name, raw in letters.items():
        batch.keep()
        try:
            add_one(batch, read(raw), follows=True)
            batch.rows[LETTER, name] = None
        except HoldfastError:
            # One that cannot be added must not hold up the others.
            batch.drop()


def deliver(batch: Batch, command: Deliver) -> list[int]:
    """Add what was sent; see `Deliver`."""
    return [add_one(batch, command.job, follows=True)]


def delivered(batch: Batch, command: Delivered) -> None:
    """Remove a letter; see `Delivered`."""
    batch.rows[LETTER, command.name] = None
