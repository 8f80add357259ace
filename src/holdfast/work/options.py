"""How a worker works: all that can be said when one is started."""

import msgspec

from .logs import LogOptions


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    names: tuple[str, ...]
    store: str | None = None
    # Whether to create a store that is not there.
    create: bool = False
    tasks: tuple[str, ...] = ()
    # At least so many executors, and at most; 0: no more than that.
    processes: int = 1
    most_processes: int = 0
    shrink_s: float = 30.0
    # Functions and coroutines at once in each.
    threads: int = 1
    concurrency: int = 100
    # None named: each queue's own; `*`: all.
    tenants: tuple[str, ...] = ()
    scheduler: str = "fair"
    weights: dict[str, float] = {}
    lease_ms: int = 60_000
    # How long a store that cannot be used yet is waited for at the start.
    wait_s: float = 60.0
    drain_s: float = 30.0
    until_empty: bool = False
    burst_s: float = 0.0
    # Sizes in bytes; 0: none.
    memory_limit: int = 0
    max_growth: int = 0
    max_jobs: int = 0
    health_file: str = ""
    reload: bool = False
    log: LogOptions = LogOptions()
