"""What stores share: how the SQL stores write a job, statements in files, and repair of unreadable records.

The fields that a claim changes are columns, the rest is JSON.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ...core.damage import UNREADABLE
from ...core.errors import StoreCorrupt
from ...core.job import Job, Place

encode = msgspec.json.Encoder().encode
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)

# The fields in columns. In `rest` they have these defaults, which are not written, so `rest` is never stale.
COLD: dict[str, Any] = {
    "place": Place.SCHEDULED,
    "rank": 0,
    "version": 1,
    "owner": 0,
    "lease_until": 0,
    "started_at": 0,
    "claim": 0,
}


def rest_of(job: Job) -> str:
    """The JSON of a job without the fields that are columns."""
    return encode(replace(job, **COLD)).decode()


def rest_parts(template: Job) -> tuple[str, str, str]:
    """The JSON of jobs made from `template`, in three parts: before the id, between id and size, after it."""
    text = encode(replace(template, id=0, size=1, **COLD)).decode()
    middle, _, tail = text.removeprefix('{"id":0').rpartition('"size":1')
    return '{"id":', f'{middle}"size":', tail


def load_statements(folder: Path, parts: Sequence[str], hot: str) -> dict[str, str]:
    """The statements after each `-- name: …`, without comments; `{hot}` stands for the columns of a job."""
    named: dict[str, str] = {}
    for part in parts:
        pieces = _NAME.split((folder / f"{part}.sql").read_text("utf-8"))[1:]
        for name, body in zip(pieces[::2], pieces[1::2], strict=True):
            named[name] = COMMENT.sub("", body).strip().replace("{hot}", hot)
    return named


T = TypeVar("T")
_decode = msgspec.json.Decoder(Job).decode


def call_with_repair(call: Callable[[], T], repair: Callable[[], int], where: object) -> T:
    """Return `call()`, called again after `repair` if it finds an unreadable record.

    `repair` replaces unreadable records of jobs by readable ones (`core.damage`) and returns their number. If
    that is 0, or the second call fails too, `StoreCorrupt` is raised.
    """
    try:
        return call()
    except UNREADABLE as error:
        fault = error
    if repair():
        try:
            return call()
        except UNREADABLE as error:
            fault = error
    raise beyond_repair(where, fault) from fault


def is_job(record: str | bytes, job_id: int) -> bool:
    """Whether a record can be read, and is that of this job."""
    try:
        return _decode(record).id == job_id
    except UNREADABLE:
        return False


def beyond_repair(where: object, fault: Exception) -> StoreCorrupt:
    """The error for damage that cannot be repaired."""
    return StoreCorrupt(
        f"{where} is damaged: a record that is not a job's cannot be read ({fault.__class__.__name__}); "
        "restore a backup"
    )
