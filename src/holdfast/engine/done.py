"""The result of a transaction."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..core.job import Job
from ..store.contract import NewJobs


class Done(msgspec.Struct, kw_only=True, eq=False):
    """The replies of a transaction, and what must be done after its commit."""

    replies: list[Any] = []
    # A job became claimable or has ended: wake up waiting claims.
    woke: bool = False
    ended: set[int] = set()
    # The progress of a consumer, or a log, has changed.
    news: bool = False
    # Defaults of tasks have changed.
    published: bool = False
    # When a job or upkeep is next due; known only after claims and upkeep.
    next_ms: int | None = None
    # What the engine caches after the commit.
    next_upkeep_ms: int | None = None
    upkept_ms: int | None = None
    retention_ms: int | None = None
    now_ms: int = 0
    # Jobs that were added, to be logged.
    added: Sequence[NewJobs] = ()
    # Jobs that were lost or have expired, before and after, to be logged.
    unreported: list[tuple[Job, Job]] = []

    def reset(self) -> None:
        """Forget everything: the transaction is run again."""
        new = Done()
        for name in self.__struct_fields__:
            setattr(self, name, getattr(new, name))
