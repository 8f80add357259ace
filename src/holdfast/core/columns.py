"""A job in the columns of the job-command port: times as text, and what the port tells in the data."""

from base64 import b64encode
from datetime import UTC, datetime

import msgspec

from .job import Body, Job, Place

MANUAL = "manual"


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
    text = body if isinstance(body, str) else msgspec.json.encode(b64encode(body).decode()).decode()
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


def modifier(after: int | str) -> str:
    """A `retryAfter` as it was given, or, made elsewhere in milliseconds, in the documents' words."""
    if isinstance(after, str) or not after:
        return after or ""
    return f"+{-(-after // 1000)} SECONDS"
