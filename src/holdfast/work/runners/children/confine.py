"""The first program of a context: gives up privileges, sets limits, and becomes the interpreter.

    python -I -S confine.py SETTINGS COMMAND …

SETTINGS is JSON: `requests` and `replies`, the descriptors that become 3 and 4; `limits`, by their names in
`resource`; `user`, the id to run as, or null; `filter`, the hexadecimal program of the kernel that refuses
system calls, or ""; and `walled`, whether bubblewrap is around this. Without it, this program first starts
another process for the rest, and stays as the parent of all processes that detach themselves below it: there
the executor finds them. It uses the standard library only, because nothing else may be readable here.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import Any

# Above the descriptors that are set here.
FIRST_FREE_FD = 10
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
# The size of an instruction of a filter.
INSTRUCTION_BYTES = 8


def move_descriptors(requests: int, replies: int) -> None:
    """Have the requests at 3 and the replies at 4, and close everything else that was inherited."""
    sources = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST_FREE_FD) for fd in (requests, replies)]
    for target, source in zip((3, 4), sources, strict=True):
        os.dup2(source, target, inheritable=True)
    os.closerange(5, os.sysconf("SC_OPEN_MAX"))


def set_limits(limits: dict[str, int]) -> None:
    """Set resource limits, none above what is allowed already."""
    for name, value in limits.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        hard = resource.getrlimit(number)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))


def drop_user(user: int) -> None:
    """Become another user for good, without groups."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def set_process_flags(libc: Any) -> None:
    """Gain no privileges by a program that is run, and end with the executor."""
    if sys.platform == "linux":
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stay_as_parent(libc: Any) -> None:
    """Go on in a child process; this one waits for it or SIGTERM, ends what is left, and exits as it did."""
    signal.signal(signal.SIGTERM, end_children)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if (child := os.fork()) == 0:
        return
    # Else the executor would not see that the child has closed them.
    os.closerange(0, FIRST_FREE_FD)
    while (found := os.wait())[0] != child:
        pass
    code = os.waitstatus_to_exitcode(found[1])
    end_children(code if code >= 0 else 128 - code)


def end_children(code: int, _frame: object = None) -> None:
    """Kill the processes that are or become children of this one, until there is none, and exit."""
    while True:
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            os._exit(code)


def refuse_calls(libc: Any, program: bytes) -> None:
    """Refuse system calls, here and in every program that is run; raises `OSError` if that fails."""
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HP", len(program) // INSTRUCTION_BYTES, ctypes.addressof(kept))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described) != 0:
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


def main() -> None:
    """Confine this process, then run the command in it."""
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    move_descriptors(settings["requests"], settings["replies"])
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux" and not settings["walled"]:
        stay_as_parent(libc)
    if settings["user"] is not None:
        drop_user(settings["user"])
    # After the change of the user, which resets them.
    set_process_flags(libc)
    os.umask(0o077)
    # The executor ignores these, and programs inherit what is ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    set_limits(settings["limits"])
    if settings["filter"]:
        refuse_calls(libc, bytes.fromhex(settings["filter"]))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
