"""The job whose handler runs, in a context variable: so that the lines it logs can carry the job's id."""

import logging
from collections.abc import Sequence
from contextvars import ContextVar, Token

from ..core.job import Job
from .claimed import Holding

# The record of the job, or of a batch of several jobs the name of their task.
_current: ContextVar[Job | str | None] = ContextVar("holdfast_job", default=None)
reset_current = _current.reset


def set_current(jobs: Sequence[Holding]) -> Token[Job | str | None]:
    """Note in this context that jobs run; the token takes it back."""
    return _current.set(jobs[0].record if len(jobs) == 1 else jobs[0].task)


def current_job_id() -> int | None:
    """The id of the job whose handler runs in this context; None outside of one, and in a batch of several.

    It follows the handler into coroutines, `asyncio.create_task` and `asyncio.to_thread`; a thread that
    the handler starts by itself has none, unless it is run in a copy of the context.
    """
    job = _current.get()
    return job.id if isinstance(job, Job) else None


class JobLogFilter(logging.Filter):
    """Gives each record `job_id`, `task`, `attempt` and `tenant` of the job that runs; None where none does.

    Add it to a handler, so that it sees the records of all loggers. It drops nothing.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the fields that the record does not have yet."""
        for name, value in _fields(_current.get()).items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def _fields(job: Job | str | None) -> dict[str, object]:
    if isinstance(job, Job):
        return {"job_id": job.id, "task": job.task, "attempt": job.attempts + 1, "tenant": job.tenant}
    return {"job_id": None, "task": job, "attempt": None, "tenant": None}
