"""The process of an executor, and what it shares with its supervisor.

This imports little: `holdfast worker` starts a process before it imports anything else, so that both import
at the same time. Such a process waits for `Begin`, which names the queues.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from ..shared_files import SharedDump, SharedStartLocks

# The program of an executor. Before the imports, which may take long, it has the kernel kill it when the
# supervisor ends (PR_SET_PDEATHSIG is 1), and checks that this has not happened yet.
EXECUTOR_PROGRAM = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
from holdfast.work.executor.executor import main
main()
"""


class ExecutorProcess:
    """A process, our end of its socket, and the locks that it shares."""

    def __init__(self) -> None:
        self.locks, self.dump = SharedStartLocks(), SharedDump()
        self.socket, theirs = socket.socketpair()
        fds = [theirs.fileno(), self.locks.executor_fd, self.dump.fd]
        arguments = [str(os.getpid()), *map(str, fds)]
        # Blocked until the executor handles them: Ctrl-C reaches it too, at any moment of its start.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        with theirs:
            try:
                # Always from this thread: the kernel kills the child when the thread that started it ends.
                self.process = subprocess.Popen(
                    [sys.executable, "-c", EXECUTOR_PROGRAM, *arguments], pass_fds=fds
                )
            except OSError:
                self.socket.close()
                self.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def close(self) -> None:
        """Close the files that it shares, after the process has ended."""
        self.locks.close()
        self.dump.close()


_early: list[ExecutorProcess] = []


def start_early() -> None:
    """Start a process for the worker that this process will be. It ends with this process."""
    with suppress(OSError):  # which the worker gets again
        _early.append(ExecutorProcess())


def take_process() -> ExecutorProcess:
    """The process that was started early, or a new one."""
    return _early.pop() if _early else ExecutorProcess()
