"""The queue of a Django project for `holdfast worker`: importing this sets up Django first."""

import django
from django.apps import apps

from .project import queue_of_project

if not apps.ready:
    django.setup()

queue = queue_of_project()
