"""Which store, which tenant, which form of output: what may be said before or after every command.

A command that only reads, or changes what must exist already, opens the store with `existing`, which creates
none unless --create says so; one that may bring the first job with `open`, which creates it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import BadInput

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
        self.create = False
        # Which of these were said, or are in the environment.
        self.said: set[str] = set()

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
        """The queue of a store that is there; a missing one is `StoreMissing`, unless --create was given."""
        with self.open(create=self.create) as queue:
            yield queue

    def many(self) -> "AsyncQueue":
        """The same queue for many verbs at once, which the store commits together."""
        from ..queue.connect import connect_async

        self.check()
        return connect_async(self.store, tenant=self.tenant, join=False, follow=False, create=False)

    def check(self) -> None:
        """Refuse the address of a store that does not outlive the command."""
        from ..queue.connect import is_served, is_shared, store_file, store_files

        store_file(self.store)  # which checks the address
        if is_served(self.store):
            return
        if not is_shared(self.store):
            needed = "one that outlives this command, such as a file"
            raise BadInput("store", self.store, needed=needed)
        if any("\0" in str(file) for file in store_files(self.store)):
            raise BadInput("store", self.store, needed="the name of a file")


def now_ms(queue: "Queue") -> int:
    """The time by the store's clock."""
    from ..core.queries import GetTime

    found: int = queue.connection.ask(GetTime())
    return found


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    # Said after the command it comes later, and wins.
    if value is not None and value is not False:
        setattr(session, str(param.name), value)
        session.said.add(str(param.name))


def settings(*, env: bool = False, create: bool = False) -> Callable[[F], F]:
    """Give a command --store, --tenant and --json, and so a `Session` for `click.pass_obj`.

    `create`: and --create, for commands that say something of an empty store too.
    """
    store = click.option(
        "--store",
        metavar="URL",
        envvar="HOLDFAST_STORE" if env else None,
        help=f"The store: a file, sqlite:///…, postgresql://… or redis://…  [HOLDFAST_STORE, or {STORE}]",
        callback=_set,
        expose_value=False,
    )
    tenant = click.option(
        "--tenant", metavar="NAME", help="Use the jobs of this tenant.", callback=_set, expose_value=False
    )
    as_json = click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print JSON, one object per line.",
        callback=_set,
        expose_value=False,
    )
    create_option = click.option(
        "--create",
        is_flag=True,
        help="Create the store if there is none.",
        callback=_set,
        expose_value=False,
    )
    options = (store, tenant, as_json, *((create_option,) if create else ()))
    return lambda function: reduce(lambda made, option: option(made), reversed(options), function)
