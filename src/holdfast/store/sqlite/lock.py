"""The queue of writers of a file, across processes.

SQLite waits for its write lock by sleeping and trying again, which is slow and unfair. So a writer first
locks a side file, `NAME-lock`, whose queue the kernel keeps. Then SQLite's lock is free, unless it is held by
a connection that does not queue: one that `borrow` was given, or that of another program.
"""

import _thread
import fcntl
import os
import threading
from pathlib import Path
from time import sleep

from ...core.errors import Unavailable, WouldBlock
from ..common.clock import monotonic_s
from .connection import ERRORS, SqliteConnection
from .errors import is_busy, system_faults

# How long to wait for a transaction of this same process before raising an error: as long as `sqlite3` waits
# by default. SQLite does not tell whether it is that of the thread that waits here, for ever then.
OWN_TRANSACTION_S = 5.0
# How often the lock is tried before a thread is started to wait in the kernel's queue.
QUICK_TRIES = 4
QUICK_S = 0.000_1
# The byte of the -shm file by which SQLite locks the write-ahead log for writing; without such a log it locks
# a byte of the file itself.
WRITE_LOCK_BYTE, RESERVED_BYTE = 120, 0x40000001

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


# The flags of `flock` to lock without waiting.
NOW = fcntl.LOCK_EX | fcntl.LOCK_NB


class WriteQueue:
    """The lock between processes. One thread at a time takes and releases it.

    A KeyboardInterrupt may come between any two steps. So a thread that has called `take` releases the lock
    in a `finally`, directly by `flock(queue.fd, LOCK_UN)` where that must not be skipped.
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
        """Wait for the lock; raise `Unavailable` after `patience_s`."""
        if not self.try_take():
            self.wait()

    def try_take(self) -> bool:
        """Take the lock if it is free, or becomes free within a few tries."""
        self.open()
        for _ in range(QUICK_TRIES):
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
                # The thread closes the descriptor that it then has.
                self.fd, waiter.fd = waiter.fd, self.fd
                return
        finally:
            waiter.left.release()
        raise Unavailable(
            f"{self.path} has been locked for {self.patience_s:g} s: another process is writing and does "
            "not end; see who holds it with lslocks, and try again"
        )

    def give(self) -> None:
        """Release the lock."""
        # Explicitly: closing the file would not release it while a forked child has it open too.
        if self.fd >= 0:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the side file. It is not deleted: that would split the queue."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class _Waiter:
    """A thread that waits in `flock`, which cannot be cancelled, with its own descriptor of the file.

    At its end it closes the descriptor that it then has; `WriteQueue.wait` exchanges it if the lock was
    taken.
    """

    def __init__(self, path: Path) -> None:
        self._taken, self.left = threading.Lock(), threading.Lock()
        self._taken.acquire()
        self.left.acquire()
        self.fd = os.open(path, _OPEN_FLAGS, 0o666)

    def wait(self, patience_s: float) -> bool:
        """Return whether the lock was taken in time; if not, the thread releases it as soon as it gets it."""
        # Not `threading`, whose own locks a KeyboardInterrupt may leave locked.
        _thread.start_new_thread(self._run, ())
        return self._taken.acquire(timeout=patience_s)

    def _run(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        self._taken.release()
        self.left.acquire()
        os.close(self.fd)


def begin(
    connection: SqliteConnection,
    path: Path,
    patience_s: float,
    *,
    statement: str = "BEGIN IMMEDIATE",
) -> None:
    """Begin a write transaction, or run another statement, waiting for connections that do not queue."""
    started, pause_s, own_since = monotonic_s(), 0.000_5, 0.0
    while True:
        try:
            connection.rows(statement)
            return
        except ERRORS as error:
            if not is_busy(error):
                raise
        now = monotonic_s()
        own_since = (own_since or now) if holds_write_lock(path) else 0.0
        if own_since and now - own_since > OWN_TRANSACTION_S:
            raise WouldBlock(
                f"{path} has been locked for {OWN_TRANSACTION_S:g} s by a write transaction of this process: "
                "if that is your own, pass its connection as connection= or commit it first; "
                "if that is of another thread, commit it sooner there"
            )
        if now - started > patience_s:
            raise Unavailable(
                f"{path} has been locked for {patience_s:g} s by a transaction of another program; try again"
            )
        sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)


def holds_write_lock(path: Path) -> bool:
    """Whether a connection of this process is in a write transaction on the file; False if unknown."""
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return False
    shm = path.with_name(path.name + "-shm")
    return _holds_lock(locks, shm, WRITE_LOCK_BYTE) or _holds_lock(locks, path, RESERVED_BYTE)


def _holds_lock(locks: list[list[str]], path: Path, byte: int) -> bool:
    """Whether the lines of /proc/locks say that this process has locked a byte of a file for writing."""
    try:
        file = path.stat()
    except OSError:
        return False
    where = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for words in locks:
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 120 120
        if len(words) >= 8 and words[1:2] + words[3:6] == ["POSIX", "WRITE", str(os.getpid()), where]:
            first, last = int(words[6]), words[7]
            if first <= byte and (last == "EOF" or int(last) >= byte):
                return True
    return False
