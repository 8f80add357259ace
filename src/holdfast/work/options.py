"""How a worker works: all that can be said when one is started."""

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works."""

    names: tuple[str, ...]
    store: str | None = None
    tasks: tuple[str, ...] = ()
    # At least so many executors, and at most; 0: no more than that.
    processes: int = 1
    most_processes: int = 0
    shrink_s: float = 30.0
    threads: int = 1
    lease_ms: int = 60_000
    drain_s: float = 30.0
    until_empty: bool = False
    burst_s: float = 0.0
    # Sizes in bytes; 0: none.
    memory_limit: int = 0
    max_growth: int = 0
    max_jobs: int = 0
    health_file: str = ""
    reload: bool = False
