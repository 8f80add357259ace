"""Which store, which tenant, which form of output: what may be said before or after every command.

A command that only looks, or changes what must exist already, opens the store with `existing`; one that
may bring the first job with `open`, which creates the file.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import BadInput, StoreError

if TYPE_CHECKING:
    from ..queue.aio import AsyncQueue
    from ..queue.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])
STORE = "jobs.db"


class Session:
    """What the words of a command line said of where and how."""

    def __init__(self) -> None:
        self.store = STORE
        self.tenant = ""
        self.as_json = False

    @classmethod
    def of(cls, store: str) -> "Session":
        """One on another store."""
        session = cls()
        session.store = store
        return session

    @contextmanager
    def open(self, *, create: bool = True) -> "Iterator[Queue]":
        """The queue; its store is created if need be."""
        from ..queue.connect import connect

        self.check()
        with connect(self.store, tenant=self.tenant, join=False, follow=False, create=create) as queue:
            yield queue

    @contextmanager
    def existing(self) -> "Iterator[Queue]":
        """The queue of a store that is there; a missing one is not created."""
        self.check(exists=True)
        with self.open(create=False) as queue:
            yield queue

    def many(self) -> "AsyncQueue":
        """The same queue for many verbs at once, which the store commits together."""
        from ..queue.connect import connect_async

        self.check(exists=True)
        return connect_async(self.store, tenant=self.tenant, join=False, follow=False, create=False)

    def check(self, *, exists: bool = False) -> None:
        """Refuse an address that leads to no store which outlives the command, or is not there."""
        from ..queue.connect import is_served, is_shared, store_file, store_files

        path = store_file(self.store)
        if is_served(self.store):
            # Whether it is there is asked of the server, by the first verb.
            return
        if not is_shared(self.store):
            needed = "one that outlives this command, such as a file"
            raise BadInput("store", self.store, needed=needed)
        if any("\0" in str(file) for file in store_files(self.store)):
            raise BadInput("store", self.store, needed="the name of a file")
        if exists and not any(_has_bytes(str(file)) for file in store_files(self.store)):
            raise StoreError(
                f"there is no store at {path or self.store}; say which one with --store or HOLDFAST_STORE, "
                "or make one with: holdfast add TASK"
            )


def _has_bytes(path: str) -> bool:
    """Whether there is anything to open; where that cannot be told, opening it will tell why."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def now_ms(queue: "Queue") -> int:
    """The time by the store's clock."""
    return queue.line.committer.engine.store.now_ms()


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    # Said after the command it comes later, and wins.
    if value is not None and value is not False:
        setattr(session, str(param.name), value)


def settings(*, env: bool = False) -> Callable[[F], F]:
    """Give a command --store, --tenant and --json, and so a `Session` for `click.pass_obj`."""
    store = click.option(
        "--store",
        metavar="URL",
        envvar="HOLDFAST_STORE" if env else None,
        help=f"The store: a file, sqlite:///…, postgresql://… or redis://…  [HOLDFAST_STORE, or {STORE}]",
        callback=_set,
        expose_value=False,
    )
    tenant = click.option("--tenant", metavar="NAME", help="Whose jobs.", callback=_set, expose_value=False)
    as_json = click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="One JSON object for each line, for programs.",
        callback=_set,
        expose_value=False,
    )
    return lambda function: store(tenant(as_json(function)))
