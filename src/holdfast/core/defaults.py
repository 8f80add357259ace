"""The options of a task, which its jobs follow where their caller named none. See docs/decisions/0014.

A worker publishes what its decorators say, so that also a job that was added where the task is not known (by
the command line, by SQL, by name from another process) runs as the task wants. A claim fills in what the
caller left open; what the caller has given stays.
"""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from .job import Backoff, Job, Record

# Whose jobs, None: everybody's; and the task.
TaskKey = tuple[str | None, str]


class Defaults(Record, frozen=True, kw_only=True):
    """What a task says of its jobs, as fields of a job; None: nothing."""

    max_attempts: int | None = None
    max_losses: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    retry_after: int | str | None = None
    # From when the job was added.
    expires_in_ms: int | None = None
    repeat: str | None = None
    # As a job keeps it: the JSON of the job that follows.
    then: str | None = None
    # The parameter of that job that gets the result: part of `then`.
    into: str = ""
    wait_for_failed: bool | None = None


# The options that can still be decided when a job is claimed, and the field of `Defaults` for each. Others
# (priority, delay, domain, unique …) say when and whether it is claimed, and so are settled by the add.
FOLLOWED = {
    "attempts": "max_attempts",
    "losses": "max_losses",
    "backoff": "backoff",
    "timeout": "timeout_ms",
    "retry_after": "retry_after",
    "expires": "expires_in_ms",
    "repeat": "repeat",
    "then": "then",
    "when_child_fails": "wait_for_failed",
}
# Of a job made at the job-command port the rest is settled by the documents, said or not.
FOLLOWED_AT_THE_PORT = ("backoff", "timeout")
NO_DEFAULTS = Defaults()

Published = dict[TaskKey, Defaults]


def kept_names(given: tuple[str, ...]) -> tuple[str, ...]:
    """Of the options that a caller has given, those that a job must remember."""
    return tuple(name for name in given if name in FOLLOWED) if given else given


def follow(job: Job, published: Published) -> Job:
    """A job that is about to be claimed, with its task's defaults where its caller has given nothing."""
    defaults = published.get((job.tenant, job.task)) or published.get((None, job.task))
    if defaults is None:
        return job
    follows = FOLLOWED_AT_THE_PORT if job.strict else FOLLOWED
    changes = {
        field: value
        for name, field, value in _settings(defaults)
        if name not in job.given and name in follows and getattr(job, field) != value
    }
    if job.mock:
        # As when it is added: a mocked job does not repeat.
        changes.pop("repeat", None)
    if defaults.then is not None and "then" not in job.given and not job.strict and job.into != defaults.into:
        changes["into"] = defaults.into
    if defaults.expires_in_ms and "expires" not in job.given and not job.strict:
        expires_at = job.created_at + defaults.expires_in_ms
        changes |= {"expires_at": expires_at} if expires_at != job.expires_at else {}
    return replace(job, **changes) if changes else job


@lru_cache(maxsize=4096)
def _settings(defaults: Defaults) -> tuple[tuple[str, str, Any], ...]:
    """What a task says, as (option, field of a job, value); `expires` is no field of a job."""
    said = ((name, field, getattr(defaults, field)) for name, field in FOLLOWED.items() if name != "expires")
    return tuple(one for one in said if one[2] is not None)


def source_of(job: Job, option: str) -> str:
    """Where a job has one of the `FOLLOWED` options from: "given", "task", "port" or "default"."""
    if option in job.given:
        return "given"
    field = "expires_at" if option == "expires" else FOLLOWED[option]
    if getattr(job, field) == getattr(_USUAL, field):
        return "default"
    return "port" if job.strict and option not in FOLLOWED_AT_THE_PORT else "task"


# A job of which nobody has said anything.
_USUAL = Job(id=0, task="-")
