"""Detects a second SQLite library that opens the file in this process, and protects the file from it.

POSIX locks belong to a process and a file. Two copies of SQLite in a process do not see each other's, and
closing *any* descriptor of a file drops all locks of the process on it:

    db    SHARED, held while a connection is open    without it another process that closes last deletes
                                                     the log, and later commits go to the deleted file
    shm   IN USE, held while a connection is open    without it a process that opens the file truncates the
                                                     index of the log; closing -shm also drops the write
                                                     lock of a running transaction

Five measures together ensure that no acknowledged commit is lost:

    asked      a file that a second library has open is not opened, if that library tells (apsw)
    pinned     both locks are taken again as open file description locks on SQLite's own descriptors
               (`F_OFD_SETLK`). These stay until those descriptors are closed, whatever else is closed
    fenced     if a second library is loaded, it cannot open the file during a transaction: it would need
               SQLite's PENDING byte. Before, it is searched for: each library opens -shm once
    checked    before and after each COMMIT: IN USE was not dropped, as every library does when it closes the
               file. If it was, this process can no longer use the file. Many processes hold IN USE, and only
               /proc tells which. So each process locks another byte of -shm too, its own byte: that lock is
               dropped together with IN USE, and one system call tells whether it is held
    compared   at the beginning of each batch and after its COMMIT: file, log and index are those that were
               opened. They are compared only if their folder has changed since

Linux shows a process its descriptors and their locks in /proc; elsewhere only the files are compared.
"""

import fcntl
import os
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from os import pread, stat
from pathlib import Path
from time import sleep
from typing import Any

from ...core.errors import StoreError, Unavailable
from ..common.clock import monotonic_s, system_clock
from .connection import Values
from .errors import not_writable

# The bytes that SQLite locks: in the database file PENDING, taken for a moment before SHARED, and the range
# of SHARED; in the -shm file IN USE.
PENDING_BYTE = 0x40000000
SHARED_BYTE, SHARED_BYTES = 0x40000002, 510
IN_USE_BYTE = 128
# Other processes hold PENDING for microseconds, unless they are suspended meanwhile.
FENCE_PATIENCE_S = 5.0
FENCE_PAUSE_S = 0.000_2
# A library opens -shm about 0.1 ms after its first lock on the file.
SETTLE_S = 0.001
# A descriptor has at most two locks of SQLite's in the file and nine in -shm, of some 70 bytes each.
FDINFO_BYTES = 4096
# The own byte of a process is this byte of -shm plus the process id, far behind all bytes that SQLite uses.
FIRST_OWN_BYTE = 1 << 40
# A folder's ctime is as coarse as the kernel's clock: after such a recent change another one may not show.
SETTLED_MS = 100
# Instead of a ctime: the folder cannot be read; the files were not checked, or a change may not show.
NO_FOLDER, NOT_CHECKED = -1, -2

# The Python modules that contain another copy of SQLite than Python's own, which the store uses.
OTHERS = ("apsw", "pysqlite3", "sqlcipher3")

SECOND = "a second SQLite library of this process has the file open"
DROPPED = "a second SQLite library of this process has dropped the locks of the store's"
WAY_OUT = "use one SQLite library in a process, and restart this one: see docs/sqlite.md"

Inode = tuple[int, int]


def _lock_record(kind: int, byte: int, size: int, pid: int = 0) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, size, pid)


# Releases PENDING.
UNFENCE = _lock_record(fcntl.F_UNLCK, PENDING_BYTE, 1)


class LocksLost(StoreError):
    """The file can no longer be used safely by this process."""

    def __init__(self, path: Path, what: str, *, committed: bool = False) -> None:
        done = "whether the last batch was kept is not known" if committed else "nothing was written"
        super().__init__(f"{path}: {what}; {done}; {WAY_OUT}")


