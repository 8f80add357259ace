"""The backlog of a shard: its lines that the ingester has passed over while the shard is down.

    journal   ──●────────●──▶ lines        ● lines of the shard
                ▲        ▲
       position of       position of the journal: lines of other shards before it are in the store
       the backlog

A backlog copies nothing: it is a second read position on the same segments. It is deleted when it has
reached the position of the journal. See docs/decisions/0018.
"""

from collections.abc import Callable

from ..core.slots import shard_of
from .folder import JournalFolder
from .reader import JournalReader


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
