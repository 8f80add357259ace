"""A cgroup for each context, where this process may make some: then the kernel counts and limits its memory.

Version 2 only. Processes may not be beside groups that are limited. So this needs the root of the hierarchy,
or a service with `Delegate=memory` and `DelegateSubgroup=`, whose processes are in a group below its own.
"""

import itertools
import os
import time
from pathlib import Path

from ...core.errors import BadInput

MOUNT = Path("/sys/fs/cgroup")
# The mark of systemd on a group that it leaves to its service, for the service's user and for root.
DELEGATED = ("user.delegate", "trusted.delegate")
# Puts itself into the group that its first argument names, and becomes the command in the others.
JOIN = ("/bin/sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"')
# How often a group is tried to be removed: killed processes take a moment to go.
REMOVE_ROUNDS, REMOVE_WAIT_S = 200, 0.01

_numbers = itertools.count(1)


def find_cgroup(named: str = "") -> str:
    """The group below which contexts may have theirs, or ""; raises `BadInput` if the named one fails."""
    for folder in [Path(named)] if named else _delegated_groups():
        try:
            (folder / "cgroup.subtree_control").write_text("+memory")
            ContextCgroup(str(folder), 1 << 20).remove()
        except OSError as error:
            if named:
                needed = (
                    f"a cgroup of version 2 without processes, to be limited by this user ({error.strerror})"
                )
                raise BadInput("cgroup", named, needed=needed) from None
        else:
            return str(folder)
    return ""


def _delegated_groups() -> list[Path]:
    """The group of this process and the one above it, those of them that others do not manage."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    own = next((MOUNT / line[4:] for line in lines if line.startswith("0::/")), None)
    if own is None or "memory" not in _read(MOUNT / "cgroup.controllers").split():
        return []
    return [own] if own == MOUNT else [one for one in (own.parent, own) if _is_delegated(one)]


def _is_delegated(folder: Path) -> bool:
    for name in DELEGATED:
        try:
            if os.getxattr(folder, name) == b"1":
                return True
        except OSError:
            pass  # not marked, or not to be read by this user
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


class ContextCgroup:
    """The group of one context."""

    def __init__(self, parent: str, memory_bytes: int) -> None:
        self.path = Path(parent) / f"holdfast-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            (self.path / "memory.max").write_text(str(memory_bytes))
            # Not one process alone: the others would wait for it.
            (self.path / "memory.oom.group").write_text("1")
            if (swap := self.path / "memory.swap.max").exists():
                swap.write_text("0")
        except OSError:
            self.path.rmdir()
            raise

    def join(self, command: list[str]) -> list[str]:
        """A command that runs in the group from its start."""
        return [*JOIN, str(self.path), *command]

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has killed its processes for their memory."""
        events = dict(line.split() for line in _read(self.path / "memory.events").splitlines())
        return events.get("oom_kill", "0") != "0"

    def remove(self) -> None:
        """Kill what is in it, and remove it; one that stays is empty of processes and costs nothing."""
        for _ in range(REMOVE_ROUNDS):
            try:
                (self.path / "cgroup.kill").write_text("1")
                self.path.rmdir()
                return
            except OSError:
                time.sleep(REMOVE_WAIT_S)
