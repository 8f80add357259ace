"""The health file of a worker: its supervisor rewrites it every second, and `holdfast doctor` reads it.

That the process exists proves nothing: its event loop must run, and the store must answer its claims.

    the file is old                     the supervisor is stopped, stuck or gone
    the last claim failed               it cannot claim
    no executor, none can be started    it cannot run jobs
    no claim was answered for long      the store does not answer, unless all its executors are full
"""

import os
from pathlib import Path

import msgspec

from ..core.errors import NotFound, Unavailable
from ..core.units import counted

WRITE_S = 1.0
# The maximum age of the file, and of the last reply to a claim (which waits five seconds for a job).
STALE_MS = 6_000
SILENT_MS = 12_000


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the health file. Times are milliseconds since 1970."""

    pid: int
    name: str
    written_at: int
    # When the store last answered a claim, with a job or without.
    claimed_at: int
    # No executor has capacity, so nothing is claimed.
    full: bool = False
    # The worker is stopping, so nothing is claimed.
    draining: bool = False
    executors: int = 0
    running: int = 0
    done: int = 0
    store_error: str = ""
    start_error: str = ""


def write(path: Path, health: Health) -> None:
    """Replace the file atomically."""
    draft = path.with_name(f"{path.name}.{health.pid}")
    try:
        draft.write_bytes(msgspec.json.encode(health))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def remove(path: Path) -> None:
    """Remove the file of a worker that ends."""
    path.unlink(missing_ok=True)


def read(path: Path) -> Health:
    """Read the file; raises `NotFound`, or `Unavailable` if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Health)
    except FileNotFoundError:
        raise NotFound("health file", path) from None
    except (OSError, msgspec.DecodeError) as error:
        raise Unavailable(f"the health file {path} cannot be read: {error}") from None


def complaint(health: Health, *, now_ms: int) -> str:
    """What is wrong with a worker, in a sentence; "" if it is healthy."""
    age_s, silent_s = (now_ms - health.written_at) / 1000, (now_ms - health.claimed_at) / 1000
    if now_ms - health.written_at > STALE_MS:
        there = "is there, but has" if _process_exists(health.pid) else "is gone; it has"
        return f"its supervisor {there} not written down how it is for {age_s:.0f} s"
    if health.store_error:
        return f"its store does not let it claim: {health.store_error}"
    if not health.executors and health.start_error:
        return f"none of its executors can be started: {health.start_error}"
    if now_ms - health.claimed_at > SILENT_MS and not (health.full or health.draining):
        return f"its store has not answered a claim for {silent_s:.0f} s"
    return ""


def summary(health: Health, *, now_ms: int) -> str:
    """What a healthy worker does, in a sentence."""
    what = "stops" if health.draining else "is full" if health.full else "claims"
    ago = max((now_ms - health.claimed_at) / 1000, 0.0)
    jobs = counted(health.running, "job")
    return f"it {what} and has {jobs} running; the store last answered a claim {ago:.1f} s ago"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
