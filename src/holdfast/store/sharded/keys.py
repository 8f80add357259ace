"""Pointers: at the home of a unique key, which job in another shard holds it. See docs/decisions/0010."""

from collections.abc import Collection, Iterable

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


def holding(holders: Iterable[Unique]) -> Unique:
    """Of those that hold one key, each in its shard, the one that does so now, or else the longest."""
    return max(holders, key=lambda one: (not one.until_ms, one.until_ms, one.job_id))
