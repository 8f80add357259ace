"""Pointers: at the home of a unique key, which job in another shard holds it. See docs/decisions/0010."""

from collections.abc import Collection

import msgspec

from ...core.job import Record
from ...core.kinds import POINTER, name_of
from ...core.unique import Unique, UniqueKey
from ..contract import ReadTxn


class Pointer(Record, frozen=True, kw_only=True):
    """To which job, and since when. `version` is that of a job about to be put back, 0 of one to be added."""

    job_id: int
    taken_ms: int
    version: int = 0


def pointer_name(key: UniqueKey) -> str:
    """The key of the row of a pointer: that of the row of the unique key."""
    return name_of(*key)


def read_pointer(raw: bytes) -> Pointer:
    """A pointer from its row."""
    return msgspec.json.decode(raw, type=Pointer)


def pointed(txn: ReadTxn, names: Collection[str]) -> dict[str, int]:
    """To which jobs the pointers of these names lead, whether those hold the key or not."""
    found = txn.rows(POINTER, names) if names else {}
    return {name: read_pointer(raw).job_id for name, raw in found.items()}


def held_until(holder: Unique) -> tuple[bool, int, int]:
    """By this the holder of a key is the greatest of all that hold it, each in its shard.

    The one that holds it now, or else the longest: the others have run out, and were not yet tidied up.
    """
    return not holder.until_ms, holder.until_ms, holder.job_id
