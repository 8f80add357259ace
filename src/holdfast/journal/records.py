"""The records of a segment: jobs as text lines, as batches of them, or with their options as MessagePack.

    ID|TENANT-TASK|DATA                                       a job without options: JSON text on one line
    #:Batch date=…,bytes=N,jobtype=TENANT-TASK,ids=ID;ID…     several of one task: a line of data for each
    <N bytes>#:EndBatch
    #:Add date=…,bytes=N                                      whatever else there is
    <N bytes>#:EndAdd

See docs/decisions/0018.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..core import commands as c
from ..core.creating import alike, check_line_names
from ..core.errors import BadInput
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
