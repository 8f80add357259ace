"""How processes that share a file wake each other, and which are running: a Unix socket for each that waits.

The sockets lie in a folder beside the file, `NAME-wake/`. A notification is one datagram of one byte to each
of them, and nothing at all where no process waits. It is a hint: a process that misses it finds out a moment
later, from the file.

The folder is there while a process waits, and the last store to close removes it. A process that is killed
leaves its socket behind until another store sends to it or closes.

Which processes are running is shown by locked files beside the database, without a write to it.
Each process has a file in `NAME-workers/` and holds a lock on it, which ends with the process however that
ends. Unlike process ids, this works across containers that share the file, and names are never reused.
"""

import errno
import fcntl
import os
import threading
from itertools import count
from os import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.clock import monotonic_s, system_clock
from ..common.interrupts import import_all
from ..common.waker import Waker, wait_readable
from .guard import NOT_CHECKED, SETTLED_MS, StoreFolder

if TYPE_CHECKING:
    import socket


# The longest address of a socket; longer paths go through a descriptor of the folder.
ADDRESS_BYTES = 107

# The notifications: there may be jobs to claim; or there are only completions or log appends.
_JOBS, _ENDS = b"!", b"."

_numbers = count()


def _datagram_socket() -> "socket.socket":
    import_all(["socket"])
    import socket

    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


