"""What operators ask beside single jobs: run a schedule now, stop a worker, how long old jobs are kept."""

from .commands import Command
from .queries import Query


class RunSchedule(Command, frozen=True, kw_only=True):
    """Add the job of a schedule now; replies its id in a list, as `Add` does.

    The schedule stays as it is: its times, its counts, and whether it is paused.
    """

    name: str
    tenant: str = ""


class StopWorker(Command, frozen=True, kw_only=True):
    """Ask a worker to finish what it runs and to end; with a `tenant` not one that serves others.

    The worker reads it with its next heartbeat.
    """

    name: str
    tenant: str | None = None


class SetRetention(Command, frozen=True, kw_only=True):
    """Set how long ended jobs are kept; 0: not at all. FAILED jobs are kept until they are dealt with."""

    retention_ms: int


class GetRetention(Query, frozen=True, kw_only=True):
    """Replies how long ended jobs are kept, in milliseconds."""
