"""Whose turn it is to write: one queue for all processes that share a file.

SQLite's own way of waiting for the write lock is to sleep and try again, which is slow and unfair.
So whoever wants to write first locks a side file, `NAME-lock`, where the kernel keeps the queue, and
then finds SQLite's lock free, unless somebody holds it who does not queue: the caller of a borrowed
connection, or another program.
"""

import fcntl
import os
import threading
from pathlib import Path
from time import sleep

from ...core.errors import Unavailable, WouldBlock
from ..common.clock import monotonic_s
from .connection import Driver, Link
from .errors import is_busy, system_faults

# How long a transaction of this very process may stand in our way before we say so: it may be that of
# the thread that waits for us.
OWN_TRANSACTION_S = 0.5
# A few quick looks before a thread is started to wait in the kernel's queue.
QUICK_LOOKS = 4
QUICK_S = 0.000_1
# Where SQLite keeps the write lock of a write-ahead log, as a byte of the -shm file.
WRITE_LOCK_BYTE = 120

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class WriteQueue:
    """The lock between processes. Taken and given back by one thread at a time."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self.path = path.with_name(path.name + "-lock")
        self.patience_s = patience_s
        self._fd = -1

    def take(self) -> None:
        """Wait for our turn, but not for ever: `Unavailable`."""
        if self.try_take():
            return
        with system_faults(self.path):
            fd = _Waiter(self.path).wait(self.patience_s)
        if fd < 0:
            raise Unavailable(
                f"{self.path} has been locked for {self.patience_s:g} s: another process is writing and does "
                "not end; see who holds it with lslocks, and try again"
            )
        self.close()
        self._fd = fd

    def try_take(self) -> bool:
        """Take our turn if nobody has it, or not for long."""
        with system_faults(self.path):
            if self._fd < 0:
                self._fd = os.open(self.path, _OPEN_FLAGS, 0o666)
            for _ in range(QUICK_LOOKS):
                if _tried(self._fd):
                    return True
                sleep(QUICK_S)
        return False

    def give(self) -> None:
        """Let the next one write."""
        # Said aloud: closing the file would not be enough while a forked child has it open too.
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the side file, which stays: to delete it would split the queue."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Waiter:
    """A thread that waits where waiting cannot be given up: with its own hold on the file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, _OPEN_FLAGS, 0o666)
        self._lock = threading.Lock()
        self._given_up = False
        self._taken = threading.Event()
        threading.Thread(target=self._run, name="holdfast-queue", daemon=True).start()

    def _run(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._lock:
            if self._given_up:
                os.close(self._fd)
            self._taken.set()

    def wait(self, patience_s: float) -> int:
        """The file, locked, or -1: then the thread lets go as soon as it gets it."""
        try:
            self._taken.wait(patience_s)
        except BaseException:  # such as Ctrl-C: nobody will come for the lock
            self._give_up()
            raise
        return self._fd if self._taken.is_set() else self._give_up()

    def _give_up(self) -> int:
        with self._lock:
            self._given_up = True
            if self._taken.is_set():
                os.close(self._fd)
            return -1


def begin(driver: Driver, link: Link, path: Path, patience_s: float) -> None:
    """Open a write transaction, waiting for those who do not queue."""
    started, pause_s, own_since = monotonic_s(), 0.000_5, 0.0
    while True:
        try:
            link.change("BEGIN IMMEDIATE")
            return
        except driver.errors as error:
            if not is_busy(driver, error):
                raise
        now = monotonic_s()
        own_since = (own_since or now) if holds_write_lock(path) else 0.0
        if own_since and now - own_since > OWN_TRANSACTION_S:
            raise WouldBlock(
                f"this process has an open write transaction on {path}, and waiting for it may never end: "
                "pass its connection as connection=, or commit it first"
            )
        if now - started > patience_s:
            raise Unavailable(
                f"{path} has been locked for {patience_s:g} s by a transaction of another program; try again"
            )
        sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)


def holds_write_lock(path: Path) -> bool:
    """Whether a connection of this process is in a write transaction on the file, where that can be seen."""
    try:
        shm = path.with_name(path.name + "-shm").stat()
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    where = f"{os.major(shm.st_dev):02x}:{os.minor(shm.st_dev):02x}:{shm.st_ino}"
    for line in locks.splitlines():
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 120 120
        words = line.split()
        if len(words) >= 8 and words[1:2] + words[3:6] == ["POSIX", "WRITE", str(os.getpid()), where]:
            first, last = int(words[6]), words[7]
            if first <= WRITE_LOCK_BYTE and (last == "EOF" or int(last) >= WRITE_LOCK_BYTE):
                return True
    return False


def _tried(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
