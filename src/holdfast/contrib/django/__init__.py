"""Holdfast for Django: the queue of a project. See docs/django.md.

    setting       the setting HOLDFAST, and the address of the store in a database of Django's
    project       `queue`: its adds are part of `transaction.atomic`, its runs get fresh connections
    apps          the application: imports `tasks.py` of each application when Django starts
    worker        what executors import: Django is set up first
    testing       the queue in Django's tests
    dashboard     its pages behind Django's login; `urls` has their address
    backend       a backend of `django.tasks`
    management    `manage.py holdfast …`

Nothing is opened before the first job is added or the first worker starts.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .project import DjangoQueue

    queue: DjangoQueue

__all__ = ["queue"]


def __getattr__(name: str) -> Any:
    # On first use: the settings must be known by then, not when this package is imported.
    if name != "queue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .project import queue_of_project

    return queue_of_project()
