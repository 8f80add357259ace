"""The application `holdfast.contrib.django`, for INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from .project import queue_of_project


class HoldfastConfig(AppConfig):
    """Checks the setting and imports `tasks.py` of each application; opens nothing."""

    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Called when all models are known."""
        queue_of_project()
        autodiscover_modules("tasks")
