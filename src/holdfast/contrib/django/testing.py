"""The queue in Django's tests: in the test database, inside the transactions of Django's connection.

    TestCase               each test is in a transaction: jobs that it adds are gone with it
    TransactionTestCase    commits; the jobs are removed when Django empties the database
    any `atomic`           what is rolled back is not there

It needs no set-up: the queue is there in every test of Django's, also one with a `url`.
`holdfast.testing.run_due(queue)` runs the jobs.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from ...core.commands import Command
from ...core.queries import Query
from ...engine.ticket import Ticket
from ...queue.loop_thread import LoopThread
from ...store.common.inside import InsideStore
from ...store.sqlite.inside import InsideSqlite
from ...testing.inside import InsideConnection, InsideSession
from .setting import address_of


def is_testing() -> bool:
    """Whether Django's test environment is set up, as all of its test runners do."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")


def session_in_tests(alias: str, retention_ms: int | None) -> InsideSession:
    """A session of a queue in a database of Django's: the test database, once that was created."""

    def borrow(connection: Any, fn: Callable[[Any], Any]) -> Any:
        return _borrower(alias).borrow(connection, fn)

    store = InsideStore(borrow, partial(_transaction, alias), f"database {alias!r} of the test")
    return InsideSession(DjangoConnection(store, retention_ms=retention_ms))


class DjangoConnection(InsideConnection):
    """A connection on which coroutines ask in the thread in which their models do, too."""

    def ask_async(self, asked: Command | Query, *, wait_s: float = 0.0) -> Coroutine[Any, Any, Any]:
        """Run a command or query in the thread of `sync_to_async`."""
        asking: Coroutine[Any, Any, Any] = sync_to_async(self.ask)(asked, wait_s=wait_s)
        return asking

    def submit(self, ticket: Ticket) -> None:
        """The same for a command whose reply a coroutine waits for."""
        if ticket.loop is None:
            super().submit(ticket)
        else:
            asyncio.run_coroutine_threadsafe(sync_to_async(super().submit)(ticket), ticket.loop)


class LoopInTests(LoopThread):
    """Runs coroutine handlers so that their `sync_to_async` runs in the thread of the test."""

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Run an awaitable to its end."""

        async def run() -> Any:
            return await awaitable

        return async_to_sync(run)()


def remove_jobs(alias: str) -> None:
    """Remove the store in a database of Django's."""
    with _transaction(alias) as connection:
        _borrower(alias).remove(connection)


def _borrower(alias: str) -> Any:
    try:
        address = address_of(alias)
    except ImproperlyConfigured as error:
        needed = "in these tests use holdfast.testing.in_memory(queue)"
        raise ImproperlyConfigured(f"{error}; {needed}") from None
    if not address.startswith("postgresql:"):
        return InsideSqlite()
    from ...store.postgres.inside import InsidePostgres

    return InsidePostgres(address)


@contextmanager
def _transaction(alias: str) -> Iterator[Any]:
    """Django's connection of this thread, in a transaction: that of the test, or a new one."""
    connection = connections[alias]
    if connection.in_atomic_block:
        connection.validate_no_broken_transaction()
        yield connection
        return
    with transaction.atomic(using=alias):
        yield connection
