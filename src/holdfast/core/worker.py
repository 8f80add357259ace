"""The registration of a worker: what it runs, where it is, and until when it counts as alive."""

from msgspec.structs import replace

from .job import Record


class Served(Record, frozen=True, kw_only=True):
    """The tasks that a worker runs for a tenant; `tenant` None: for all tenants."""

    tenant: str | None = ""
    tasks: tuple[str, ...] = ()
    # It also runs every task with a handler in the store.
    handlers: bool = False


class Worker(Record, frozen=True, kw_only=True):
    """The registration of a worker. The worker writes it when something has changed, and otherwise rarely."""

    name: str
    host: str
    pid: int
    started_at: int
    serves: tuple[Served, ...] = ()
    processes: int = 1
    threads: int = 1
    done: int = 0
    running: int = 0
    # The path of its health file, for `doctor --worker`; "": none.
    health: str = ""
    # When this was written, and until when it is valid; 0: as long as the store sees its process.
    said_at: int = 0
    until_ms: int = 0
    # Whether it was asked to stop; the store keeps it, whatever the worker says.
    stopping: bool = False
    # The sysid of the process that claims its jobs: its own, or that of a server. The store fills it in.
    owner: int = 0


def narrow(worker: Worker, tenant: str) -> Worker | None:
    """A worker as a tenant may see it; None if it does not serve the tenant.

    If a worker also serves others, the tenant sees only its name and the tenant's own tasks: its host and its
    load would reveal something about the others.
    """
    own = tuple(replace(one, tenant=tenant) for one in worker.serves if one.tenant in (None, tenant))
    if not own:
        return None
    if all(one.tenant == tenant for one in worker.serves):
        return worker
    return replace(worker, serves=own, host="", pid=0, health="", done=0, running=0)


def runs_handlers(worker: Worker, tenant: str) -> bool:
    """Whether a worker runs the stored handlers of a tenant."""
    return any(served.handlers and served.tenant in (None, tenant) for served in worker.serves)


def runs_task(worker: Worker, tenant: str, task: str, *, is_handled: bool) -> bool:
    """Whether a worker runs the jobs of a tenant's task; `is_handled`: the store has a handler for it."""
    named = any(served.tenant in (None, tenant) and task in served.tasks for served in worker.serves)
    return named or (is_handled and runs_handlers(worker, tenant))
