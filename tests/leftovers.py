"""What a test leaves running: threads and child processes that were not there before it."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path

# How long a thread or process that is on its way out may take before it counts as left behind.
GRACE_SECONDS = 60.0

# In the command of a server that all tests of this process share.
SHARED = "holdfast-shared-"

# Python's own helpers, and those servers, which live until the interpreter ends.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", SHARED)


class Leftovers:
    """Remembers what runs now, and later tells what runs beyond that."""

    def __init__(self) -> None:
        self.threads = set(_threads())
        self.children = _children()

    def wait(self, grace_seconds: float = GRACE_SECONDS) -> list[str]:
        """Give the newcomers a moment to end, then describe those that have not; processes are killed."""
        until = time.monotonic() + grace_seconds
        threads = [
            thread for thread in _threads() if thread not in self.threads and not _joined(thread, until)
        ]
        children = [
            pid
            for pid in sorted(_children() - self.children)
            if not any(helper in _command(pid) for helper in HELPERS) and not _ended(pid, until)
        ]
        told = [f"thread {thread.name}" for thread in threads]
        told += [f"process {pid}: {_command(pid)}" for pid in children]
        _kill(children)
        return told


def _threads() -> list[threading.Thread]:
    """The threads that somebody must end: ours, and those that would keep the interpreter alive."""
    return [t for t in threading.enumerate() if not t.daemon or t.name.startswith("holdfast")]


def _children() -> set[int]:
    pids: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            pids.update(map(int, task.read_text().split()))
        except OSError:  # the thread has just ended
            continue
    return pids


def _joined(thread: threading.Thread, until: float) -> bool:
    while time.monotonic() < until:
        try:
            thread.join(max(0.0, until - time.monotonic()))
            break
        except RuntimeError:
            # Another thread is starting it.
            time.sleep(0.001)
    return not thread.is_alive()


def _ended(pid: int, until: float) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], max(0.0, until - time.monotonic()))[0])
    finally:
        os.close(process)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue
