"""How processes that share a file wake each other: a Unix socket for each that waits.

The sockets lie in a folder beside the file, `NAME-wake/`. Telling is one datagram of one byte to each
of them, and nothing at all where nobody waits. It is a hint: whoever misses it finds out by itself a
moment later, from the file.

The folder is there while a process waits, and the last store to close removes it. A process that is killed
leaves its socket behind until another store sends to it or closes.
"""

import errno
import os
import select
import socket
import threading
from itertools import count
from pathlib import Path
from typing import Any

from ..common.clock import monotonic_s, system_clock
from ..common.nudge import Nudge

# What a socket's address has room for; longer ones go by way of a number of the folder.
ADDRESS_BYTES = 107
# A folder's time has the grain of the kernel's clock: what changed this recently may change again
# without showing.
SETTLED_MS = 100

# What is said: that there may be something to claim, or only that something has ended or a log has moved.
WORK, END = b"!", b"."

_numbers = count()


class Wake:
    """One store's ear and mouth."""

    def __init__(self, path: Path) -> None:
        self.folder = path.with_name(path.name + "-wake")
        self._name = f"{os.getpid()}-{next(_numbers)}"
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._deaf = False
        self._folder_fd = -1
        self._nudge = Nudge()
        self._lock = threading.Lock()
        self._waiting = threading.Lock()
        self._listing: tuple[int, list[str]] = (-1, [])
        # Whether to wake for ends alone.
        self.heeds_ends = True

    def wait(self, timeout_s: float) -> bool:
        """Sleep until told, interrupted or out of time; True unless it is the last."""
        if not self._waiting.acquire(timeout=max(timeout_s, 0.0)):
            return False
        try:
            return self._wait(timeout_s)
        finally:
            self._waiting.release()

    def _wait(self, timeout_s: float) -> bool:
        ear, until_s = self._opened(), monotonic_s() + timeout_s
        watched: list[Any] = [self._nudge, ear] if ear is not None else [self._nudge]
        while not self._nudge.is_given:
            ready, _, _ = select.select(watched, [], [], max(until_s - monotonic_s(), 0.0))
            if not ready:
                return False
            if self._nudge not in ready and self._heard(ear):
                return True
        self._nudge.take()
        self._heard(ear)
        return True

    def interrupt(self) -> None:
        """Wake our own `wait`, or the next one."""
        self._nudge.give()

    def tell(self, *, ends: bool = False) -> None:
        """Wake all others that wait; `ends`: only those that heed ends."""
        for name in self._others():
            with self._lock:
                if self._mouth is None:
                    self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                    self._mouth.setblocking(False)
                self._send(self._mouth, name, END if ends else WORK)

    def stale(self) -> list[str]:
        """Remove the sockets of processes that are gone, and say which they were."""
        before = self._names()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mouth:
            mouth.setblocking(False)
            return [name for name in before if name != self._name and not self._send(mouth, name)]

    def close(self) -> None:
        """Stop listening, once nobody waits any more."""
        self.interrupt()
        with self._waiting, self._lock:
            self._tidy()
            self.abandon()

    def abandon(self) -> None:
        """Close what is open, in a forked child: the socket's name is still its parent's."""
        for end in (self._ear, self._mouth):
            if end is not None:
                end.close()
        self._nudge.close()
        self._forget_folder()
        self._ear = self._mouth = None

    def _tidy(self) -> None:
        """Remove our socket and those of dead processes, and then the folder, unless others listen there."""
        try:
            for name in self._names():
                if name == self._name or self._is_dead(name):
                    (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # there is none, or another process listens there
            pass

    def _is_dead(self, name: str) -> bool:
        """Whether no process is behind a socket. Connecting tells, and wakes none."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(self._address(name))
            except ConnectionRefusedError:
                return True
            except OSError:  # gone meanwhile, or not ours to ask
                pass
        return False

    def _opened(self) -> socket.socket | None:
        with self._lock:
            if self._ear is None and not self._deaf:
                self._ear = self._bound()
                self._deaf = self._ear is None
            return self._ear

    def _bound(self) -> socket.socket | None:
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ear.setblocking(False)
        for _ in range(3):  # the folder may be tidied away between the two steps
            try:
                self.folder.mkdir(exist_ok=True)
                ear.bind(self._address(self._name))
                return ear
            except FileNotFoundError:
                self._forget_folder()
            except OSError:
                break
        ear.close()
        return None

    def _address(self, name: str) -> str:
        path = str(self.folder / name)
        if len(os.fsencode(path)) <= ADDRESS_BYTES:
            return path
        if self._folder_fd < 0:
            self._folder_fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._folder_fd}/{name}"

    def _heard(self, ear: socket.socket | None) -> bool:
        """Take in what was said; whether any of it is heeded."""
        words = set()
        try:
            while ear is not None:
                words.add(ear.recv(1))
        except BlockingIOError:
            pass
        return bool(words if self.heeds_ends else words - {END})

    def _names(self) -> list[str]:
        try:
            return [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return []

    def _others(self) -> list[str]:
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except OSError:
            return []
        if changed_ns != self._listing[0]:
            names = [name for name in self._names() if name != self._name]
            settled = system_clock() - changed_ns // 1_000_000 > SETTLED_MS
            self._listing = (changed_ns if settled else -1, names)
        return self._listing[1]

    def _send(self, mouth: socket.socket, name: str, word: bytes = WORK) -> bool:
        """Send a byte; False, and the socket removed, where nobody is behind it any more."""
        try:
            mouth.sendto(word, self._address(name))
        except ConnectionRefusedError:
            (self.folder / name).unlink(missing_ok=True)
            return False
        except OSError as error:
            # Full: it has enough to wake up for. Gone, or not ours to write to: so be it.
            if error.errno == errno.ENOENT:
                self._forget_folder()
                return False
        return True

    def _forget_folder(self) -> None:
        # It may have been tidied away and made anew, under the same name but another number.
        if self._folder_fd >= 0:
            os.close(self._folder_fd)
            self._folder_fd = -1
