"""A backend of `django.tasks`; before Django 6 of the package `django-tasks`, which has the same interface.

    @task                    declares a task of the queue, named by the path of the function
    task.enqueue(…)          adds a job: in `transaction.atomic` as a part of that
    manage.py holdfast …     runs it

A name of a queue other than "default" is the domain of the job, so that it can have limits and pauses.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from inspect import iscoroutinefunction
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.module_loading import import_string

from ...core.bounds import DEFAULT_PRIORITY
from ...core.errors import BadInput, NotFound
from ...core.job import Job, Outcome, State
from ...queue.answers import Failed
from ...queue.context import AsyncContext, Context
from .project import queue_of_project

LIBRARY = "django.tasks" if find_spec("django.tasks") else "django_tasks"
tasks = import_module(f"{LIBRARY}.base")
backends = import_module(f"{LIBRARY}.backends.base")
exceptions = import_module(f"{LIBRARY}.exceptions")
signals = import_module(f"{LIBRARY}.signals")
Status: Any = tasks.TaskResultStatus
# Its tasks do not expect to run again after an error.
DEFAULTS = {"attempts": 1}
_ERROR = re.compile(r"[\w.]+(?=: |$)")


class HoldfastBackend(backends.BaseTaskBackend):  # type: ignore[name-defined]
    """Keeps tasks as jobs of the project's queue. OPTIONS are options of jobs, such as `attempts`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    # The tasks that were declared, by the paths of their functions.
    _declared: ClassVar[set[str]] = set()

    def validate_task(self, task: Any) -> None:
        """Check a task, and declare it: Django does this where a task is defined."""
        super().validate_task(task)
        if task.module_path not in self._declared:
            self._declared.add(task.module_path)
            run = self._coroutine(task) if iscoroutinefunction(task.func) else self._function(task)
            queue_of_project().task(task.module_path)(run)

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add a job for a call; returns its `TaskResult`."""
        self.validate_task(task)
        result = self._make_result(task, Job(id=0, task=task.module_path), {"args": args, "kwargs": kwargs})
        options: dict[str, Any] = DEFAULTS | self.options
        options["priority"] = DEFAULT_PRIORITY + task.priority
        if task.run_after is not None:
            naive = timezone.is_naive(task.run_after)
            options["run_at"] = timezone.make_aware(task.run_after) if naive else task.run_after
        if task.queue_name != tasks.DEFAULT_TASK_QUEUE_NAME:
            options["domain"] = task.queue_name
        data = {"args": result.args, "kwargs": result.kwargs}
        _set(result, id=str(queue_of_project().add(task.module_path, data, **options).id))
        _set(result, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The `TaskResult` of a job, as it is now."""
        queue = queue_of_project()
        try:
            job = queue.get(int(result_id))
            task, data = import_string(job.task), queue.data(job)
        except (ValueError, NotFound, BadInput, ImportError):
            raise exceptions.TaskResultDoesNotExist(result_id) from None
        if not isinstance(task, tasks.Task):
            raise exceptions.TaskResultDoesNotExist(result_id)
        result = self._make_result(task, job, data)
        if job.ended == State.FINISHED and job.has_result:
            _set(result, _return_value=queue.result(job))
        return result

    # Runs

    def _function(self, task: Any) -> Any:
        def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
            result = self._begin(ctx, task, args, kwargs)
            signals.task_started.send(type(self), task_result=result)
            try:
                value = task.func(*_context(task, result), *args, **kwargs)
            except Exception as error:
                if self._ends_by(ctx, result, error):
                    signals.task_finished.send(type(self), task_result=result)
                raise
            _set(result, status=Status.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
            signals.task_finished.send(type(self), task_result=result)
            return value

        return run

    def _coroutine(self, task: Any) -> Any:
        async def run(ctx: AsyncContext, args: list[Any], kwargs: dict[str, Any]) -> Any:
            result = self._begin(ctx, task, args, kwargs)
            await signals.task_started.asend(type(self), task_result=result)
            try:
                value = await task.func(*_context(task, result), *args, **kwargs)
            except Exception as error:
                if self._ends_by(ctx, result, error):
                    await signals.task_finished.asend(type(self), task_result=result)
                raise
            _set(result, status=Status.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
            await signals.task_finished.asend(type(self), task_result=result)
            return value

        return run

    def _begin(self, ctx: Context | AsyncContext, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = self._make_result(task, ctx._job.record, {"args": args, "kwargs": kwargs})
        started_at = timezone.now()
        _set(result, status=Status.RUNNING, started_at=started_at, last_attempted_at=started_at)
        return result

    def _ends_by(self, ctx: Context | AsyncContext, result: Any, error: Exception) -> bool:
        """Note the exception of a run; returns whether the job ends with it."""
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(tasks.TaskError(exception_class_path=path, traceback=""))
        ends = isinstance(error, Failed) or ctx.attempt >= ctx._job.record.max_attempts
        _set(result, status=Status.FAILED if ends else Status.READY, finished_at=timezone.now())
        return ends

    def _make_result(self, task: Any, job: Job, data: dict[str, Any]) -> Any:
        queue_name = job.domain.decode() if job.domain else task.queue_name
        task = task.using(priority=job.priority - DEFAULT_PRIORITY, queue_name=queue_name, backend=self.alias)
        ended = job.ended is not None
        runs = [
            *job.errors,
            *([job.outcome] if ended and job.outcome and job.outcome not in job.errors else []),
        ]
        status = Status.RUNNING if job.state == State.RUNNING else Status.READY
        if ended:
            status = Status.SUCCESSFUL if job.ended == State.FINISHED else Status.FAILED
        return tasks.TaskResult(
            task=task,
            id=str(job.id),
            status=status,
            enqueued_at=_moment(job.created_at),
            started_at=_moment(job.started_at),
            finished_at=_moment(job.finished_at),
            last_attempted_at=_moment(job.started_at),
            args=data["args"],
            kwargs=data["kwargs"],
            backend=self.alias,
            errors=[_error(run) for run in runs if run.error],
            worker_ids=[str(owner) for owner in (*(run.owner for run in runs), job.owner) if owner],
        )


def _context(task: Any, result: Any) -> list[Any]:
    return [tasks.TaskContext(task_result=result)] if task.takes_context else []


def _error(outcome: Outcome) -> Any:
    """The error of a run; one that names no exception is that of the queue."""
    found = _ERROR.match(outcome.error)
    path = found[0] if found else "holdfast.Failed"
    path = path if "." in path else f"builtins.{path}"
    return tasks.TaskError(exception_class_path=path, traceback=outcome.traceback)


def _moment(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _set(result: Any, **fields: Any) -> None:
    # Frozen for users; Django's own backends do the same.
    for name, value in fields.items():
        object.__setattr__(result, name, value)