class SqliteNotifier:
    """One store's sockets: one to be woken by, and one to wake others."""

    def __init__(self, path: Path) -> None:
        self.folder = path.with_name(path.name + "-wake")
        self._folder_name = str(self.folder)
        self.name = f"{os.getpid()}-{next(_numbers)}"
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._cannot_receive = False
        self._folder_fd = -1
        self._waker = Waker()
        self._lock = threading.Lock()
        self._waiting = threading.Lock()
        # The last known mtime of the folder, and the other processes' sockets in it: name and address.
        self._listing: tuple[int, list[tuple[str, str]]] = (-1, [])
        # The ctime of the store's folder when there was no folder of sockets in it.
        self._absent_ns = NOT_CHECKED

    def wait(self, timeout_s: float, *, ends: bool = True) -> bool | None:
        """Sleep until notified or interrupted; None after the time-out, False if it was only interrupted.

        `ends`: whether it also wakes up on completions and log appends.
        """
        with self._waiting:
            receiver, until_s = self._opened(), monotonic_s() + timeout_s
            watched: list[Any] = [self._waker, receiver] if receiver is not None else [self._waker]
            while not self._waker.is_set:
                ready = wait_readable(watched, max(until_s - monotonic_s(), 0.0))
                if not ready:
                    return None
                if self._waker in ready:
                    # Even if its flag is not set: an earlier `clear` may have come between flag and byte.
                    break
                if self._is_notified(receiver, ends):
                    return True
            self._waker.clear()
            return self._is_notified(receiver, ends)

    def interrupt(self) -> None:
        """Wake up this store's own `wait`, or the next one."""
        self._waker.wake()

    def notify(self, parent: StoreFolder, *, ends: bool) -> None:
        """Wake up the other waiting processes; `ends`: only those that also wait for completions.

        `parent` is the folder of the store, in which the folder of sockets appears.
        """
        if parent.seen_ns == self._absent_ns:
            return
        try:
            changed_ns = stat(self._folder_name).st_mtime_ns  # noqa: PTH116 - for each commit
        except OSError:  # no process waits
            self._absent_ns = parent.settled_ns()
            return
        if changed_ns != self._listing[0]:
            others = [(name, self._address(name)) for name in self._names() if name != self.name]
            settled = system_clock() - changed_ns // 1_000_000 > SETTLED_MS
            self._listing = (changed_ns if settled else -1, others)
        for name, address in self._listing[1]:
            with self._lock:
                if self._sender is None:
                    self._sender = _datagram_socket()
                    self._sender.setblocking(False)
                self._send(self._sender, name, address, _ENDS if ends else _JOBS)

    def remove_stale(self) -> list[str]:
        """Remove the sockets of processes that have ended, and return their names."""
        others = [name for name in self._names() if name != self.name]
        with _datagram_socket() as sender:
            sender.setblocking(False)
            return [name for name in others if not self._send(sender, name, self._address(name), _JOBS)]

    def close(self) -> None:
        """Stop listening, after the last `wait` has returned."""
        self.interrupt()
        with self._waiting, self._lock:
            self._tidy()
            self._waker.close()
            self._close_sockets()

    def abandon(self) -> None:
        """Close the sockets in a forked child; the socket's file stays, as it is the parent's."""
        self._waker.forget()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for end in (self._receiver, self._sender):
            if end is not None:
                end.close()
        self._forget_folder()
        self._receiver = self._sender = None

    def _tidy(self) -> None:
        """Remove our socket and those of dead processes, and then the folder, unless others listen there."""
        try:
            for name in self._names():
                if name == self.name or self._is_dead(name):
                    (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # there is none, or another process listens there
            pass

    def _is_dead(self, name: str) -> bool:
        """Whether the process of a socket has ended. Connecting shows it, without waking the process."""
        with _datagram_socket() as probe:
            try:
                probe.connect(self._address(name))
            except ConnectionRefusedError:
                return True
            except OSError:  # removed meanwhile, or no permission
                pass
        return False

    def _opened(self) -> "socket.socket | None":
        with self._lock:
            if self._receiver is None and not self._cannot_receive:
                self._receiver = self._bound()
                self._cannot_receive = self._receiver is None
            return self._receiver

    def _bound(self) -> "socket.socket | None":
        receiver = _datagram_socket()
        receiver.setblocking(False)
        for _ in range(3):  # the folder may be removed between the two steps
            try:
                self.folder.mkdir(exist_ok=True)
                receiver.bind(self._address(self.name))
                return receiver
            except FileNotFoundError:
                self._forget_folder()
            except OSError:
                break
        receiver.close()
        return None

    def _address(self, name: str) -> str:
        path = str(self.folder / name)
        if len(os.fsencode(path)) <= ADDRESS_BYTES:
            return path
        if self._folder_fd < 0:
            self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder_fd}/{name}"

    def _is_notified(self, receiver: "socket.socket | None", ends: bool) -> bool:
        """Receive all notifications; return whether one of them is to wake this `wait`."""
        sent = set()
        try:
            while receiver is not None:
                sent.add(receiver.recv(1))
        except BlockingIOError:
            pass
        return bool(sent if ends else sent - {_ENDS})

    def _names(self) -> list[str]:
        try:
            return [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return []

    def _send(self, sender: "socket.socket", name: str, address: str, byte: bytes) -> bool:
        """Send a byte; if the process has ended, remove its socket and return False."""
        try:
            sender.sendto(byte, address)
        except ConnectionRefusedError:
            (self.folder / name).unlink(missing_ok=True)
            return False
        except OSError as error:
            # A full socket will wake up its process anyway. One that is gone or not writable is skipped.
            if error.errno == errno.ENOENT:
                self._forget_folder()
                return False
        return True

    def _forget_folder(self) -> None:
        # It may have been removed and created again, as another inode.
        self._listing = (-1, [])
        fd, self._folder_fd = self._folder_fd, -1
        if fd >= 0:
            os.close(fd)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class SqlitePresence:
    """The files of one store in `NAME-workers/`."""

    def __init__(self, path: Path) -> None:
        self.folder = path.with_name(path.name + "-workers")
        self._held: dict[str, int] = {}

    def appear(self, name: str) -> bool:
        """Create and lock the file of a unique name; False if that is not possible."""
        if name not in self._held:
            if (fd := self._lock_file(name)) is None:
                return False
            self._held[name] = fd
        return True

    def keep(self) -> None:
        """Create the files again that another program has removed."""
        for name in list(self._held):
            # Not by pathlib, which raises an error about a folder that this user may not enter.
            if not os.path.exists(self.folder / name):  # noqa: PTH110
                fd = self._lock_file(name)
                if fd is not None:
                    os.close(self._held[name])
                    self._held[name] = fd

    def _lock_file(self, name: str) -> int | None:
        """The descriptor of the locked file of a name; None if it cannot be created."""
        for _ in range(3):  # the folder may be removed between the two steps
            try:
                self.folder.mkdir(exist_ok=True)
                fd = os.open(self.folder / name, _FLAGS, 0o666)
            except FileNotFoundError:
                continue
            except OSError:
                break
            # No other process knows the file yet, so this does not block.
            fcntl.flock(fd, fcntl.LOCK_EX)
            return fd
        return None

    def sees(self, name: str) -> bool:
        """Whether the process with this name is running; the file of one that has ended is removed."""
        if name in self._held:
            return True
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # no permission: it may be running
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        self._tidy(name)
        return False

    def close(self) -> None:
        """Remove the store's files."""
        for name in self._held:
            self._tidy(name)
        self.abandon()

    def abandon(self) -> None:
        """Close the files in a forked child without removing them: the parent still holds the locks."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _tidy(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # not empty
            pass
