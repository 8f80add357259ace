"""The settings of the example, with a backend."""

from shop.settings import *  # noqa: F403
from shop.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.contrib.chores"]
BACKEND = {"BACKEND": "holdfast.contrib.django.backend.HoldfastBackend", "QUEUES": ["default", "mail"]}
TASKS = {"default": BACKEND, "again": BACKEND | {"OPTIONS": {"attempts": 2}}}
