"""A job in the columns of the job-command port: times as text, and fields that it adds to the data."""

from base64 import b64encode
from datetime import UTC, datetime

import msgspec

from .job import Body, Job, Place

MANUAL = "manual"


def seconds(at_ms: int) -> str:
    """A time in UTC without its fraction; "" for none."""
    return _stamp(at_ms - at_ms % 1000) if at_ms else ""


def moment(at_ms: int) -> str:
    """A time in UTC with its milliseconds, if they are not 0."""
    fraction = at_ms % 1000
    return seconds(at_ms) + (f".{fraction:03}" if fraction else "")


def _stamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def next_run(job: Job) -> str:
    """When the job can be claimed next. While a job with a `retryAfter` runs: when that interval ends."""
    is_out = job.place == Place.RUNNING and job.retry_after and job.lease_until
    return moment(job.lease_until if is_out else job.run_at)


def shown_data(job: Job, body: Body, *, count: int) -> msgspec.Raw:
    """The data as JSON, with the fields that the port adds: whether the job is mocked, and `count` claims."""
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
    """The data with the number of claims so far; a job that is being claimed counts this claim."""
    return shown_data(job, body, count=job.losses + (job.place == Place.RUNNING))


def modifier(after: int | str) -> str:
    """The `retryAfter` as it was given; if it was given elsewhere in milliseconds, as a date modifier."""
    if isinstance(after, str) or not after:
        return after or ""
    return f"+{-(-after // 1000)} SECONDS"
