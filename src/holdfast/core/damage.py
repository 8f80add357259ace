"""Damage: how stored records and bodies are handled that cannot be decoded.

A damaged record is read as a job with `damaged` set to the bytes that were found; the other fields are those
that can still be decoded. The rules fail such a job instead of running it. So it does not block other jobs,
and its bytes can still be repaired.
"""

import re
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields

from .job import Job

# What decoding raises. The text never contains the decoded value.
UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)
# The reason of a job that FAILED because of it.
DAMAGED = "damaged: its record cannot be read any more, and is kept as it was found"

# The fields by which other jobs and queries find this one. The other fields matter only for a run, and a
# damaged job does not run.
_SALVAGED = (
    *("task", "tenant", "priority", "created_at", "run_at", "scheduled_at", "started_at", "finished_at"),
    *("expires_at", "version", "place", "rank", "owner", "lease_until", "claim", "unique", "unique_for_ms"),
    *("domain", "schedule", "parent_id", "parent_claim", "mock", "strict", "size", "has_result", "steps"),
    *("log_lines", "ended"),
)
_TYPES = {field.name: field.type for field in fields(Job) if field.name in _SALVAGED}
_VALUE = rb'"%s":("(?:[^"\\]|\\.)*"|-?\d+|true|false)'


def salvage(job_id: int, raw: bytes, **known: Any) -> Job:
    """Return the job of a damaged record: from `known` columns, and from the fields that can be decoded."""
    found = {name: value for name in _SALVAGED if (value := _find_field(name, raw)) is not None}
    found |= known
    if "ended" in found:
        found["reason"] = DAMAGED
    return Job(**{"task": "?"} | found | {"id": job_id, "damaged": raw})


@cache
def _pattern(name: str) -> re.Pattern[bytes]:
    return re.compile(_VALUE % name.encode())


def _find_field(name: str, raw: bytes) -> Any:
    match = _pattern(name).search(raw)
    if match is None:
        return None
    try:
        return msgspec.json.decode(match[1], type=_TYPES[name])
    except UNREADABLE:
        return None
