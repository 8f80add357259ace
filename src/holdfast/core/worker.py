"""A worker as it makes itself known: what it can run, where it is, and until when it is taken for alive."""

from msgspec.structs import replace

from .job import Record


class Served(Record, frozen=True, kw_only=True):
    """Whose jobs of which tasks a worker runs; `tenant` None: everybody's."""

    tenant: str | None = ""
    tasks: tuple[str, ...] = ()
    # And every task that has a handler in the store.
    handlers: bool = False


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


def narrow(worker: Worker, tenant: str) -> Worker | None:
    """A worker as a tenant may see it, or None if it does not serve it.

    Of a worker that serves others too the tenant sees its name and its own tasks: where it runs and how busy
    it is would tell of the others.
    """
    own = tuple(replace(one, tenant=tenant) for one in worker.serves if one.tenant in (None, tenant))
    if not own:
        return None
    if all(one.tenant == tenant for one in worker.serves):
        return worker
    return replace(worker, serves=own, host="", pid=0, health="", done=0, running=0)


def runs_handlers(worker: Worker, tenant: str) -> bool:
    """Whether a worker runs the handlers of a tenant that are in the store."""
    return any(served.handlers and served.tenant in (None, tenant) for served in worker.serves)


def knows(worker: Worker, tenant: str, task: str, *, is_handled: bool) -> bool:
    """Whether a worker runs a tenant's jobs of a task; `is_handled`: the store has a handler for it."""
    named = any(served.tenant in (None, tenant) and task in served.tasks for served in worker.serves)
    return named or (is_handled and runs_handlers(worker, tenant))
