"""The folder of a journal: who uses it, its segments, the read position, and what was set aside.

See docs/decisions/0018 for its files.
"""

import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from os.path import samestat
from pathlib import Path
from time import sleep
from typing import NamedTuple
from zlib import crc32

import msgspec

from ..core.errors import StoreError, StoreFull
from ..core.job import Body, Record
from .segment import segment_head

SUFFIX = ".journal"
POSITION = "position"
# The position is rewritten in place, always as many bytes as a disk writes at once.
POSITION_BYTES = 128
# The names of the file that is made with each record of the number, in turn.
ANCHORS = ("anchor-0", "anchor-1")
# Another one after each start of the machine.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# How often the lock is tried where another process keeps it, and where some only look whether one does.
LOCK_TRIES, LOOK_TRIES, LOCK_NAP_S = 10, 500, 0.01
_FULL = ("No space left on device", "Disk quota exceeded")


class JournalPlace(NamedTuple):
    """A line of the journal: its segment, the offset of its group, and which line of the group it is."""

    segment: int
    offset: int
    line: int


class RefusedLine(Record, frozen=True, kw_only=True):
    """A job that the store will never accept, and why; `job` is its `NewJob` as MessagePack."""

    at_ms: int
    id: str
    tenant: str
    task: str
    code: str
    error: str
    job: bytes


class KeptSysid(Record, frozen=True, kw_only=True):
    """The number by which a journal makes ids; `used_until_ms` is the moment before which it may have.

    With `ids_until_ms` 0 it makes none before it has asked the store. `next_token` is the token with which
    the store was asked last; whether it has agreed is not known.
    """

    number: int = 0
    token: str = ""
    next_token: str = ""
    taken_at_ms: int = 0
    ids_until_ms: int = 0
    used_until_ms: int = 0
    # The file that was made with this record, and what no copy of it has; see `JournalFolder.is_original`.
    anchor: str = ""
    identity: str = ""


