"""What is in a journal, seen from outside, and the backlogs of shards that are down.

To look changes nothing, and the journal's process may go on meanwhile. A backlog has the lines of a shard
that the ingester has passed over while the shard is down.

    journal   ──●────────●──▶ lines        ● lines of the shard
                ▲        ▲
       position of       position of the journal: lines of other shards before it are in the store
       the backlog

A backlog copies nothing: it is a second read position on the same segments. It is deleted when it has reached
the position of the journal. See docs/decisions/0018.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from ..core.errors import NotFound
from ..core.ids import unpack
from ..core.job import Record
from ..core.slots import shard_of
from ..store.common.clock import system_clock
from .folder import JournalFolder, JournalPlace
from .reader import JournalReader
from .segment import Damaged, Headless, Incomplete, Malformed, Segment, count_jobs, decode_runs


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
    # Ids run ahead of the clock, by up to a minute.
    waiting, oldest_ms = 0, 0
    for count, first_id in _waiting(folder):
        waiting += count
        oldest_ms = oldest_ms or min(unpack(first_id).time_ms, system_clock())
    kept, position = folder.read_sysid(), folder.read_position() or JournalPlace(0, 0, 0)
    return JournalStatus(
        path=str(folder.path),
        owner=folder.owner() or 0,
        segments=len(sizes),
        bytes=sum(sizes),
        waiting=waiting,
        oldest_ms=oldest_ms,
        read_segment=position.segment,
        read_offset=position.offset,
        sysid=kept.number if kept and kept.ids_until_ms else 0,
        ids_until_ms=kept.ids_until_ms if kept else 0,
        refused=sum(1 for _ in folder.refused()),
        damaged=len(folder.damaged()),
    )


def _waiting(folder: JournalFolder) -> Iterator[tuple[int, int]]:
    """Of each group how many lines are not in the store, and the first id; backlogs of shards count too."""
    position = folder.read_position() or JournalPlace(0, 0, 0)
    behind = [
        (folder.read_position(backlog_name(*one)) or JournalPlace(0, 0, 0), *one) for one in folder.backlogs()
    ]
    first = min([position, *(place for place, _, _ in behind)])
    for number in folder.segments():
        if number < first.segment:
            continue
        with suppress(FileNotFoundError, Headless):
            segment = Segment(folder.segment_path(number))
            start = first.offset if number == first.segment else 0
            try:
                for offset, raw in _groups(segment, max(start, segment.first)):
                    with suppress(Malformed):
                        if JournalPlace(number, offset, 0) >= position:
                            # Without looking at each line: there may be millions.
                            yield count_jobs(raw)
                            continue
                        ids = [one for run in decode_runs(raw) for one in run.ids]
                        for line, job_id in enumerate(ids):
                            place = JournalPlace(number, offset, line)
                            if place >= position or any(
                                place >= since and shard_of(job_id, of) == shard
                                for since, shard, of in behind
                            ):
                                yield 1, job_id
            finally:
                segment.close()


def _groups(segment: Segment, offset: int) -> Iterator[tuple[int, bytes]]:
    end = segment.size
    while offset < end:
        try:
            raw, following = segment.read_group(offset, end)
        except (Incomplete, Damaged):
            offset = segment.find_group(offset + 1, end)
            continue
        yield offset, raw
        offset = following


class Backlog:
    """The lines of one shard, from the first that is not known to be in the store."""

    def __init__(
        self, folder: JournalFolder, end: Callable[[], tuple[int, int]], shard: int, of: int
    ) -> None:
        self.shard, self.of = shard, of
        self._folder, self._name = folder, backlog_name(shard, of)
        self.reader = JournalReader(folder, end, name=self._name, wants=self.has)
        # Why its shard could not be used at the last try; None: it could, or was not tried.
        self.outage: Exception | None = None

    @property
    def title(self) -> str:
        """The shard, for people."""
        return f"shard {self.shard} of {self.of}"

    def has(self, job_id: int) -> bool:
        """Whether a job is of this shard."""
        return shard_of(job_id, self.of) == self.shard

    def delete(self) -> None:
        """Leave the shard to the position of the journal."""
        self.reader.close()
        self._folder.delete_position(self._name)


def backlog_name(shard: int, of: int) -> str:
    """The file of a backlog's position."""
    return f"backlog-{shard}-of-{of}"
