"""Whose turn it is to write: one queue for all processes that share a file.

SQLite's own way of waiting for the write lock is to sleep and try again, which is slow and unfair.
So whoever wants to write first locks a side file, `NAME-lock`, where the kernel keeps the queue, and
then finds SQLite's lock free, unless somebody holds it who does not queue: the caller of a borrowed
connection, or another program.
"""

import _thread
import fcntl
import os
import threading
from pathlib import Path
from time import sleep

from ...core.errors import Unavailable, WouldBlock
from ..common.clock import monotonic_s
from .connection import Driver, SqliteConnection
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


# How `flock` is asked for our turn, if nobody has it.
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


class WriteQueue:
    """The lock between processes. Taken and given back by one thread at a time.

    An interrupt may come between any two steps: whoever has taken it, or tried to, gives it back in a
    `finally`, by `flock(queue.fd, LOCK_UN)` where it must not fail to.
    """

    def __init__(self, path: Path, patience_s: float) -> None:
        self.path = path.with_name(path.name + "-lock")
        self.patience_s = patience_s
        self.fd = -1

    def open(self) -> None:
        """Open the side file, if it is not open."""
        if self.fd < 0:
            with system_faults(self.path):
                self.fd = os.open(self.path, _OPEN_FLAGS, 0o666)

    def take(self) -> None:
        """Wait for our turn, but not for ever: `Unavailable`."""
        if not self.try_take():
            self.wait()

    def try_take(self) -> bool:
        """Take our turn if nobody has it, or not for long."""
        self.open()
        for _ in range(QUICK_LOOKS):
            try:
                fcntl.flock(self.fd, NOW)
                return True
            except BlockingIOError:
                sleep(QUICK_S)
        return False

    def wait(self) -> None:
        """Wait in the kernel's queue."""
        with system_faults(self.path):
            waiter = _Waiter(self.path)
        try:
            if waiter.wait(self.patience_s):
                # The thread closes what it then has.
                self.fd, waiter.fd = waiter.fd, self.fd
                return
        finally:
            waiter.left.release()
        raise Unavailable(
            f"{self.path} has been locked for {self.patience_s:g} s: another process is writing and does "
            "not end; see who holds it with lslocks, and try again"
        )

    def give(self) -> None:
        """Let the next one write."""
        # Said aloud: closing the file would not be enough while a forked child has it open too.
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the side file, which stays: to delete it would split the queue."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class _Waiter:
    """A thread that waits where waiting cannot be given up: with its own hold on the file.

    In the end it closes the file that it has then: another one, where its own was taken from it.
    """

    def __init__(self, path: Path) -> None:
        self._taken, self.left = threading.Lock(), threading.Lock()
        self._taken.acquire()
        self.left.acquire()
        self.fd = os.open(path, _OPEN_FLAGS, 0o666)

    def wait(self, patience_s: float) -> bool:
        """Whether the file is locked; if not in time, the thread lets go as soon as it gets it."""
        # Not by `threading`, whose own locks an interrupt may leave locked.
        _thread.start_new_thread(self._run, ())
        return self._taken.acquire(timeout=patience_s)

    def _run(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        self._taken.release()
        self.left.acquire()
        os.close(self.fd)


def begin(driver: Driver, connection: SqliteConnection, path: Path, patience_s: float) -> None:
    """Open a write transaction, waiting for those who do not queue."""
    started, pause_s, own_since = monotonic_s(), 0.000_5, 0.0
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
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
