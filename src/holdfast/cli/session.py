"""The store, the tenant and the form of output: options that may be before or after every command.

A command that reads, or changes something that must exist, opens the store with `existing`, which creates it
only with --create. A command that may add the first job uses `open`, which creates it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ..core.errors import BadInput

if TYPE_CHECKING:
    from ..queue.aio import AsyncQueue
    from ..queue.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])
STORE = "jobs.db"
# The variable by which the completion script of a shell asks for completions.
COMPLETE = "_HOLDFAST_COMPLETE"


class Session:
    """The values of these options."""

    def __init__(self) -> None:
        self.store = STORE
        self.tenant = ""
        self.as_json = False
        self.create = False
        # Which of these were given by options; HOLDFAST_STORE is for the commands that ask for a store.
        self.said: set[str] = set()

    @classmethod
    def of(cls, store: str) -> "Session":
        """The same with another store."""
        session = cls()
        session.store = store
        return session

    @contextmanager
    def open(self, *, create: bool = True) -> "Iterator[Queue]":
        """The queue; its store is created if needed."""
        from ..queue.connect import connect

        self.check()
        with connect(self.store, tenant=self.tenant, join=False, follow=False, create=create) as queue:
            yield queue

    @contextmanager
    def existing(self) -> "Iterator[Queue]":
        """The queue of an existing store; raises `StoreMissing` if there is none, except with --create."""
        with self.open(create=self.create) as queue:
            yield queue

    def many(self) -> "AsyncQueue":
        """The queue for many calls at once, which share commits."""
        from ..queue.connect import connect_async

        self.check()
        return connect_async(self.store, tenant=self.tenant, join=False, follow=False, create=False)

    def check(self) -> None:
        """Refuse the address of a store that ends with the command."""
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
    """The time of the store."""
    from ..core.queries import GetTime

    found: int = queue.connection.ask(GetTime())
    return found


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    # An option after the command is parsed later, and wins.
    if value is not None and value is not False:
        setattr(session, str(param.name), value)
        if ctx.get_parameter_source(str(param.name)) is not ParameterSource.ENVIRONMENT:
            session.said.add(str(param.name))


def options_of(*, env: bool = False, create: bool = False) -> list[click.Option]:
    """--store, --tenant and --json, and with `create` --create: they make the `Session` of a command.

    `create` is for commands that make sense on an empty store.
    """
    store = click.Option(
        ["--store"],
        metavar="URL",
        envvar="HOLDFAST_STORE" if env else None,
        help=f"The store: a file, sqlite:///…, postgresql://… or redis://…  [HOLDFAST_STORE, or {STORE}]",
        callback=_set,
        expose_value=False,
    )
    made = [store]
    for words, more in (
        (["--tenant"], {"metavar": "NAME", "help": "Use the jobs of this tenant."}),
        (["--json", "as_json"], {"is_flag": True, "help": "Print JSON, one object per line."}),
        (["--create"], {"is_flag": True, "help": "Create the store if there is none."}),
    ):
        made.append(click.Option(words, callback=_set, expose_value=False, **more))
    return made if create else made[:-1]


def settings(*, env: bool = False, create: bool = False) -> Callable[[F], F]:
    """Give a command the options of `options_of`, and so a `Session` for `click.pass_obj`."""

    def decorate(function: F) -> F:
        # As decorators of click do it, which read the list from its end.
        found = function.__dict__.setdefault("__click_params__", [])
        found += reversed(options_of(env=env, create=create))
        return function

    return decorate
