"""The outbox: new jobs that belong to another shard. See docs/decisions/0010.

An outbox message is a row with the whole job, written in the transaction that decided to add it. After the
commit it is delivered by its job id, so a second delivery changes nothing; then it is removed. Upkeep
delivers messages that a crash left. A queue on one store has none, unless it had several before a move: then
upkeep adds the jobs of the messages that came along.
"""

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import unique
from ...core.errors import HoldfastError
from ...core.job import Record
from ...core.kinds import OUTBOX, name_of
from ...core.slots import slot_for, slot_of_key
from ..batch.batch import Batch
from ..batch.pointers import Elsewhere
from .adding import add_one

# The most messages that upkeep delivers at once.
MAX_MESSAGES = 100


class OutboxMessage(Record, frozen=True, kw_only=True):
    """A job for another shard; binary data is in `raw`, since JSON has only text."""

    job: c.NewJob
    raw: bytes | None = None


class RemoveMessage(c.Command, frozen=True, kw_only=True):
    """Remove an outbox message that was delivered."""

    name: str


class DeliverJob(c.Command, frozen=True, kw_only=True):
    """Add a job that another shard has sent."""

    job: c.NewJob


def add(batch: Batch, new: c.NewJob, *, follows: bool = False) -> int:
    """Add a job to this shard, or write it to the outbox; returns its id.

    To the outbox also if its unique key belongs to another shard: the key has to be taken there first.
    """
    slot, key = new.id or slot_for(new), unique.key_of(new)
    if (slot is None or batch.shard_info.has_slot(slot)) and (
        key is None or batch.shard_info.has_slot(slot_of_key(key))
    ):
        try:
            return add_one(batch, new, follows=follows)
        except Elsewhere:
            # The job that holds its key is in another shard.
            pass
    return _write_message(batch, new)


def _write_message(batch: Batch, new: c.NewJob) -> int:
    new = replace(new, id=new.id or batch.ids.make(slot=slot_for(new)))
    raw = new.data if isinstance(new.data, bytes) else None
    message = OutboxMessage(job=replace(new, data="{}") if raw is not None else new, raw=raw)
    name = name_of(str(batch.shard_info.number), str(new.id))
    batch.rows[OUTBOX, name] = msgspec.json.encode(message)
    return new.id


def read(raw: bytes) -> c.NewJob:
    """The job of an outbox message."""
    message = msgspec.json.decode(raw, type=OutboxMessage)
    return message.job if message.raw is None else replace(message.job, data=message.raw)


def is_in_outbox(batch: Batch, job_id: int) -> bool:
    """Whether a job is still in the outbox of this shard."""
    name = name_of(str(batch.shard_info.number), str(job_id))
    return name in batch.rows_of(OUTBOX, [name])


def deliver_pending(batch: Batch) -> None:
    """Have the messages of the outbox delivered; on a single store, add their jobs."""
    outbox = dict(sorted(batch.rows_of(OUTBOX).items())[:MAX_MESSAGES])
    if not batch.shard_info.is_only_store:
        batch.outbox |= outbox
        return
    for name, raw in outbox.items():
        batch.keep()
        try:
            add_one(batch, read(raw), follows=True)
            batch.rows[OUTBOX, name] = None
        except HoldfastError:
            # A job that cannot be added must not block the others.
            batch.drop()


def deliver(batch: Batch, command: DeliverJob) -> list[int]:
    """Add a job that another shard has sent; see `DeliverJob`."""
    return [add_one(batch, command.job, follows=True)]


def delivered(batch: Batch, command: RemoveMessage) -> None:
    """Remove an outbox message; see `RemoveMessage`."""
    batch.rows[OUTBOX, command.name] = None
