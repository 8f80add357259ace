"""What is in a journal, seen from outside: nothing is changed, and its process may go on meanwhile."""

from collections.abc import Iterator
from contextlib import suppress

from ..core.errors import NotFound
from ..core.ids import unpack
from ..core.job import Record
from .folder import JournalFolder, Place
from .records import Malformed, Run, decode_runs
from .segment import Damaged, Incomplete, Segment


class JournalStatus(Record, frozen=True, kw_only=True):
    """A journal: who uses it, and what of it is not in the store. `oldest_ms` 0: nothing is waiting."""

    path: str
    # The process that uses it; 0: none.
    owner: int
    segments: int
    bytes: int
    waiting: int
    oldest_ms: int
    # Up to where it is in the store: the segment, and the offset of the group of lines there.
    read_segment: int
    read_offset: int
    # By which number it makes ids, and until when it may without the store; 0: by none.
    sysid: int
    ids_until_ms: int
    refused: int
    damaged: int


def read_status(path: str) -> JournalStatus:
    """What is in the journal of a folder; `NotFound` if there is none."""
    folder = JournalFolder(path)
    if not (folder.path / "lock").exists():
        raise NotFound("journal in", path)
    sizes: list[int] = []
    for number in folder.segments():
        with suppress(FileNotFoundError):
            sizes.append(folder.segment_path(number).stat().st_size)
    waiting, oldest_ms = 0, 0
    for count, first_id in _waiting(folder):
        waiting += count
        oldest_ms = oldest_ms or unpack(first_id).time_ms
    kept, position = folder.read_sysid(), folder.read_position() or Place(0, 0, 0)
    return JournalStatus(
        path=str(folder.path),
        owner=folder.owner() or 0,
        segments=len(sizes),
        bytes=sum(sizes),
        waiting=waiting,
        oldest_ms=oldest_ms,
        read_segment=position.segment,
        read_offset=position.offset,
        sysid=kept.number if kept else 0,
        ids_until_ms=kept.ids_until_ms if kept else 0,
        refused=sum(1 for _ in folder.refused()),
        damaged=len(folder.damaged()),
    )


def _waiting(folder: JournalFolder) -> Iterator[tuple[int, int]]:
    """The number of lines, and the first id, of each group that was not read to its end."""
    position = folder.read_position() or Place(0, 0, 0)
    for number in folder.segments():
        if number < position.segment:
            continue
        with suppress(FileNotFoundError):
            segment = Segment(folder.segment_path(number))
            start = position if number == position.segment else Place(number, 0, 0)
            try:
                for offset, runs in _groups(segment, max(start.offset, segment.first)):
                    ids = [one for run in runs for one in run.ids]
                    ids = ids[start.line :] if offset == start.offset else ids
                    if ids:
                        yield len(ids), ids[0]
            finally:
                segment.close()


def _groups(segment: Segment, offset: int) -> Iterator[tuple[int, list[Run]]]:
    end = segment.size
    while offset < end:
        try:
            raw, following = segment.read_group(offset, end)
            runs = list(decode_runs(raw))
        except (Incomplete, Damaged, Malformed):
            offset = segment.find_group(offset + 1, end)
            continue
        yield offset, runs
        offset = following
