"""Unique keys whose job lives in another shard than the key's home. See docs/decisions/0010.

The home of a key keeps a pointer to such a job, and the job's own shard the record of who holds the key.
Whether a pointer still is true can only be told there, which a transaction here cannot wait for: it ends
in `Elsewhere`, and whoever has all shards goes on.
"""

from collections.abc import Collection

from ...core.errors import HoldfastError
from ...core.slots import slot_of_key
from ...core.unique import UniqueKey
from ...store.sharded.keys import Pointer, pointer_name, read_pointer
from ..records import POINTER
from ..shard_info import ShardInfo
from .working_set import WorkingSet


class Elsewhere(HoldfastError):
    """A key that points to a job in another shard. Seen by nobody but the router."""

    code = "ELSEWHERE"

    def __init__(self, key: UniqueKey, job_id: int) -> None:
        self.key, self.job_id = key, job_id
        super().__init__(f"a unique key is held, or was, by job {job_id} in another shard")


def find(batch: WorkingSet, key: UniqueKey) -> Pointer | None:
    """To which job in another shard a key points, where this is its home."""
    if batch.shard_info.is_only_store or not batch.shard_info.has_slot(slot_of_key(key)):
        return None
    name = pointer_name(key)
    raw = batch.rows_of(POINTER, [name]).get(name)
    pointer = read_pointer(raw) if raw else None
    # Where shards were made fewer it may point to one's neighbour, whose own record is all that counts.
    return None if pointer is None or batch.shard_info.has_slot(pointer.job_id) else pointer


def check(batch: WorkingSet, key: UniqueKey) -> None:
    """Go on only if the key is not held, as far as can be told from here."""
    pointer = find(batch, key)
    if pointer is not None:
        raise Elsewhere(key, pointer.job_id)


def away(shard_info: ShardInfo, keys: Collection[UniqueKey]) -> list[UniqueKey]:
    """Those of the keys that are at home in another shard."""
    return (
        [] if shard_info.is_only_store else [key for key in keys if not shard_info.has_slot(slot_of_key(key))]
    )
