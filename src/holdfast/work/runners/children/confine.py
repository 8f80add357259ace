"""The first program of a context: gives up privileges, sets limits, and becomes the interpreter.

    python -I -S confine.py SETTINGS COMMAND …

SETTINGS is JSON: `requests` and `replies`, the descriptors that become 3 and 4; `limits`, by their names in
`resource`; `user`, the id to run as, or null; and `walled`, whether bubblewrap has done the rest. It uses the
standard library only, because nothing else may be readable here.
"""

import fcntl
import json
import os
import resource
import signal
import sys
from typing import Any

# Above the descriptors that are set here.
FIRST_FREE_FD = 10
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


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


def load_libc() -> Any:
    """The C library, loaded while this process can still read the standard library."""
    import ctypes

    return ctypes.CDLL(None)


def main() -> None:
    """Confine this process, then run the command in it."""
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    move_descriptors(settings["requests"], settings["replies"])
    libc = None if settings["walled"] else load_libc()
    if settings["user"] is not None:
        drop_user(settings["user"])
    if libc is not None:
        # After the change of the user, which resets them.
        set_process_flags(libc)
    os.umask(0o077)
    # The executor ignores these, and programs inherit what is ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    set_limits(settings["limits"])
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