class StoreFolder:
    """Shows cheaply whether files of the store's folder may have been created, removed or replaced.

    By the folder's ctime, which unlike its mtime cannot be set back.
    """

    def __init__(self, path: Path) -> None:
        self._name = str(path.parent)
        # The ctime that was read last, and the one at which the files were checked.
        self.seen_ns, self._checked_ns = NO_FOLDER, NOT_CHECKED

    def is_unchanged(self) -> bool:
        """Whether nothing has changed since the files were checked."""
        try:
            seen_ns = stat(self._name).st_ctime_ns  # noqa: PTH116 - twice for each commit
        except OSError:
            seen_ns = NO_FOLDER
        self.seen_ns = seen_ns
        return seen_ns == self._checked_ns

    def note_checked(self) -> None:
        """The files were checked, after `is_unchanged` was called."""
        self._checked_ns = self.settled_ns()

    def settled_ns(self) -> int:
        """The ctime that was read last, if each later change will show; otherwise NOT_CHECKED."""
        is_settled = system_clock() - self.seen_ns // 1_000_000 > SETTLED_MS
        return self.seen_ns if is_settled and self.seen_ns != NO_FOLDER else NOT_CHECKED


class LockGuard:
    """The locks and the log of one open store. One thread at a time changes it; any may call `check`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log, self._shm = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
        self.folder = StoreFolder(path)
        self._inode: Inode = (0, 0)
        self._log_inode: Inode = (0, 0)
        self._shm_inode: Inode = (0, 0)
        self._pins: list[_Pin] = []
        # The /proc file with the locks of the descriptor that has IN USE; that descriptor; the question
        # whether the own byte is locked, and the answer if this process has locked it.
        self._in_use = self._shm_fd = -1
        self._asked = self._held = b""
        self._known: set[int] = set()
        # The descriptor of the current fence; -1: none.
        self.fence_fd = -1

    def admit(self) -> None:
        """Raise `LocksLost` if two libraries have had the file open at once in this process."""
        if what := _spoiled.get((self._path, self._inode)):
            raise LocksLost(self._path, what)

    def before_open(self) -> None:
        """Raise `LocksLost` if another library has the file open, or had it open together with ours."""
        self._inode = inode_of(self._path)
        self.admit()
        # A library that is missed here is found by `watch`.
        if _is_open_in_apsw(self._inode):
            raise LocksLost(self._path, SECOND)

    def watch(self) -> None:
        """Pin the locks of connections that were just opened."""
        self.release()
        self._inode = inode_of(self._path)
        files, shms = self._descriptors()
        self._log_inode, self._shm_inode, self._known = inode_of(self._log), inode_of(self._shm), set(files)
        if len(shms) > 1:
            raise self._spoil(SECOND)
        for fds, byte, size in ((files, SHARED_BYTE, SHARED_BYTES), (shms, IN_USE_BYTE, 1)):
            for fd in fds:
                if _has_lock(fd, byte):
                    self._pins.append(_Pin(fd, byte, size))
                    self._pins[-1].take()
        if shms and _has_lock(shms[0], IN_USE_BYTE):
            self._in_use = os.open(_info(shms[0]), os.O_RDONLY | os.O_CLOEXEC)
            self._lock_own_byte(shms[0])

    def fence(self) -> None:
        """Keep the libraries in OTHERS out until `unfence`; raise `LocksLost` if one has the file open.

        Only for the thread that holds the lock of the write queue.
        """
        if not self._pins:
            return
        until_s = monotonic_s() + FENCE_PATIENCE_S
        # Set before the lock is taken: a KeyboardInterrupt may come right after.
        self.fence_fd = fd = self._pins[0].fd
        while not _set_lock(fd, fcntl.F_WRLCK, PENDING_BYTE, 1):
            if not os.access(self._path, os.W_OK):
                self.fence_fd = -1
                raise not_writable(self._path)
            if monotonic_s() > until_s:
                self.fence_fd = -1
                raise Unavailable(
                    f"{self._path}: another process has been opening it for {FENCE_PATIENCE_S:g} s; try again"
                )
            sleep(FENCE_PAUSE_S)
        self._look_for_others()

    def unfence(self) -> None:
        """Let other libraries open the file again."""
        if self.fence_fd >= 0:
            fcntl.fcntl(self.fence_fd, fcntl.F_OFD_SETLK, UNFENCE)
            self.fence_fd = -1

    def _lock_own_byte(self, fd: int) -> None:
        byte, pid = FIRST_OWN_BYTE + os.getpid(), os.getpid()
        fcntl.fcntl(fd, fcntl.F_SETLK, _lock_record(fcntl.F_RDLCK, byte, 1))
        self._shm_fd, self._asked = fd, _lock_record(fcntl.F_WRLCK, byte, 1)
        self._held = _lock_record(fcntl.F_RDLCK, byte, 1, pid)

    def _has_own_byte(self) -> bool:
        """Whether this process has all its locks on -shm; False: they must be looked up."""
        if self._in_use < 0:
            return True
        try:
            return fcntl.fcntl(self._shm_fd, fcntl.F_OFD_GETLK, self._asked) == self._held
        except OSError:  # the descriptor is closed
            return False

    def commit(
        self,
        execute: Callable[..., object],
        sql: str = "COMMIT",
        values: Values = (),
        *,
        looks: bool = True,
    ) -> bool:
        """Run a statement that commits, with `check` after it and (`looks`) before, if anything has changed.

        False: something in the folder of the store has changed.
        """
        if looks and not self._has_own_byte():
            self.check()
        execute(sql, values)
        # The folder in any case: `notify` compares what is seen of it after the COMMIT.
        is_unchanged = self.folder.is_unchanged()
        if not (is_unchanged and self._has_own_byte()):
            self.check(committed=True)
        return is_unchanged

    def check(self, *, committed: bool = False) -> None:
        """Raise `StoreError` if log or index was replaced, or another library has had the file open."""
        if inode_of(self._log) != self._log_inode:
            raise LocksLost(self._path, f"its log {self._log.name} was removed", committed=committed)
        if inode_of(self._shm) != self._shm_inode:
            # The next process to open the file makes an index of its own, and overwrites our part of the log.
            raise LocksLost(self._path, f"the index {self._shm.name} was removed", committed=committed)
        if self._in_use < 0:
            return
        if not _shows_lock(_read(self._in_use), IN_USE_BYTE):
            raise self._spoil(DROPPED, committed=committed)

    def _look_for_others(self) -> None:
        if not any(map(_may_have_files, OTHERS)):
            return
        files, shms = self._descriptors()
        if not self._known.issuperset(files):
            # It may be a library that has passed the fence but not opened -shm yet.
            sleep(SETTLE_S)
            files, shms = self._descriptors()
        self._known = set(files)
        if len(shms) > 1:
            raise self._spoil(SECOND)

    def _descriptors(self) -> tuple[list[int], list[int]]:
        """The descriptors of this process for the file and for its -shm."""
        files, shms = _descriptors(inode_of(self._path), inode_of(self._shm))
        return files, shms

    def _spoil(self, what: str, *, committed: bool = False) -> LocksLost:
        _spoiled[self._path, self._inode] = what
        return LocksLost(self._path, what, committed=committed)

    def release(self) -> None:
        """Unpin, before the last connection is closed and SQLite deletes the log."""
        self.unfence()
        while self._pins:
            self._pins.pop().release()
        self.forget()

    def keep_pinned(self) -> bool:
        """Pin before closing connections whose locks are gone; return whether they can be closed safely.

        Then SQLite cannot lock the whole file: it neither copies a log that may be an old one into the file
        nor deletes it. And connections of another library keep the locks that our closing drops.
        """
        self.unfence()
        files, shms = self._descriptors()
        for fds, byte, size in ((files, SHARED_BYTE, SHARED_BYTES), (shms, IN_USE_BYTE, 1)):
            for fd in fds:
                _set_lock(fd, fcntl.F_RDLCK, byte, size)
        pinned = bool(self._pins)
        self.forget()
        return pinned

    def forget(self) -> None:
        """Stop checking; pinned locks stay."""
        # First: after a KeyboardInterrupt the descriptor must not be closed twice, as its number may be
        # reused.
        in_use, self._in_use = self._in_use, -1
        self.fence_fd, self._pins = -1, []
        if in_use >= 0:
            os.close(in_use)


# Files that two libraries have had open at once in this process, and how that was detected.
_spoiled: dict[tuple[Path, Inode], str] = {}


class _Pin:
    """One lock on a descriptor, which several stores of the file may share."""

    _count: Counter[tuple[Inode, int]] = Counter()
    _lock = threading.Lock()

    def __init__(self, fd: int, byte: int, size: int) -> None:
        self.fd, self._byte, self._size = fd, byte, size
        stat = os.fstat(fd)
        self._inode = (stat.st_dev, stat.st_ino)
        self._is_counted = False

    def take(self) -> None:
        with self._lock:
            self._count[self._inode, self.fd] += 1
            self._is_counted = True
            _set_lock(self.fd, fcntl.F_RDLCK, self._byte, self._size)

    def release(self) -> None:
        with self._lock:
            if not self._is_counted:
                return
            self._is_counted = False
            self._count[self._inode, self.fd] -= 1
            if self._count[self._inode, self.fd]:
                return
            del self._count[self._inode, self.fd]
            if self.fd in _descriptors(self._inode)[0]:
                _set_lock(self.fd, fcntl.F_UNLCK, self._byte, self._size)


def inode_of(path: Path) -> Inode:
    """Device and inode of a file; (0, 0): there is none."""
    try:
        found = stat(path)  # noqa: PTH116 - for each commit
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _set_lock(fd: int, kind: int, byte: int, size: int) -> bool:
    """Lock or unlock bytes for a descriptor instead of the process; False if that fails."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _lock_record(kind, byte, size))
    except (OSError, AttributeError):
        return False
    return True


