"""Pointers: rows in a unique key's home shard that name the job in another shard that holds the key.

See docs/decisions/0010.
"""

from collections.abc import Collection

import msgspec

from ...core.job import Record
from ...core.kinds import POINTER, name_of
from ...core.unique import Unique, UniqueKey
from ..contract import ReadTxn


class Pointer(Record, frozen=True, kw_only=True):
    """The holder of a key, and since when. `version`: of a job to be requeued; 0: a job to be added."""

    job_id: int
    taken_ms: int
    version: int = 0


def pointer_name(key: UniqueKey) -> str:
    """The key of a pointer's row: the same as that of the unique key's row."""
    return name_of(*key)


def read_pointer(raw: bytes) -> Pointer:
    """Decode a pointer."""
    return msgspec.json.decode(raw, type=Pointer)


def pointed(txn: ReadTxn, names: Collection[str]) -> dict[str, int]:
    """The job ids in the pointers with these row keys, whether the jobs still hold the unique key or not."""
    found = txn.rows(POINTER, names) if names else {}
    return {name: read_pointer(raw).job_id for name, raw in found.items()}


def held_until(holder: Unique) -> tuple[bool, int, int]:
    """The sort key by which the true holder of a unique key is the greatest of those found in the shards.

    That is the job that holds it without an end, or else the longest: the others have expired, but were not
    yet deleted.
    """
    return not holder.until_ms, holder.until_ms, holder.job_id
