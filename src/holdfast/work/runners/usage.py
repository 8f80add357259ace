"""CPU time, memory and number of the processes of a context, read from outside. Only on Linux; else zero."""

import os
import re
import sys
import time
from pathlib import Path

from msgspec import Struct

_TICKS = os.sysconf("SC_CLK_TCK")
_IS_LINUX = sys.platform == "linux"
# Memory that only a process itself has, and memory that it may share with others, in KB.
_OWN = re.compile(rb"^RssAnon:\s*(\d+)", re.MULTILINE)
_SHARED = re.compile(rb"^RssShmem:\s*(\d+)", re.MULTILINE)
_SHARE = re.compile(rb"^Pss_Shmem:\s*(\d+)", re.MULTILINE)


class Usage(Struct, frozen=True):
    """What the processes of a context use."""

    cpu_ms: float = 0.0
    memory_bytes: int = 0
    processes: int = 0


def processes_of(root: int) -> list[int]:
    """A process and all its descendants, parents first; those that end meanwhile may be missing."""
    if not _IS_LINUX:
        return [root]
    found, rest = [], [root]
    while rest:
        pid = rest.pop()
        found.append(pid)
        rest += children_of(pid)
    return found


def children_of(pid: int) -> list[int]:
    """The children of a process, oldest first; none where it has ended."""
    children: list[int] = []
    try:
        with os.scandir(f"/proc/{pid}/task") as tasks:
            for task in tasks:
                children += map(int, _read(f"{task.path}/children").split())
    except OSError:
        pass  # it has ended
    return children


def processes_of_user(user: int) -> list[int]:
    """All processes with a user id, without those that have ended and wait for their parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == user and _read(f"{path}/stat").rpartition(b")")[2].split()[0] != b"Z":
                found.append(int(path.name))
        except OSError:
            pass  # it has ended
    return found


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def measure(pids: list[int]) -> Usage:
    """What processes use together, and the CPU time of their children that have ended."""
    if not _IS_LINUX:
        return Usage()
    cpu_ms, memory, count = 0.0, 0, 0
    for pid in pids:
        try:
            memory += _memory_bytes(pid)
        except OSError:
            continue  # it has ended
        cpu_ms += process_cpu_ms(pid)
        count += 1
    return Usage(cpu_ms, memory, count)


def _memory_bytes(pid: int) -> int:
    """The memory of a process, and its share of what it has in common with others, such as `mmap` makes.

    Pages of files count for no process.
    """
    status = _read(f"/proc/{pid}/status")
    own_kb, shared_kb = _number(_OWN, status), _number(_SHARED, status)
    return (own_kb + (_share_kb(pid, shared_kb) if shared_kb else 0)) * 1024


def _share_kb(pid: int, shared_kb: int) -> int:
    """The share of a process in memory that others have too; all of it if the kernel does not tell.

    It looks through all pages for that. A process can forbid it to other users than root.
    """
    try:
        return _number(_SHARE, _read(f"/proc/{pid}/smaps_rollup"))
    except OSError:
        return shared_kb


def _number(field: re.Pattern[bytes], text: bytes) -> int:
    """The number of a field; 0 if it is not there, as in a process that is about to end."""
    found = field.search(text)
    return int(found[1]) if found else 0


def process_cpu_ms(pid: int) -> float:
    """The CPU time of a process, and of its children that have ended and were waited for."""
    if not _IS_LINUX:
        return 0.0
    try:
        # Fields after the name, which may contain anything: the first is the third of proc(5).
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        children_ms = (int(fields[13]) + int(fields[14])) * 1000 / _TICKS
        # The clock of another process, as clock_getcpuclockid(3) makes it: exact, where `stat` counts ticks.
        return time.clock_gettime(~pid << 3 | 2) * 1000 + children_ms
    except (OSError, IndexError, ValueError):
        return 0.0
