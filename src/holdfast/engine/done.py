"""What a transaction leaves besides its replies."""

from typing import Any

from ..core.job import Job
from ..core.unique import UniqueKey
from .batch.holders import Freed


class Done:
    """The replies of a transaction, and what follows from it in this process and for others."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        # Something may be claimed, or has ended: those who wait should look.
        self.woke = False
        self.ended: set[int] = set()
        # A consumer or a log has moved.
        self.news = False
        # Defaults of tasks have changed.
        self.published = False
        # When something next becomes true by itself; known after claims and upkeep only.
        self.next_ms: int | None = None
        # Jobs on their way to another shard, by the names of their letters.
        self.letters: dict[str, bytes] = {}
        # Keys that are at home in another shard, and that ended jobs have let go here.
        self.freed: dict[UniqueKey, Freed] = {}
        # What the engine remembers once it is committed.
        self.next_upkeep_ms: int | None = None
        self.upkept_ms: int | None = None
        self.retention_ms: int | None = None
        self.now_ms = 0
        # Jobs that were lost or expired, before and after.
        self.unreported: list[tuple[Job, Job]] = []
