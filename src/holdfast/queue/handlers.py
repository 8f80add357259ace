"""`queue.handlers`: the handlers in the store for the tasks of a tenant."""

from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from typing import Any, Protocol, TypedDict, TypeVar, Unpack

from ..core.bounds import HANDLER_PAGE
from ..core.errors import BadInput
from ..core.handler import (
    DeleteHandler,
    GetHandler,
    Handler,
    ListHandlers,
    ListHandlerVersions,
    RollBackHandler,
    RunnerOptions,
    SetHandler,
    check_handler,
)
from ..core.units import duration_ms
from .asks import QueueRequest, same
from .options import Duration, task_name

T = TypeVar("T")


class HandlerOptions(TypedDict, total=False):
    """The options of `set`."""

    eid: str
    before: str
    before_each: str
    after_each: str
    batch: bool
    batch_size: int
    timeout: Duration
    cpu: Duration
    memory_mb: int
    output_kb: int
    open_files: int
    context_jobs: int
    context_age: Duration


_SCRIPTS = ("eid", "before", "before_each", "after_each")
_DURATIONS = {"timeout": "timeout_ms", "cpu": "cpu_ms", "context_age": "context_age_ms"}
_KNOWN = HandlerOptions.__annotations__.keys()


def new_handler(task: Any, body: str, lang: str, options: HandlerOptions, *, tenant: str) -> Handler:
    """Return the handler to store; raises if it is not valid."""
    if unknown := options.keys() - _KNOWN:
        raise BadInput("option", min(unknown), needed=f"one of {', '.join(_KNOWN)}")
    given: dict[str, Any] = dict(options)
    scripts = {name: given.pop(name) for name in _SCRIPTS if name in given}
    made = Handler(
        task=task_name(task), tenant=tenant, lang=lang, body=body, options=runner_options(given), **scripts
    )
    # Checked here and not only by the engine: a bad handler must not create the store.
    check_handler(made)
    return made


def runner_options(given: Mapping[str, Any]) -> RunnerOptions:
    """The options of a runner by their names in `set`, with durations as users write them."""
    fields: dict[str, Any] = {
        _DURATIONS.get(name, name): duration_ms(value, name=name) if name in _DURATIONS else value
        for name, value in given.items()
    }
    return RunnerOptions(**fields)


def _set(task: Any, body: str, lang: str, options: HandlerOptions, *, tenant: str) -> QueueRequest[Handler]:
    return QueueRequest(SetHandler(handler=new_handler(task, body, lang, options, tenant=tenant)), same)


def _get(task: Any, version: int | None, *, tenant: str) -> QueueRequest[Handler]:
    return QueueRequest(GetHandler(task=task_name(task), tenant=tenant, version=version or 0), same)


def _delete(task: Any, *, tenant: str) -> QueueRequest[None]:
    return QueueRequest(DeleteHandler(task=task_name(task), tenant=tenant), same)


def _roll_back(task: Any, version: int | None, *, tenant: str) -> QueueRequest[Handler]:
    return QueueRequest(RollBackHandler(task=task_name(task), tenant=tenant, version=version or 0), same)


def _list(*, tenant: str) -> QueueRequest[list[Handler]]:
    return QueueRequest(ListHandlers(tenant=tenant), same)


def _versions(task: Any, before: int | None, *, tenant: str) -> QueueRequest[list[Handler]]:
    asked = ListHandlerVersions(task=task_name(task), tenant=tenant, before=before or 0, limit=HANDLER_PAGE)
    return QueueRequest(asked, same)


class AsksAsync(Protocol):
    """How an `AsyncQueue` sends requests."""

    def __call__(self, ask: QueueRequest[T], /) -> Awaitable[T]:
        """The reply."""


class Asks(Protocol):
    """How a `Queue` sends requests."""

    def __call__(self, ask: QueueRequest[T], /) -> T:
        """The reply."""


class Handlers:
    """The handlers of a queue's tenant."""

    def __init__(self, ask: Asks, tenant: str) -> None:
        self._ask, self._tenant = ask, tenant

    def set(self, task: Any, body: str, *, lang: str, **options: Unpack[HandlerOptions]) -> Handler:
        """Store a new version of a task's handler; if it equals the newest version, nothing changes."""
        return self._ask(_set(task, body, lang, options, tenant=self._tenant))

    def get(self, task: Any, version: int | None = None) -> Handler:
        """The newest version of a handler, or one by its number."""
        return self._ask(_get(task, version, tenant=self._tenant))

    def versions(self, task: Any, *, before: int | None = None) -> list[Handler]:
        """A page of versions without their scripts, the newest first, below a number."""
        return self._ask(_versions(task, before, tenant=self._tenant))

    def delete(self, task: Any) -> None:
        """Delete a handler with all its versions; its jobs wait for another one."""
        self._ask(_delete(task, tenant=self._tenant))

    def roll_back(self, task: Any, version: int | None = None) -> Handler:
        """Store a copy of an earlier version as the newest: that number, or the one before the newest."""
        return self._ask(_roll_back(task, version, tenant=self._tenant))

    def __iter__(self) -> Iterator[Handler]:
        """All handlers, without their scripts."""
        yield from self._ask(_list(tenant=self._tenant))


class AsyncHandlers:
    """The handlers of a queue's tenant, for asyncio."""

    def __init__(self, ask: AsksAsync, tenant: str) -> None:
        self._ask, self._tenant = ask, tenant

    async def set(self, task: Any, body: str, *, lang: str, **options: Unpack[HandlerOptions]) -> Handler:
        """Store a new version of a task's handler; see `Handlers.set`."""
        return await self._ask(_set(task, body, lang, options, tenant=self._tenant))

    async def get(self, task: Any, version: int | None = None) -> Handler:
        """The newest version of a handler, or one by its number."""
        return await self._ask(_get(task, version, tenant=self._tenant))

    async def versions(self, task: Any, *, before: int | None = None) -> list[Handler]:
        """A page of versions; see `Handlers.versions`."""
        return await self._ask(_versions(task, before, tenant=self._tenant))

    async def delete(self, task: Any) -> None:
        """Delete a handler with all its versions."""
        await self._ask(_delete(task, tenant=self._tenant))

    async def roll_back(self, task: Any, version: int | None = None) -> Handler:
        """Store a copy of an earlier version as the newest; see `Handlers.roll_back`."""
        return await self._ask(_roll_back(task, version, tenant=self._tenant))

    async def __aiter__(self) -> AsyncIterator[Handler]:
        """All handlers, without their scripts."""
        for one in await self._ask(_list(tenant=self._tenant)):
            yield one
