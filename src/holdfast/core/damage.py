"""Damage: what is made of a stored record or body that cannot be read any more.

A job whose record is damaged becomes one whose record says so: `damaged` holds the bytes as they were
found, and the fields are those that can still be made out. The rules fail such a job instead of handing it
out. So it holds up no other, and its bytes can still be repaired.
"""

import re
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields

from .job import Job

# What decoding raises. Never with what was decoded in its text.
UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)

# Where a job stands, whose it is and what it holds: what others must still be able to find. The rest of the
# record is of use to its run alone, which there will be none of.
_SALVAGED = (
    *("task", "tenant", "priority", "created_at", "run_at", "scheduled_at", "started_at", "finished_at"),
    *("expires_at", "version", "place", "rank", "owner", "lease_until", "claim", "unique", "unique_for_ms"),
    *("domain", "schedule", "parent_id", "parent_claim", "mock", "strict", "size", "has_result", "steps"),
    *("log_lines", "ended"),
)
_TYPES = {field.name: field.type for field in fields(Job) if field.name in _SALVAGED}
_VALUE = rb'"%s":("(?:[^"\\]|\\.)*"|-?\d+|true|false)'


def salvage(job_id: int, raw: bytes, **known: Any) -> Job:
    """The job of a damaged record: what is known beside it, and what can still be made out of it."""
    found = {name: value for name in _SALVAGED if (value := _made_out(name, raw)) is not None}
    return Job(**{"task": "?"} | found | known | {"id": job_id, "damaged": raw})


@cache
def _pattern(name: str) -> re.Pattern[bytes]:
    return re.compile(_VALUE % name.encode())


def _made_out(name: str, raw: bytes) -> Any:
    match = _pattern(name).search(raw)
    if match is None:
        return None
    try:
        return msgspec.json.decode(match[1], type=_TYPES[name])
    except UNREADABLE:
        return None
