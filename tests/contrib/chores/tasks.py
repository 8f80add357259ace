"""Tasks as people write them for `django.tasks`."""

from typing import Any

from asgiref.sync import sync_to_async
from orders.models import Order

from holdfast.contrib.django.backend import LIBRARY

if LIBRARY == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task


@task
def add(first: int, *, second: int = 1) -> int:
    """Arguments by place and by name."""
    return first + second


@task(takes_context=True, priority=50)
def describe(context: Any) -> list[Any]:
    """What a task hears of itself."""
    return [context.task_result.id, context.attempt, context.task_result.task.priority]


@task
async def count() -> Any:
    """A coroutine, which sees the rows of the test."""
    return await sync_to_async(Order.objects.count)()


@task(backend="again")
def fail(text: str) -> None:
    """An error that may be retried."""
    raise LookupError(text)
