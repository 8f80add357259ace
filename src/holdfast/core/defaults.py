"""The default options of a task, for jobs whose caller gave none. See docs/decisions/0014.

A worker publishes the options of its decorators. So a job gets them even if it was added by a program that
does not know the task: the command line, SQL, or a call by name. A claim fills in the options that the caller
did not give.
"""

from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from .job import Backoff, Job, Record

# Tenant (None: all tenants) and task.
TaskKey = tuple[str | None, str]


class Defaults(Record, frozen=True, kw_only=True):
    """The default options of a task, as fields of a job; None: no default."""

    max_attempts: int | None = None
    max_losses: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    retry_after: int | str | None = None
    # Counted from when the job was added.
    expires_in_ms: int | None = None
    repeat: str | None = None
    # The JSON of the follow-up job, as in a job's record.
    then: str | None = None
    # The parameter of the follow-up job that gets the result: part of `then`.
    into: str = ""
    wait_for_failed: bool | None = None
    on_failure: str | None = None


# The options that can be filled in when a job is claimed, and the field of `Defaults` for each. Others
# (priority, delay, domain, unique …) decide when and whether it is claimed, so they are fixed by the add.
FOLLOWED = {
    "attempts": "max_attempts",
    "losses": "max_losses",
    "backoff": "backoff",
    "timeout": "timeout_ms",
    "retry_after": "retry_after",
    "expires": "expires_in_ms",
    "repeat": "repeat",
    "then": "then",
    "on_failure": "on_failure",
    "when_child_fails": "wait_for_failed",
}
# Of a job that was added through the job-command port: those about which the documents say nothing. They
# limit the losses of jobs with `retry_after` only.
FOLLOWED_AT_THE_PORT = ("attempts", "losses", "backoff", "timeout", "expires", "then", "on_failure")
# What such a job has until its task says otherwise.
_PORT_FIELDS = {"max_attempts": 0, "max_losses": 0}
NO_DEFAULTS = Defaults()

Published = dict[TaskKey, Defaults]


def kept_names(given: tuple[str, ...]) -> tuple[str, ...]:
    """The options given by the caller that the job must record."""
    return tuple(name for name in given if name in FOLLOWED) if given else given


def follow(job: Job, published: Published) -> Job:
    """Return a job that is about to be claimed, with the defaults of its task for options not given."""
    defaults = published.get((job.tenant, job.task)) or published.get((None, job.task))
    if defaults is None:
        return job
    changes = {
        field: value
        for name, field, value in _settings(defaults)
        if _follows(job, name) and getattr(job, field) != value
    }
    if job.mock:
        # The same when it is added: a mocked job does not repeat.
        changes.pop("repeat", None)
    if defaults.then is not None and "then" not in job.given and job.into != defaults.into:
        changes["into"] = defaults.into
    if defaults.expires_in_ms and "expires" not in job.given:
        expires_at = job.created_at + defaults.expires_in_ms
        changes |= {"expires_at": expires_at} if expires_at != job.expires_at else {}
    return replace(job, **changes) if changes else job


def _follows(job: Job, option: str) -> bool:
    """Whether a job takes an option of its task: neither its caller nor the documents have set it."""
    if option in job.given or not job.strict:
        return option not in job.given
    return option in FOLLOWED_AT_THE_PORT and not (option == "losses" and job.retry_after)


@lru_cache(maxsize=4096)
def _settings(defaults: Defaults) -> tuple[tuple[str, str, Any], ...]:
    """The defaults as (option, field of a job, value); `expires` is not a field of a job."""
    said = ((name, field, getattr(defaults, field)) for name, field in FOLLOWED.items() if name != "expires")
    return tuple(one for one in said if one[2] is not None)


def source_of(job: Job, option: str) -> str:
    """Where the value of a `FOLLOWED` option comes from: "given", "task", "port" or "default"."""
    if option in job.given:
        return "given"
    field = "expires_at" if option == "expires" else FOLLOWED[option]
    value = getattr(job, field)
    if value == getattr(_DEFAULT_JOB, field):
        return "default"
    is_of_port = job.strict and (not _follows(job, option) or _PORT_FIELDS.get(field) == value)
    return "port" if is_of_port else "task"


# A job with the default of every field.
_DEFAULT_JOB = Job(id=0, task="-")
