"""Options of a worker."""

import msgspec

from .logs import LogOptions

# In which `holdfast serve` names the store to the workers that it starts. All users of the machine see the
# arguments of a process, and the address may have a password.
SERVED_STORE = "HOLDFAST_SERVED_STORE"
# The name by which a supervisor asks for the handlers of its first store is @handlers:0, and so on.
HANDLERS_NAME = "@handlers"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a worker, from its command line."""

    names: tuple[str, ...]
    # Whether to run the handlers in the stores too, and the file with the settings of their runners.
    handlers: bool = False
    runners: str = ""
    # Whether http handlers may reach private networks, unless the file says.
    private_hosts: bool = False
    # Stores to use instead of those of the queues; several with handlers alone.
    stores: tuple[str, ...] = ()
    # The folder of a journal for the jobs that its handlers add; "": they are added to the store.
    journal: str = ""
    # Whether to create a store that does not exist.
    create: bool = False
    tasks: tuple[str, ...] = ()
    # The minimum and maximum number of executors; maximum 0: the minimum.
    processes: int = 1
    most_processes: int = 0
    shrink_s: float = 30.0
    # Functions and coroutines that run at once in each executor.
    threads: int = 1
    concurrency: int = 100
    # Jobs of stored handlers that run at once in each executor.
    handler_slots: int = 8
    # Empty: each queue's own tenant; `*`: all.
    tenants: tuple[str, ...] = ()
    scheduler: str = "fair"
    weights: dict[str, float] = {}
    lease_ms: int = 60_000
    # How long to wait at the start for a store that is unavailable.
    wait_s: float = 60.0
    drain_s: float = 30.0
    until_empty: bool = False
    burst_s: float = 0.0
    # Sizes in bytes; 0: no limit.
    memory_limit: int = 0
    max_growth: int = 0
    max_jobs: int = 0
    health_file: str = ""
    reload: bool = False
    log: LogOptions = LogOptions()

    @property
    def at_once(self) -> int:
        """How many functions, or jobs of stored handlers alone, run at once in each executor."""
        return self.handler_slots if self.handlers and not self.names else self.threads

    @property
    def executor_names(self) -> tuple[str, ...]:
        """The queues that executors open, by name; those of stored handlers are the last."""
        stored = [f"{HANDLERS_NAME}:{at}" for at in range(len(self.stores))] if self.handlers else []
        return (*self.names, *stored)

    @property
    def slots_for_handlers(self) -> int:
        """The jobs of stored handlers that run at once in each executor; 0: it runs none."""
        return self.handler_slots if self.handlers else 0
