"""The stacks of an executor that cannot answer, because a handler holds the interpreter lock.

The supervisor sends a signal. `faulthandler`, which needs no lock, writes the stacks of all threads to a file
that both processes have open.
"""

import contextlib
import faulthandler
import fcntl
import os
import signal
import sys

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
    """Write the stacks of this process to a file at each signal of the supervisor."""
    if SIGNAL:
        faulthandler.register(SIGNAL, file=fd, all_threads=True)
