"""Repairs unreadable records and repeats the call that found them."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ...core.damage import UNREADABLE
from ...core.errors import StoreCorrupt
from ...core.job import Job

T = TypeVar("T")
_decode = msgspec.json.Decoder(Job).decode


def call_with_repair(call: Callable[[], T], repair: Callable[[], int], where: object) -> T:
    """Return `call()`, called again after `repair` if it finds an unreadable record.

    `repair` replaces unreadable records of jobs by readable ones (`core.damage`) and returns their number. If
    that is 0, or the second call fails too, `StoreCorrupt` is raised.
    """
    try:
        return call()
    except UNREADABLE as error:
        fault = error
    if repair():
        try:
            return call()
        except UNREADABLE as error:
            fault = error
    raise beyond_repair(where, fault) from fault


def is_job(record: str | bytes, job_id: int) -> bool:
    """Whether a record can be read, and is that of this job."""
    try:
        return _decode(record).id == job_id
    except UNREADABLE:
        return False


def beyond_repair(where: object, fault: Exception) -> StoreCorrupt:
    """The error for damage that cannot be repaired."""
    return StoreCorrupt(
        f"{where} is damaged: a record that is not a job's cannot be read ({fault.__class__.__name__}); "
        "restore a backup"
    )
