"""Reports failed runs to Sentry: see docs/sentry.md.

    a handler raises ──▶ the job has attempts left    nothing; with `retries` a warning
                     └─▶ it has none left             an error, once, with the breadcrumbs of the run

Holdfast logs each of these too. What Sentry makes of that line is dropped if the run was reported here. What
no handler raises, such as the death of its process, is in the log alone.
"""

from collections import deque
from typing import Any

import sentry_sdk
from sentry_sdk.scope import add_global_event_processor, global_event_processors
from sentry_sdk.utils import event_from_exception

from ..core.errors import BadInput
from ..engine import joblog
from ..queue.answers import RAISED
from ..queue.base import BaseQueue
from ..queue.claimed import Holding

# How long the end of a process waits until all events are sent.
FLUSH_S = 2.0
# The runs that were reported last, as job ids and attempts: Holdfast logs each of them a moment later.
_reported: deque[tuple[int, int]] = deque(maxlen=1000)


def report_failures(queue: BaseQueue, *, data: bool = False, retries: bool = False) -> None:
    """Report failed runs of a queue's tasks to the Sentry client that is active then.

    With `retries` runs that will be repeated are reported too, as warnings. With `data` events have the data
    of the job, and the local variables of the handler, which may contain it.
    """
    if not isinstance(queue, BaseQueue):
        raise BadInput("queue", type(queue).__name__, needed="one of holdfast.connect or connect_async")

    @queue.around_run
    def report(job: Holding) -> _Run:
        return _Run(job, data=data, retries=retries)

    @queue.on_stop
    def flush() -> None:
        sentry_sdk.flush(timeout=FLUSH_S)

    if _of_log not in global_event_processors:
        add_global_event_processor(_of_log)


class _Run:
    """A run of a job: its scope in Sentry. No generator, whose frame would be in each traceback."""

    def __init__(self, job: Holding, *, data: bool, retries: bool) -> None:
        self._job, self._data, self._retries = job, data, retries
        self._isolation = sentry_sdk.isolation_scope()

    def __enter__(self) -> None:
        scope, job = self._isolation.__enter__(), self._job
        scope.clear_breadcrumbs()
        scope.set_tags(_tags(job.id, job.task, job.attempt, job.record.tenant))
        scope.set_transaction_name(job.task, source="task")
        if self._data:
            scope.set_context("job", {"data": job.data})
        else:
            scope.add_event_processor(_without_variables)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            # Of a claim that is lost another run decides.
            if isinstance(error, RAISED) and not self._job.lost:
                self._report(error)
        finally:
            self._isolation.__exit__(None, None, None)

    def _report(self, error: BaseException) -> None:
        job = self._job
        fate = "failed" if job.answered else job.fate_of(error)
        if fate != "failed" and not (fate == "retry" and self._retries):
            return
        _reported.append((job.id, job.attempt))
        event, hint = event_from_exception(
            error,
            client_options=sentry_sdk.get_client().options,
            mechanism={"type": "holdfast", "handled": fate == "retry"},
        )
        event["level"] = "error" if fate == "failed" else "warning"
        sentry_sdk.capture_event(event, hint=hint)


def _of_log(event: Any, hint: Any) -> Any:
    """Drop the log line of a run that was reported, and give tags to the others of Holdfast."""
    record = hint.get("log_record")
    if record is None or record.name != joblog.LOG.name:
        return event
    if (record.job_id, record.attempt) in _reported:
        return None
    event["tags"] = _tags(record.job_id, record.task, record.attempt, record.tenant) | event.get("tags", {})
    return _without_variables(event, hint)


def _tags(job_id: int, task: str, attempt: int, tenant: str) -> dict[str, str]:
    return {"job_id": str(job_id), "task": task, "attempt": str(attempt)} | (
        {"tenant": tenant} if tenant else {}
    )


def _without_variables(event: Any, _hint: Any) -> Any:
    """Remove the local variables: the arguments of the handler are among them."""
    for error in event.get("exception", {}).get("values", []):
        for frame in (error.get("stacktrace") or {}).get("frames", []):
            frame.pop("vars", None)
    return event
