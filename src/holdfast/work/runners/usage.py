"""CPU time, memory, number and files of the processes of a context, read from outside.

Only on Linux; elsewhere all of it is zero.
"""

import os
import re
import sys
import time
from pathlib import Path

from msgspec import Struct

_TICKS = os.sysconf("SC_CLK_TCK")
_IS_LINUX = sys.platform == "linux"
# Memory that only a process itself has, in memory and on disk, and its share of what others have too, in KB.
_OWN = re.compile(rb"^RssAnon:\s*(\d+)", re.MULTILINE)
_SWAPPED = re.compile(rb"^VmSwap:\s*(\d+)", re.MULTILINE)
_SHARE = re.compile(rb"^Pss_Shmem:\s*(\d+)", re.MULTILINE)
# The address and inode of a mapping of memory that has no file: it may be shared.
_MAPPING = re.compile(
    rb"^0*([0-9a-f]+)-0*([0-9a-f]+) \S+ \S+ \S+ (\d+) +/(?:dev/zero|memfd:|SYSV)", re.MULTILINE
)
# The most of a file in /proc that is read: above the mappings that a process may have by default.
_READ_BYTES = 8 << 20
_BLOCK_BYTES = 512
# How often threads and processes are looked at to say that they go on: one that has just replied, or was
# killed, needs a moment.
_LOOKS, _LOOK_S = 20, 0.0005


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


def _read(path: str, size: int = 4096) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def _read_all(path: str) -> bytes:
    with Path(path).open("rb") as stream:
        return stream.read(_READ_BYTES)


def measure(pids: list[int]) -> Usage:
    """What processes use together, and the CPU time of their children that have ended."""
    if not _IS_LINUX:
        return Usage()
    cpu_ms, memory, count = 0.0, 0, 0
    shared: dict[int, int] = {}
    for pid in pids:
        try:
            status = _read(f"/proc/{pid}/status")
            # Pages of files count for no process.
            memory += (_number(_OWN, status) + _number(_SWAPPED, status)) * 1024
            memory += _add_shared(pid, shared)
        except OSError:
            continue  # it has ended
        cpu_ms += process_cpu_ms(pid)
        count += 1
    return Usage(cpu_ms, memory + sum(shared.values()), count)


def _add_shared(pid: int, shared: dict[int, int]) -> int:
    """Add the memory that a process maps and others may map too, by its inode; or return its share of that.

    Only root learns how large it is. Else a process can hide it, by `madvise` which gives up its pages.
    """
    for start, end, inode in _MAPPING.findall(_read_all(f"/proc/{pid}/maps")):
        try:
            found = Path(f"/proc/{pid}/map_files/{start.decode()}-{end.decode()}").stat()
        except PermissionError:
            return _number(_SHARE, _read(f"/proc/{pid}/smaps_rollup")) * 1024
        except FileNotFoundError:
            continue  # it was unmapped just now
        shared[int(inode)] = found.st_blocks * _BLOCK_BYTES
    return 0


def _number(field: re.Pattern[bytes], text: bytes) -> int:
    """The number of a field; 0 if it is not there, as in a process that is about to end."""
    found = field.search(text)
    return int(found[1]) if found else 0


def is_alive(pid: int) -> bool:
    """Whether a process is there and does not end at once."""
    for _ in range(_LOOKS):
        try:
            if _state_of(f"/proc/{pid}") in b"ZX":
                return False
        except OSError:
            return False
        time.sleep(_LOOK_S)
    return True


def _state_of(path: str) -> bytes:
    """The letter of the state of a process or thread."""
    return _read(f"{path}/stat").rpartition(b")")[2].split()[0]


def is_busy(pid: int) -> bool:
    """Whether threads of a process run and do not stop."""
    for _ in range(_LOOKS):
        try:
            with os.scandir(f"/proc/{pid}/task") as tasks:
                if not any(_state_of(task.path) == b"R" for task in tasks):
                    return False
        except OSError:
            return False  # it has ended
        time.sleep(_LOOK_S)
    return True


def folder_usage(folder: str, most_files: int) -> tuple[int, int]:
    """The bytes and the number of files in a folder and below; looks at little more than the most of them."""
    size = count = 0
    rest = [folder]
    while rest and count <= most_files:
        try:
            with os.scandir(rest.pop()) as entries:
                for entry in entries:
                    count += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        rest.append(entry.path)
                    if count > most_files:
                        break
        except OSError:
            pass  # it was removed just now, or is closed to us
    return size, count


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
