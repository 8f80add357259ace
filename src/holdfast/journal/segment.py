"""Segments: files of groups, each of which one sync made durable, with a checksum.

    #:Segment version=1,number=7,salt=8f14e45fceea167a
    #:Group bytes=412,crc=1a2b3c4d
    <412 bytes of records>

The checksum covers the records, the salt and the offset of the group, so that data which looks like a group
is not taken for one. See docs/decisions/0018.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from zlib import crc32

from ..core.errors import StoreCorrupt

VERSION = 1
# A header is shorter than this.
HEAD_BYTES = 80
# How much is read at once, and what a disk cannot read at least.
CHUNK_BYTES = 256 * 1024
BLOCK_BYTES = 4096
# The pauses before a read is tried again that has failed: a path to the disk may be about to change.
EIO_NAPS_S = (0.1, 0.5, 2.0)

_SEGMENT = re.compile(rb"#:Segment version=(\d{1,4}),number=(\d{1,12}),salt=([0-9a-f]{16})\n")
_GROUP = re.compile(rb"#:Group bytes=(\d{1,10}),crc=([0-9a-f]{8})\n")
_MARK = b"#:Group bytes="


class Incomplete(Exception):
    """A group ends before its last byte: its process died while it wrote."""


class Damaged(Exception):
    """Bytes that are no group, or not as they were written."""


class Headless(StoreCorrupt):
    """A segment whose header is damaged: without its salt no checksum can be compared. `raw`: its bytes."""

    def __init__(self, path: Path, raw: bytes) -> None:
        super().__init__(f"{path} is no segment of a journal, or its header is damaged")
        self.raw = raw


def segment_head(number: int, salt: bytes) -> bytes:
    """The first line of a segment."""
    return b"#:Segment version=%d,number=%d,salt=%s\n" % (VERSION, number, salt)


def frame(records: bytes, salt: bytes, offset: int) -> bytes:
    """A group, to be written at an offset."""
    return b"#:Group bytes=%d,crc=%08x\n" % (len(records), _checksum(records, salt, offset)) + records


def _checksum(records: bytes, salt: bytes, offset: int) -> int:
    return crc32(records, crc32(b"%s:%d" % (salt, offset)))


class Segment:
    """An open segment, for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._at, self._chunk = 0, b""
        found = _SEGMENT.match(self.read_raw(0, HEAD_BYTES))
        if found is None or int(found[1]) != VERSION:
            raw = self.read_raw(0, self.size) if found is None else b""
            os.close(self._fd)
            if found is None:
                raise Headless(path, raw)
            raise StoreCorrupt(f"{path} is a segment of another version")
        self.number, self.salt, self.first = int(found[2]), found[3], found.end()

    @property
    def size(self) -> int:
        """How many bytes the file has now."""
        return os.fstat(self._fd).st_size

    def read_group(self, offset: int, end: int) -> tuple[bytes, int]:
        """The records of a group, and the offset of the next; raises `Incomplete` or `Damaged`."""
        head = self._bytes(offset, min(HEAD_BYTES, end - offset), end)
        found = _GROUP.match(head)
        if found is None:
            if len(head) < HEAD_BYTES and b"\n" not in head and _MARK.startswith(head[: len(_MARK)]):
                raise Incomplete
            raise Damaged
        first, size = offset + found.end(), int(found[1])
        if first + size > end:
            raise Incomplete
        records = self._bytes(first, size, end)
        if len(records) < size or _checksum(records, self.salt, offset) != int(found[2], 16):
            raise Damaged
        return records, first + size

    def find_group(self, offset: int, end: int) -> int:
        """The offset of the next group that is as it was written, or the end."""
        rest = self.read_raw(offset, end)
        at = rest.find(_MARK)
        while at >= 0:
            try:
                self.read_group(offset + at, end)
                return offset + at
            except (Incomplete, Damaged):
                at = rest.find(_MARK, at + 1)
        return end

    def find_tail(self, offset: int) -> int:
        """Where the last group that is as it was written ends."""
        end = self.size
        while offset < end:
            try:
                _, offset = self.read_group(offset, end)
            except (Incomplete, Damaged):
                found = self.find_group(offset + 1, end)
                if found == end:
                    return offset
                offset = found
        return offset

    def is_incomplete(self, offset: int, end: int) -> bool:
        """Whether the group at an offset ends before its last byte."""
        try:
            self.read_group(offset, end)
        except Incomplete:
            return True
        except Damaged:
            pass
        return False

    def read_raw(self, offset: int, end: int) -> bytes:
        """Bytes as they are; zeros where the disk cannot read, also not a moment later."""
        for nap_s in (*EIO_NAPS_S, 0.0):
            try:
                return os.pread(self._fd, end - offset, offset)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
            sleep(nap_s)
        return b"".join(self._read_blocks(offset, end))

    def _read_blocks(self, offset: int, end: int) -> Iterator[bytes]:
        while offset < end:
            up_to = min((offset // BLOCK_BYTES + 1) * BLOCK_BYTES, end)
            try:
                yield os.pread(self._fd, up_to - offset, offset)
            except OSError:
                yield bytes(up_to - offset)
            offset = up_to

    def _bytes(self, offset: int, size: int, end: int) -> bytes:
        """Bytes of the file, mostly from a chunk that was read before, which has none beyond `end`."""
        start = offset - self._at
        if start < 0 or start + size > len(self._chunk):
            self._at, start = offset, 0
            self._chunk = self.read_raw(offset, offset + max(size, min(CHUNK_BYTES, end - offset)))
        return self._chunk[start : start + size]

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
