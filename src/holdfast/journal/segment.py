"""Segments: files of groups, each of which one sync made durable, with a checksum.

    #:Segment version=1,number=7,salt=8f14e45fceea167a
    #:Group bytes=412,crc=1a2b3c4d
    <412 bytes of records>

The checksum covers the records, the salt and the offset of the group, so that data which looks like a group
is not taken for one. See docs/decisions/0018.

The records of a segment: jobs as text lines, as batches of them, or with their options as MessagePack.

    ID|TENANT-TASK|DATA                                       a job without options: JSON text on one line
    #:Batch date=…,bytes=N,jobtype=TENANT-TASK,ids=ID;ID…     several of one task: a line of data for each
    <N bytes>#:EndBatch
    #:Add date=…,bytes=N                                      whatever else there is
    <N bytes>#:EndAdd

See docs/decisions/0018.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from time import sleep
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from ..core import commands as c
from ..core.creating import alike, check_line_names
from ..core.errors import BadInput, StoreCorrupt
from ..core.job import Body

# What a template's data is: the default, which is not written.
NO_DATA = c.NewJob(task="-").data


class Run(NamedTuple):
    """Jobs that are alike but for their ids and data; `job` has neither."""

    job: c.NewJob
    ids: Sequence[int]
    bodies: Sequence[Body]


class Malformed(Exception):
    """Bytes that are no record, though their checksum is right: another version wrote them."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Run]).decode


def runs_of(command: c.Add) -> list[Run]:
    """The jobs of a command, which has their ids, in runs of similar ones."""
    runs: list[Run] = []
    last = None
    ids: list[int] = []
    bodies: list[Body] = []
    for new, job_id in zip(command.jobs, command.ids, strict=False):
        kind = alike(new)
        if kind != last:
            last, ids, bodies = kind, [], []
            runs.append(Run(replace(new, id=0, data=NO_DATA), ids, bodies))
        ids.append(job_id)
        bodies.append(new.data)
    ids += command.ids[len(command.jobs) :]
    bodies += command.more
    return runs


def encode_runs(runs: Iterable[Run], *, now_ms: int) -> bytes:
    """The records of some jobs."""
    return b"".join(_encode_text(run, now_ms) or _encode_rest(run, now_ms) for run in runs)


def _encode_text(run: Run, now_ms: int) -> bytes | None:
    """Lines, or a batch; None if these cannot hold the jobs."""
    job, jobtype = run.job, jobtype_of(run.job.tenant, run.job.task)
    if jobtype is None or job != c.NewJob(task=job.task, tenant=job.tenant):
        return None
    text = _as_lines(run.bodies)
    if text is None:
        return None
    data = text.encode()
    if len(run.ids) == 1:
        return b"%d|%s|%s" % (run.ids[0], jobtype, data)
    ids = ";".join(map(str, run.ids)).encode()
    head = b"#:Batch date=%s,bytes=%d,jobtype=%s,ids=%s\n"
    return head % (_date(now_ms), len(data), jobtype, ids) + data + b"#:EndBatch\n"


def _as_lines(bodies: Sequence[Body]) -> str | None:
    """The bodies as lines of text; None if they are none: bytes, with newlines, empty, or like comments."""
    try:
        text = "\n".join(["", *bodies, ""])  # type: ignore[list-item]
    except TypeError:
        return None
    # Looked at together, which for a thousand takes a tenth of the time.
    if text.count("\n") != len(bodies) + 1 or "\n\n" in text or "\n#" in text:
        return None
    return text[1:]


def _encode_rest(run: Run, now_ms: int) -> bytes:
    data = _encode([run])
    return b"#:Add date=%s,bytes=%d\n" % (_date(now_ms), len(data)) + data + b"#:EndAdd\n"


def decode_runs(raw: bytes) -> Iterator[Run]:
    """The jobs of some records; raises `Malformed`."""
    try:
        for kind, fields, data in _records(raw):
            if kind:
                yield from _decode_framed(kind, fields, data)
            else:
                job_id, jobtype, body = data.split(b"|", 2)
                yield Run(_template(jobtype), [int(job_id)], [body.decode()])
    except (ValueError, KeyError, msgspec.MsgspecError) as error:
        raise Malformed(str(error)) from None


def count_jobs(raw: bytes) -> tuple[int, int]:
    """How many jobs some records have, and the id of the first; raises `Malformed`. Reads no data of jobs."""
    count = first_id = 0
    try:
        for kind, fields, data in _records(raw):
            if not kind:
                ids, more = data.partition(b"|")[0], 1
            elif kind == b"#:Batch":
                ids, _, rest = fields[b"ids"].partition(b";")
                more = rest.count(b";") + 2 if rest else 1
            else:
                runs = _decode_framed(kind, fields, data)
                ids, more = b"%d" % runs[0].ids[0], sum(len(run.ids) for run in runs)
            count, first_id = count + more, first_id or int(ids)
    except (ValueError, KeyError, msgspec.MsgspecError) as error:
        raise Malformed(str(error)) from None
    return count, first_id


def _records(raw: bytes) -> Iterator[tuple[bytes, dict[bytes, bytes], bytes]]:
    """Of each record the kind, the fields and the bytes; a line has no kind, and its bytes are the line."""
    at = 0
    while at < len(raw):
        line_end = raw.index(b"\n", at)
        if raw[at] != ord("#"):
            yield b"", {}, raw[at:line_end]
            at = line_end + 1
            continue
        kind, _, rest = raw[at:line_end].partition(b" ")
        fields = dict(part.split(b"=", 1) for part in rest.split(b","))
        data = raw[line_end + 1 : line_end + 1 + int(fields[b"bytes"])]
        ending = b"#:End" + kind[2:] + b"\n"
        at = line_end + 1 + len(data)
        if raw[at : at + len(ending)] != ending:
            raise Malformed(f"{kind.decode()} without its end")
        at += len(ending)
        yield kind, fields, data


def _decode_framed(kind: bytes, fields: dict[bytes, bytes], data: bytes) -> list[Run]:
    if kind == b"#:Add":
        return _decode(data)
    if kind != b"#:Batch":
        raise Malformed(f"the record {kind.decode(errors='replace')} is unknown")
    bodies = data.decode().split("\n")[:-1]
    ids = [int(one) for one in fields[b"ids"].split(b";")]
    if len(ids) != len(bodies):
        raise Malformed("a batch with another number of ids than of lines")
    return [Run(_template(fields[b"jobtype"]), ids, bodies)]


@lru_cache(maxsize=4096)
def jobtype_of(tenant: str, task: str) -> bytes | None:
    """TENANT-TASK as text lines have it; None for names that they cannot hold."""
    try:
        check_line_names(tenant, task)
    except BadInput:
        return None
    return f"{tenant}-{task}".encode()


@lru_cache(maxsize=4096)
def _template(jobtype: bytes) -> c.NewJob:
    tenant, dash, task = jobtype.decode().partition("-")
    if not dash or not task:
        raise Malformed("a line without TENANT-TASK")
    return c.NewJob(task=task, tenant=tenant)


def _date(now_ms: int) -> bytes:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00").encode() + b"Z"


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
