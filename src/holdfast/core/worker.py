"""A worker as it makes itself known: what it can run, where it is, and until when it is taken for alive."""

from .job import Record


class Served(Record, frozen=True, kw_only=True):
    """Whose jobs of which tasks a worker runs; `tenant` None: everybody's."""

    tenant: str | None = ""
    tasks: tuple[str, ...] = ()


class Worker(Record, frozen=True, kw_only=True):
    """What a worker says of itself. It says it again when something has changed, and else seldom."""

    name: str
    host: str
    pid: int
    started_at: int
    serves: tuple[Served, ...] = ()
    processes: int = 1
    threads: int = 1
    done: int = 0
    running: int = 0
    # Where it writes down how it is, for `doctor --worker`; "": nowhere.
    health: str = ""
    # When this was said, and until when it holds; 0: as long as the store sees its process.
    said_at: int = 0
    until_ms: int = 0


def knows(worker: Worker, tenant: str, task: str) -> bool:
    """Whether a worker runs a tenant's jobs of a task."""
    return any(served.tenant in (None, tenant) and task in served.tasks for served in worker.serves)
