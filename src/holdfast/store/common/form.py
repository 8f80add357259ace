"""How SQL stores write a job: the fields that a claim changes in columns, the rest as JSON."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.job import Job, Place

encode = msgspec.json.Encoder().encode

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
