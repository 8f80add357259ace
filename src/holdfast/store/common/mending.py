"""Calls that meet a record which cannot be read: it is mended once, then they are made again."""

from collections.abc import Callable
from typing import TypeVar

from ...core.damage import UNREADABLE
from ...core.errors import StoreCorrupt

T = TypeVar("T")


def mended(call: Callable[[], T], mend: Callable[[], int], where: object) -> T:
    """What `call` returns, made again after `mend` has mended records; `StoreCorrupt` if there were none.

    `mend` replaces records of jobs that cannot be read by ones that can (`core.damage`); it returns how many.
    """
    try:
        return call()
    except UNREADABLE as error:
        fault = error
    if mend():
        try:
            return call()
        except UNREADABLE as error:
            fault = error
    raise beyond_repair(where, fault) from fault


def beyond_repair(where: object, fault: Exception) -> StoreCorrupt:
    """What is raised where there was nothing to mend."""
    return StoreCorrupt(
        f"{where} is damaged: a record that is not a job's cannot be read ({fault.__class__.__name__}); "
        "restore a backup"
    )
