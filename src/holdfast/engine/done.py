"""The result of a transaction."""

from collections.abc import Sequence
from typing import Any

from ..core.job import Job
from ..core.unique import UniqueKey
from ..store.contract import NewJobs
from .batch.holders import Freed


class Done:
    """The replies of a transaction, and what must be done after its commit."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        # A job became claimable or has ended: wake up waiting claims.
        self.woke = False
        self.ended: set[int] = set()
        # The progress of a consumer, or a log, has changed.
        self.news = False
        # Defaults of tasks have changed.
        self.published = False
        # When a job or upkeep is next due; known only after claims and upkeep.
        self.next_ms: int | None = None
        # Outbox messages to deliver to other shards, by name.
        self.outbox: dict[str, bytes] = {}
        # Unique keys of other shards that jobs ended here have freed.
        self.freed: dict[UniqueKey, Freed] = {}
        # What the engine caches after the commit.
        self.next_upkeep_ms: int | None = None
        self.upkept_ms: int | None = None
        self.retention_ms: int | None = None
        self.now_ms = 0
        # Jobs that were added, to be logged.
        self.added: Sequence[NewJobs] = ()
        # Jobs that were lost or have expired, before and after, to be logged.
        self.unreported: list[tuple[Job, Job]] = []
