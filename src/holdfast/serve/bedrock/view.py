"""A job as this port shows it: the documents' columns, times as text, and what it tells in the data."""

from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...core.commands import Claimed
from ...core.job import Body, Job, Place, State

MANUAL = "manual"

_encode = msgspec.json.Encoder().encode


def as_json(found: dict[str, Any]) -> bytes:
    """A reply's body: one object, its keys in alphabetical order whatever their case."""
    return _encode(dict(sorted(found.items(), key=lambda item: item[0].lower())))


def seconds(at_ms: int) -> str:
    """A time without its fraction, UTC; "" where there is none."""
    return _stamp(at_ms - at_ms % 1000) if at_ms else ""


def moment(at_ms: int) -> str:
    """A time with its milliseconds, where it has any."""
    fraction = at_ms % 1000
    return seconds(at_ms) + (f".{fraction:03}" if fraction else "")


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def next_run(job: Job) -> str:
    """When it is handed out next: with a `retryAfter`, while it is out, when that has passed."""
    is_out = job.place == Place.RUNNING and job.retry_after and job.lease_until
    return moment(job.lease_until if is_out else job.run_at)


def shown_data(job: Job, body: Body, *, count: int) -> msgspec.Raw:
    """The data as JSON, with what this port tells in them: that the job is mocked, and `count` hand-outs."""
    text = body if isinstance(body, str) else _encode(b64encode(body).decode()).decode()
    told = {}
    if job.mock:
        told["mockRequest"] = "true"
    if job.retry_after and count and not job.task.startswith(MANUAL):
        told["retryAfterCount"] = str(count)
    inner = text.strip()
    if told and inner.startswith("{"):
        rest = inner[1:-1].strip()
        parts = [rest] if rest else []
        text = "{" + ",".join(parts + [f'"{key}":{value}' for key, value in told.items()]) + "}"
    return msgspec.Raw(text.encode())


def data_now(job: Job, body: Body) -> msgspec.Raw:
    """The data as they are now; one that is handed out counts for that."""
    return shown_data(job, body, count=job.losses + (job.place == Place.RUNNING))


def _columns(job: Job) -> dict[str, Any]:
    return {
        "jobID": job.id,
        "name": job.task,
        "created": seconds(job.created_at),
        "repeat": job.repeat,
        "retryAfter": modifier(job.retry_after),
        "priority": job.priority,
    }


def modifier(after: int | str) -> str:
    """A `retryAfter` as it was given, or, made elsewhere in milliseconds, in the documents' words."""
    if isinstance(after, str) or not after:
        return after or ""
    return f"+{-(-after // 1000)} SECONDS"


def queried(job: Job, body: Body) -> dict[str, Any]:
    """What QueryJob tells: ten keys, and of a job with a timeout that, and when it is up."""
    found = _columns(job) | {
        "state": str(job.state),
        "nextRun": next_run(job),
        "lastRun": seconds(job.started_at),
        "data": data_now(job, body),
    }
    if job.timeout_ms:
        found["timeout"] = job.timeout_ms
        found["expires"] = moment(job.lease_until) if job.place == Place.RUNNING else ""
    return found


def handed_out(claimed: Claimed) -> dict[str, Any]:
    """What GetJob tells: nine keys, as they were before this hand-out."""
    job = claimed.job
    return _columns(job) | {
        "nextRun": moment(job.run_at),
        "lastRun": seconds(claimed.last_run),
        "data": shown_data(job, claimed.data, count=job.losses),
    }


def ended_children(children: Iterable[tuple[Job, Body]]) -> dict[str, Any]:
    """What a parent that is handed out again is told of those of its children that have ended."""
    told: dict[str, list[dict[str, Any]]] = {"finishedChildJobs": [], "cancelledChildJobs": []}
    for child, body in children:
        kind = "finishedChildJobs" if child.ended == State.FINISHED else "cancelledChildJobs"
        told[kind].append({"data": data_now(child, body), "jobID": child.id})
    return dict(told) if any(told.values()) else {}
