"""Files that a supervisor shares with an executor: locks of jobs that start, and the dump of its stacks.

The locks decide whether a delivered job starts in its executor, or goes back to the supervisor.
Each delivered job has a number, which is a byte of a file that both processes have open. The executor locks
that byte before the first line of the handler; the supervisor locks it to take the job back. Whichever locks
it first has the job. The kernel decides, so the supervisor needs no answer: the executor may have blocked its
event loop, hold its interpreter lock or be stopped.

    executor    try_lock(7) ──▶ True: run job 7          supervisor    try_lock(8) ──▶ True: job 8 is back
                try_lock(8) ──▶ False: drop job 8                      try_lock(7) ──▶ False: it has started

Locks of an open file description last until it is closed in every process. The supervisor keeps the
description of the executor open too, so after a crash the locks still say which jobs had started.

The kernel joins neighbouring locks of one description, and looks through all that are left for each new one.
So when the executor has dropped a job, its byte becomes one of the executor's: in the end these are one lock.

The stacks are those of an executor that cannot answer, because a handler holds the interpreter lock. The
supervisor sends a signal. `faulthandler`, which needs no lock, writes the stacks of all threads to the file.
It does so too before a signal such as SIGSEGV ends the process.
"""

import contextlib
import faulthandler
import fcntl
import os
import signal
import struct
import sys

# struct flock: its fields are in another order on macOS.
_FLOCK = struct.Struct("hhqqi0q" if sys.platform == "linux" else "qqihh")


def _pack_lock(number: int, kind: int = fcntl.F_WRLCK) -> bytes:
    if sys.platform == "linux":
        return _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0)
    return _FLOCK.pack(number, 1, 0, kind, os.SEEK_SET)


class StartLocks:
    """The locks of one process. They are released when every process has closed the file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def try_lock(self, number: int) -> bool:
        """Lock the job of this number; False if the other process has it. Thread-safe."""
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _pack_lock(number))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def is_taken(self, number: int) -> bool:
        """Whether the other process has the job of this number."""
        found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _pack_lock(number))
        kind: int = _FLOCK.unpack(found)[0 if sys.platform == "linux" else 3]
        return kind != fcntl.F_UNLCK


class SharedStartLocks(StartLocks):
    """The locks of a supervisor, with the descriptor that its executor inherits."""

    def __init__(self) -> None:
        if sys.platform == "linux":
            self.executor_fd = os.memfd_create("holdfast-starts")
            ours = os.open(f"/proc/self/fd/{self.executor_fd}", os.O_RDWR)
        else:
            import tempfile

            with tempfile.NamedTemporaryFile() as file:
                self.executor_fd, ours = os.open(file.name, os.O_RDWR), os.open(file.name, os.O_RDWR)
        super().__init__(ours)
        self._theirs = StartLocks(self.executor_fd)

    def forget(self, number: int) -> None:
        """Give the byte of a job that the executor has dropped to the executor, which does not ask again."""
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _pack_lock(number, fcntl.F_UNLCK))
        self._theirs.try_lock(number)

    def close(self) -> None:
        """Close both descriptors, after the executor has ended."""
        os.close(self._fd)
        os.close(self.executor_fd)


# One that programs do not use. Without real-time signals, as on macOS, nothing is dumped.
SIGNAL = signal.SIGRTMIN + 7 if sys.platform == "linux" else 0
# No more of a dump is read.
DUMP_BYTES = 1 << 20


class SharedDump:
    """The file of a supervisor, with the descriptor that its executor inherits."""

    def __init__(self) -> None:
        if SIGNAL:
            self.fd = os.memfd_create("holdfast-stacks")
            fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_APPEND)
        else:
            self.fd = os.open(os.devnull, os.O_RDWR)

    def ask(self, pid: int) -> None:
        """Have the executor write its stacks; it is done in a moment, unless the process is stopped."""
        self.read()
        if SIGNAL:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, SIGNAL)

    def read(self) -> str:
        """What the executor has written since it was asked."""
        text = os.pread(self.fd, DUMP_BYTES, 0)
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
        return text.decode(errors="replace")

    def close(self) -> None:
        """Close the file, after the executor has ended."""
        os.close(self.fd)


def write_when_asked(fd: int) -> None:
    """Write the stacks of this process to a file at each signal of the supervisor, and at a crash."""
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd)
    if SIGNAL:
        faulthandler.register(SIGNAL, file=fd, all_threads=True)
