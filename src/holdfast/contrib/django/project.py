"""The queue of a Django project.

add in `transaction.atomic`     in the transaction, on Django's connection: the job comes with its commit
add outside of it               as in any other queue
each run of a handler           Django's connections are closed before and after, as for a request, if
                                they are cut or older than CONN_MAX_AGE
in Django's tests               all in the test database, see `testing`; `in_memory` goes by its transactions
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, reset_queries

from ...core.commands import NewJob
from ...core.errors import BadInput
from ...core.job import Body
from ...queue.base import QueueSession
from ...queue.connect import store_maker
from ...queue.queue import ClaimedJob, Queue
from ...queue.task import Handle
from ...testing.inside import EachTimePublisher, InsideSession
from ...testing.transactions import MemoryMaker
from .setting import SETTING, Setting, read_setting
from .testing import LoopInTests, is_testing, remove_jobs, session_in_tests


class DjangoQueue(Queue):
    """A queue whose adds are part of Django's transactions, if it is in a database of Django's."""

    def __init__(self, setting: Setting) -> None:
        self._maker = store_maker(setting.url)
        super().__init__(self._maker, url=setting.url, **setting.options)
        # The name of the database that it is in; "": in another store.
        self.database = setting.database
        self.around_run(self._with_fresh_connections)

    def _add_one(self, new: NewJob, connection: Any = None) -> Handle[Any]:
        return super()._add_one(new, self._transaction() if connection is None else connection)

    def _add_each(self, jobs: Iterable[NewJob | Body], connection: Any = None) -> list[Handle[Any]]:
        return super()._add_each(jobs, self._transaction() if connection is None else connection)

    def _transaction(self) -> Any:
        """Django's connection to the database of the queue, if `transaction.atomic` is open on it."""
        if not self.database or (is_testing() and not isinstance(self._make_store, MemoryMaker)):
            return None
        connection = connections[self.database]
        if not connection.in_atomic_block:
            return None
        # As Django refuses its own statements after an error that an `atomic` inside has let through.
        connection.validate_no_broken_transaction()
        return connection

    def _with_fresh_connections(self, job: ClaimedJob) -> Any:
        # Coroutines use the connections of another thread, that of `sync_to_async`.
        return _fresh_async() if self.tasks[job.task].handling.is_coroutine else _fresh()

    @property
    def session(self) -> QueueSession:
        """The session of this process, opened on first use; in Django's tests one in the test database."""
        if self._session is None and is_testing() and self._make_store is self._maker:
            assert self.hooks is not None
            self.publisher, self.hooks.loop = EachTimePublisher(), LoopInTests()
            self._session = session_in_tests(self.database or DEFAULT_DB_ALIAS, self._retention_ms)
        return super().session

    def remove_jobs(self, database: str) -> None:
        """Remove all jobs of the test that has ended, if they are in this database."""
        if isinstance(self._session, InsideSession) and database == (self.database or DEFAULT_DB_ALIAS):
            remove_jobs(database)


@contextmanager
def _fresh() -> Iterator[None]:
    _refresh()
    try:
        yield
    finally:
        _refresh()


@asynccontextmanager
async def _fresh_async() -> AsyncIterator[None]:
    await sync_to_async(_refresh)()
    try:
        yield
    finally:
        await sync_to_async(_refresh)()


def _refresh() -> None:
    # With DEBUG Django keeps each statement until then.
    reset_queries()
    for connection in connections.all(initialized_only=True):
        # In a test the job runs inside its transaction.
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def make_queue(given: Any = None) -> DjangoQueue:
    """A queue by the setting of the project, or by another one; raises `ImproperlyConfigured`."""
    setting = read_setting(given)
    try:
        return DjangoQueue(setting)
    except BadInput as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from None


@cache
def queue_of_project() -> DjangoQueue:
    """The one queue of this project."""
    return make_queue()
