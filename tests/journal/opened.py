"""What the tests of the journal share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core import commands as c
from holdfast.core.bounds import JOURNAL_LEASE_MS
from holdfast.core.commands import TakenSysid
from holdfast.core.ids import FIRST_JOURNAL_SYSID
from holdfast.journal.journal import Journal
from holdfast.journal.reader import Line
from holdfast.store.common.clock import system_clock

SOON_MS = 60_000


@contextmanager
def opened(path: Path, clock: Callable[[], int] = system_clock) -> Iterator[Journal]:
    """A journal with a number, which no store has leased."""
    journal = Journal(path, clock=clock)
    try:
        if journal.ids.kept is None:
            journal.ids.adopt(leased(clock))
        yield journal
    finally:
        journal.close()


def leased(clock: Callable[[], int] = system_clock, number: int = FIRST_JOURNAL_SYSID) -> TakenSysid:
    """A number as a store leases it."""
    return TakenSysid(number=number, token="test", ids_until_ms=clock() + JOURNAL_LEASE_MS)


def add(journal: Journal, *bodies: Any, **options: Any) -> list[int]:
    """Add jobs of one task."""
    new = c.NewJob(task="work", data=bodies[0], **options)
    return journal.add(c.Add(jobs=(new,), more=tuple(bodies[1:])))


def take(journal: Journal, most: int = 1_000_000) -> list[Line]:
    """Read the next lines, and say that they are safe."""
    token = journal.read_reserve(most, SOON_MS)
    lines = journal.read(token)
    journal.rsync(token)
    return lines


def data(lines: list[Line]) -> list[Any]:
    """The data of lines."""
    return [line.data for line in lines]