def _info(fd: int) -> str:
    return f"/proc/self/fdinfo/{fd}"


def _has_lock(fd: int, byte: int) -> bool:
    """Whether the process holds a lock on a byte that was taken through this descriptor."""
    try:
        info = os.open(_info(fd), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _shows_lock(_read(info), byte)
    finally:
        os.close(info)


def _read(info: int) -> bytes:
    try:
        return pread(info, FDINFO_BYTES, 0)
    except OSError:  # the descriptor is closed
        return b""


def _shows_lock(text: bytes, byte: int) -> bool:
    # lock:   1: POSIX  ADVISORY  READ 4711 fe:00:1234 128 128
    for line in text.splitlines():
        if line.startswith(b"lock:"):
            words = line.split()
            if words[2] == b"POSIX" and int(words[-2]) <= byte <= _last_byte(words[-1]):
                return True
    return False


def _last_byte(word: bytes) -> int:
    return sys.maxsize if word == b"EOF" else int(word)


def _descriptors(*inodes: Inode) -> list[list[int]]:
    """The descriptors of this process for each of the files, if the system can list them."""
    found: dict[Inode, list[int]] = {inode: [] for inode in inodes}
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - names alone
    except OSError:
        return [[] for _ in inodes]
    for fd in numbers:
        try:
            stat = os.fstat(fd)
        except OSError:  # closed since, such as that of the list itself
            continue
        if (stat.st_dev, stat.st_ino) in found:
            found[stat.st_dev, stat.st_ino].append(fd)
    return [found[inode] for inode in inodes]


def _is_open_in_apsw(inode: Inode) -> bool:
    """Whether apsw has a connection to a file; one that another thread is using just now is missed."""
    apsw: Any = sys.modules.get("apsw")
    for connection in [] if apsw is None else apsw.connections():
        with suppress(apsw.Error):
            if (name := connection.filename) and inode_of(Path(name)) == inode != (0, 0):
                return True
    return False


def _may_have_files(library: str) -> bool:
    """Whether a library may have files open: it is loaded and, if that can be found out, has connections."""
    module: Any = sys.modules.get(library)
    return module is not None and bool(getattr(module, "connections", lambda: True)())
