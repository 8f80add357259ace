"""Pointers: at the home of a unique key, which job in another shard holds it. See docs/decisions/0010."""

from collections.abc import Collection

import msgspec

from ...core.job import Record
from ...core.kinds import POINTER, name_of
from ...core.unique import UniqueKey
from ..contract import ReadTxn


class Pointer(Record, frozen=True, kw_only=True):
    """To which job, and since when. `version` is that of a job about to be put back, 0 of one to be added."""

    job_id: int
    taken_ms: int
    version: int = 0


def pointer_name(key: UniqueKey) -> str:
    """What the record of a key's pointer is called."""
    return name_of(*key)


def read_pointer(raw: bytes) -> Pointer:
    """A pointer from its record."""
    return msgspec.json.decode(raw, type=Pointer)


def pointed(txn: ReadTxn, keys: Collection[UniqueKey]) -> dict[UniqueKey, int]:
    """To which jobs these keys point, whether those hold them or not."""
    names = {pointer_name(key): key for key in keys}
    found = txn.records(POINTER, list(names)) if names else {}
    return {names[name]: read_pointer(raw).job_id for name, raw in found.items()}
