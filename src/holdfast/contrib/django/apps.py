"""The application `holdfast.contrib.django`, for INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from .project import queue_of_project
from .testing import is_testing


class HoldfastConfig(AppConfig):
    """Checks the setting and imports `tasks.py` of each application; opens nothing."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Called when all models are known."""
        queue_of_project()
        autodiscover_modules("tasks")
        post_migrate.connect(_after_flush, sender=self)


def _after_flush(*, using: str, **facts: Any) -> None:
    """After a `TransactionTestCase` Django empties the database, and says so as after a migration."""
    if is_testing() and "plan" not in facts:
        queue_of_project().remove_jobs(using)
