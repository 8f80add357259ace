"""Unique keys whose holder is in another shard than the key's home. See docs/decisions/0010.

The home of a key has a pointer to such a job; the job's own shard has the record of the holder. Only that
shard knows whether the pointer is still true, and a transaction here cannot read it. So it fails with
`Elsewhere`, and the router, which has all shards, continues.
"""

from collections.abc import Collection

from ...core.errors import HoldfastError
from ...core.kinds import POINTER
from ...core.slots import slot_of_key
from ...core.unique import UniqueKey
from ...store.common.pointers import Pointer, pointer_name, read_pointer
from ..shard_info import ShardInfo
from .working_set import WorkingSet


class Elsewhere(HoldfastError):
    """A key that points to a job in another shard. Only the router handles it."""

    code = "ELSEWHERE"

    def __init__(self, key: UniqueKey, job_id: int) -> None:
        self.key, self.job_id = key, job_id
        super().__init__(f"a unique key is held, or was, by job {job_id} in another shard")


def find(batch: WorkingSet, key: UniqueKey) -> Pointer | None:
    """The pointer of a key to a job in another shard, if this shard is the key's home."""
    if batch.shard_info.is_only_store or not batch.shard_info.has_slot(slot_of_key(key)):
        return None
    name = pointer_name(key)
    raw = batch.rows_of(POINTER, [name]).get(name)
    pointer = read_pointer(raw) if raw else None
    # After a move to fewer shards it may point to a job in this shard, whose own record decides.
    return None if pointer is None or batch.shard_info.has_slot(pointer.job_id) else pointer


def check(batch: WorkingSet, key: UniqueKey) -> None:
    """Raise `Elsewhere` if a pointer names a holder in another shard."""
    pointer = find(batch, key)
    if pointer is not None:
        raise Elsewhere(key, pointer.job_id)


def away(shard_info: ShardInfo, keys: Collection[UniqueKey]) -> list[UniqueKey]:
    """The keys whose home is another shard."""
    return (
        [] if shard_info.is_only_store else [key for key in keys if not shard_info.has_slot(slot_of_key(key))]
    )
