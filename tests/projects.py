"""A Django project of one database, for as long as a test needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def django_connection(**database: Any) -> Iterator[BaseDatabaseWrapper]:
    """What `django.db.connections["ours"]` is in a project with that database; `atomic(using="ours")`."""
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    connections.settings["ours"] = connections.configure_settings({"default": {}, "ours": database})["ours"]
    try:
        yield connections["ours"]
    finally:
        connections["ours"].close()
        del connections["ours"], connections.settings["ours"]


def run_in(connection: BaseDatabaseWrapper, sql: str) -> None:
    """A statement by Django's own hand."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