class JournalFolder:
    """The files of one journal. Only the process that has locked it may write."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock_fd = -1
        # The files of positions, by name.
        self._position_fds: dict[str, int] = {}
        # The positions as they were kept last; those of backlogs too.
        self._positions: dict[str, JournalPlace] = {}
        # The file that the kept number refers to.
        self._anchor = ""
        # Segments before this one were deleted; 0: not known.
        self._deleted = 0
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        """The path, for people."""
        return str(self.path)

    def lock(self) -> None:
        """Make the folder if need be, and take it for this process; `StoreError` if another has it."""
        with faults(self.path):
            self.path.mkdir(exist_ok=True)
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not _try_lock(fd):
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "another"
            os.close(fd)
            raise StoreError(
                f"the journal {self.path} is used by process {owner}; one process uses a journal at a time: "
                "give each its own, or let them share one behind holdfast serve --journal"
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd
        _locked.add(self)
        for name in (POSITION, *(one.name for one in self.path.glob("backlog-*"))):
            self._positions[name] = self.read_position(name) or JournalPlace(0, 0, 0)
        self._anchor = kept.anchor if (kept := self.read_sysid()) else ""

    def owner(self) -> int | None:
        """The process that uses the folder; None: none does."""
        with suppress(OSError), (self.path / "lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(20) or b"0")
        return None

    # Segments

    def segments(self) -> list[int]:
        """The numbers of all segments, in order."""
        return sorted(
            int(one.stem) for one in self.path.glob(f"*{SUFFIX}") if one.stem.isdecimal() and one.is_file()
        )

    def segment_path(self, number: int) -> Path:
        """The file of a segment."""
        return self.path / f"{number:08d}{SUFFIX}"

    def create_segment(self, number: int, salt: bytes) -> int:
        """Create a segment with its header, durably; its file descriptor, for writing."""
        path = self.segment_path(number)
        self._write_anew(path, segment_head(number, salt))
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def delete_read_segments(self) -> None:
        """Delete the segments before every read position."""
        before = min(self._positions.values()).segment
        # Listed once: there may be thousands.
        known = range(self._deleted, before) if self._deleted else self.segments()
        for number in known:
            if number < before:
                self.segment_path(number).unlink(missing_ok=True)
        self._deleted = before

    # The read positions: of the journal, and of each backlog

    def read_position(self, name: str = POSITION) -> JournalPlace | None:
        """The next line to read; None where that is not known: then it is the first."""
        with suppress(OSError, ValueError, msgspec.MsgspecError):
            raw = (self.path / name).read_bytes()
            text, _, check = raw.rstrip().rpartition(b" ")
            if crc32(text) == int(check, 16):
                return msgspec.json.decode(text, type=JournalPlace)
        return None

    def write_position(self, place: JournalPlace, name: str = POSITION) -> None:
        """Keep the next line to read, durably."""
        text = msgspec.json.encode(place)
        raw = (b"%s %08x" % (text, crc32(text))).ljust(POSITION_BYTES - 1) + b"\n"
        with self._guard, faults(self.path):
            if (fd := self._position_fds.get(name)) is not None:
                os.pwrite(fd, raw, 0)
                os.fdatasync(fd)
            else:
                # A new file: the old one may be in a copy by hard links as well, which must not change.
                self._write_anew(self.path / name, raw)
                self._position_fds[name] = os.open(self.path / name, os.O_RDWR | os.O_CLOEXEC)
            self._positions[name] = place

    @property
    def last_position(self) -> int:
        """The last segment that a position is in; 0: there is none."""
        return max((place.segment for place in self._positions.values()), default=0)

    def backlogs(self) -> list[tuple[int, int]]:
        """The shards that have a backlog: each its number, and of how many."""
        names = [one.name.split("-") for one in self.path.glob("backlog-*-of-*")]
        return sorted((int(shard), int(of)) for _, shard, _, of in names)

    def delete_position(self, name: str) -> None:
        """Delete the position of a backlog that was ingested."""
        with self._guard, faults(self.path):
            (self.path / name).unlink(missing_ok=True)
            self._positions.pop(name, None)
            if (fd := self._position_fds.pop(name, None)) is not None:
                os.close(fd)

    # The number by which ids are made

    def read_sysid(self) -> KeptSysid | None:
        """The kept number; None: there is none."""
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode((self.path / "sysid").read_bytes(), type=KeptSysid)
        return None

    def is_original(self, kept: KeptSysid) -> bool:
        """Whether a kept number was written last, in this folder, since the machine was started.

        So no other process uses the number: it would have the lock. A copied or restored file has another
        inode, or a later time of change, which programs cannot set.
        """
        with suppress(OSError):
            return kept.identity == self._identify((self.path / kept.anchor).stat()) != ""
        return False

    def write_sysid(self, kept: KeptSysid) -> None:
        """Keep the number, durably, with an anchor of its own: only the record written last has one."""
        with self._guard, faults(self.path):
            if self._lock_fd < 0 or not samestat(os.fstat(self._lock_fd), (self.path / "lock").stat()):
                raise StoreError(
                    f"the folder {self.path} is not the one any more that this journal has opened"
                )
            name = next(one for one in ANCHORS if one != self._anchor)
            (self.path / name).unlink(missing_ok=True)
            fd = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                kept = msgspec.structs.replace(kept, anchor=name, identity=self._identify(os.fstat(fd)))
            finally:
                os.close(fd)
            self._write_anew(self.path / "sysid", msgspec.json.encode(kept))
            if self._anchor:
                (self.path / self._anchor).unlink(missing_ok=True)
            self._anchor = name

    def _identify(self, anchor: os.stat_result) -> str:
        """What a file of this folder has and no copy of it; "" where the machine does not tell."""
        with suppress(OSError):
            boot = BOOT_ID.read_text().strip()
            lock = os.fstat(self._lock_fd).st_ino
            return f"{boot} {anchor.st_dev} {lock} {anchor.st_ino} {anchor.st_ctime_ns}"
        return ""

    # What was set aside

    def keep_damaged(self, number: int, offset: int, raw: bytes) -> Path:
        """Keep bytes of a segment that could not be read."""
        folder = self.path / "damaged"
        with faults(self.path):
            folder.mkdir(exist_ok=True)
        path = folder / f"{number:08d}-{offset}"
        self._write_anew(path, raw)
        return path

    def damaged(self) -> list[Path]:
        """The files of what could not be read."""
        return sorted((self.path / "damaged").glob("*-*"))

    def keep_refused(self, lines: Iterable[RefusedLine]) -> None:
        """Keep jobs that the store will never accept, durably."""
        raw = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with faults(self.path):
            fd = os.open(self.path / "refused", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                end = os.fstat(fd).st_size
                # Behind a line that a crash or a full disk has cut off.
                is_cut = end and os.pread(fd, 1, end - 1) != b"\n"
                write_at(fd, b"\n" + raw if is_cut else raw, end)
                os.fsync(fd)
            finally:
                os.close(fd)

    def refused(self) -> Iterator[RefusedLine]:
        """The jobs that the store refused; a line that a crash has cut off is left out."""
        with suppress(FileNotFoundError), (self.path / "refused").open("rb") as file:
            for line in file:
                with suppress(msgspec.MsgspecError):
                    yield msgspec.json.decode(line, type=RefusedLine)

    def _write_anew(self, path: Path, raw: bytes) -> None:
        """Write a file so that it is there as a whole or not at all, durably."""
        new = path.with_name(path.name + ".new")
        with faults(self.path):
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                write_at(fd, raw, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
            new.replace(path)
            _sync_folder(path.parent)

    def close(self) -> None:
        """Let another process have the folder."""
        _locked.discard(self)
        with self._guard:
            for fd in (*self._position_fds.values(), self._lock_fd):
                if fd >= 0:
                    os.close(fd)
            self._lock_fd = -1
            self._position_fds = {}


def pack_job(job: object, data: Body) -> bytes:
    """A job with its data, as `RefusedLine` has it."""
    return msgspec.msgpack.encode(msgspec.structs.replace(job, data=data))  # type: ignore[type-var]


def write_at(fd: int, raw: bytes, offset: int) -> None:
    """Write all bytes at an offset."""
    view = memoryview(raw)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn errors of the file system into ours."""
    try:
        yield
    except OSError as error:
        raise fault_of(path, error) from None


def fault_of(path: Path, error: OSError) -> StoreError:
    """An error of the file system as ours."""
    kind = StoreFull if error.strerror in _FULL else StoreError
    return kind(f"the journal {path} cannot be used: {error.strerror or error}")


def _try_lock(fd: int) -> bool:
    """Lock a file; False if another process keeps it.

    `owner` has it for a moment, which is long where its process gets no turn on a busy machine.
    """
    for tried in range(LOOK_TRIES):
        if _flock(fd, fcntl.LOCK_EX):
            return True
        if tried >= LOCK_TRIES:
            if not _flock(fd, fcntl.LOCK_SH):
                return False
            fcntl.flock(fd, fcntl.LOCK_UN)
        sleep(LOCK_NAP_S)
    return False


def _flock(fd: int, how: int) -> bool:
    """Lock a file, if that is possible now."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_locked: "weakref.WeakSet[JournalFolder]" = weakref.WeakSet()


def _after_fork(close: Callable[[int], None] = os.close) -> None:
    """Close the lock in a child: it would keep the folder locked after the parent's end."""
    for folder in list(_locked):
        if folder._lock_fd >= 0:
            close(folder._lock_fd)
            folder._lock_fd = -1


os.register_at_fork(after_in_child=_after_fork)
