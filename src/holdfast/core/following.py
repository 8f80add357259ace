"""The follow-up job of a job that succeeded (`then`) or FAILED (`on_failure`), and what it gets.

arguments   into    the follow-up job gets
none        none    the result, as its data
some        none    its arguments alone
any         "x"     its arguments, and the result as the argument x
"""

import msgspec
from msgspec.structs import replace

from .bounds import DATA_BYTES
from .commands import NewJob
from .job import Body, Job

NO_ARGUMENTS = "{}"
# The argument of the job that follows a FAILED one.
FAILED_JOB = "failed"


def follower(job: Job, result: Body | None) -> NewJob:
    """The follow-up job of one that ended with this result, and its id if that has not been used yet."""
    new = msgspec.json.decode(job.then, type=NewJob)
    data: Body = new.data
    if job.into:
        named = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        named[job.into] = msgspec.Raw(_json(result))
        data = msgspec.json.encode(named).decode()
    elif data == NO_ARGUMENTS:
        data = "null" if result is None else result
    job_id = 0 if job.followed else job.then_id
    return replace(new, id=job_id, data=data, tenant=job.tenant, traceparent=job.traceparent)


def failure_follower(job: Job, data: Body | None) -> NewJob:
    """The job that follows a FAILED one: its argument `failed` tells of that, and has its data, or null."""
    new = msgspec.json.decode(job.on_failure, type=NewJob)
    named = msgspec.json.decode(new.data, type=dict[str, msgspec.Raw])
    told = {"id": job.id, "task": job.task, "reason": job.reason, "attempts": job.attempts}
    failed = {**told, "data": None if data is None else msgspec.Raw(_json(data))}
    named[FAILED_JOB] = msgspec.Raw(msgspec.json.encode(failed))
    text = msgspec.json.encode(named).decode()
    if len(text) > DATA_BYTES:
        return failure_follower(job, None)
    return replace(new, data=text, tenant=job.tenant, traceparent=job.traceparent)


def _json(result: Body | None) -> bytes:
    """A result as a value in a JSON object: bytes become base64 text."""
    return result.encode() if isinstance(result, str) else msgspec.json.encode(result)
