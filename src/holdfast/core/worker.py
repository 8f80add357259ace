"""The registration of a worker: what it runs, where it is, and until when it counts as alive."""

from msgspec.structs import replace

from .job import Record
from .units import counted


class Served(Record, frozen=True, kw_only=True):
    """The tasks that a worker runs for a tenant; `tenant` None: for all tenants."""

    tenant: str | None = ""
    tasks: tuple[str, ...] = ()
    # It also runs every task with a handler in the store.
    handlers: bool = False


class Blocker(Record, frozen=True, kw_only=True):
    """A handler that keeps an executor of a worker from starting other jobs."""

    # What it blocks: "event loop", "process", or with as many others as there are "slots" all of the worker.
    part: str
    tenant: str = ""
    # Without `job_id` the task of a batch, or the name of a coroutine.
    task: str = ""
    job_id: int = 0
    # How many other handlers run there, which may be the cause as well.
    others: int = 0
    # Of slots: the tasks that need one, and since when it has one.
    tasks: tuple[str, ...] = ()
    since: int = 0

    @property
    def effect(self) -> str:
        """What it does to its executor."""
        if self.part == "slots":
            return "has the only slot" if not self.others else f"have all {self.others + 1:,} slots"
        return "holds the process" if self.part == "process" else f"blocks the {self.part}"

    def text(self, tenant: str | None = None) -> str:
        """Which handler blocks what; to a tenant, those of others are not named."""
        job = f" (job {self.job_id})" if self.job_id else ""
        name = f"{self.task}{job}" if self.task and tenant in (None, self.tenant) else "a handler"
        others = f" or one of {counted(self.others, 'other')} there" if self.others > 0 else ""
        if self.part == "slots" and others:
            others = f" and {counted(self.others, 'other')}"
        return f"{name}{others} {self.effect}"


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
    # The handlers that block its executors.
    blocked: tuple[Blocker, ...] = ()


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
    return replace(worker, serves=own, host="", pid=0, health="", done=0, running=0, blocked=())


def runs_handlers(worker: Worker, tenant: str) -> bool:
    """Whether a worker runs the stored handlers of a tenant."""
    return any(served.handlers and served.tenant in (None, tenant) for served in worker.serves)


def runs_task(worker: Worker, tenant: str, task: str, *, is_handled: bool) -> bool:
    """Whether a worker runs the jobs of a tenant's task; `is_handled`: the store has a handler for it."""
    named = any(served.tenant in (None, tenant) and task in served.tasks for served in worker.serves)
    return named or (is_handled and runs_handlers(worker, tenant))
