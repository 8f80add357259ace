"""How stores that have columns write a job: what a claim changes in columns, the rest as JSON."""

from typing import Any

import msgspec
from msgspec.structs import replace

from ...core.job import Job, Place

encode = msgspec.json.Encoder().encode

# What stands in columns because a claim changes it. In `rest` it is always at its default, and so not
# written: nothing there can ever be out of date.
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
    """The JSON of a job without what stands in columns."""
    return encode(replace(job, **COLD)).decode()


def rest_parts(template: Job) -> tuple[str, str, str]:
    """What is written of jobs that are as `template`: before the id, before the size, and after."""
    text = encode(replace(template, id=0, size=1, **COLD)).decode()
    middle, _, tail = text.removeprefix('{"id":0').rpartition('"size":1')
    return '{"id":', f'{middle}"size":', tail
