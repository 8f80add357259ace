"""A job as the replies of this port show it."""

from collections.abc import Iterable
from typing import Any

import msgspec

from ...core.columns import data_now, modifier, moment, next_run, seconds, shown_data
from ...core.commands import Claimed
from ...core.job import Body, Job, Place, State
from ...core.queries import JobData

_encode = msgspec.json.Encoder().encode


def as_json(found: dict[str, Any]) -> bytes:
    """A reply's body: one object, its keys in alphabetical order whatever their case."""
    return _encode(dict(sorted(found.items(), key=lambda item: item[0].lower())))


def _columns(job: Job) -> dict[str, Any]:
    return {
        "jobID": job.id,
        "name": job.task,
        "created": seconds(job.created_at),
        "repeat": job.repeat,
        "retryAfter": modifier(job.retry_after),
        "priority": job.priority,
    }


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
    """The reply of GetJob: nine fields, as they were before this claim."""
    job = claimed.job
    return _columns(job) | {
        "nextRun": moment(job.run_at),
        "lastRun": seconds(claimed.last_run),
        "data": shown_data(job, claimed.data, count=job.losses),
    }


def ended_children(children: Iterable[JobData]) -> dict[str, Any]:
    """The fields about ended children in the reply of GetJob for a parent."""
    told: dict[str, list[dict[str, Any]]] = {"finishedChildJobs": [], "cancelledChildJobs": []}
    for child in children:
        kind = "finishedChildJobs" if child.job.ended == State.FINISHED else "cancelledChildJobs"
        told[kind].append({"data": data_now(child.job, child.data), "jobID": child.job.id})
    return dict(told) if any(told.values()) else {}
