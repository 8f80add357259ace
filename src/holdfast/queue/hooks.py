"""Hooks: functions of the program that run once in a process, and around each add and each run.

    on_start     before the first job of a process; handlers get what it returns or yields, by its type
    on_stop      at the ordinary end of the process; the last one first
    around_add   around each job that the program adds
    around_run   around each run of a handler

A hook around something is a generator with one `yield`, or a function that returns a context manager. What it
surrounds has an outcome: a result, which `yield` returns, or an exception, which `yield` raises.
"""

import asyncio
import inspect
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

from msgspec.structs import replace

from ..core.commands import Add, NewJob
from ..core.errors import BadInput
from .answers import RAISED
from .asks import QueueRequest
from .definition import check_function, returned_type

AddRequest = QueueRequest[list[int]]
# Runs an awaitable to its end, from a thread.
Wait = Callable[[Awaitable[Any]], Any]
# The default of a parameter that an `on_start` provides, for type checkers: `client: Client = INJECTED`.
INJECTED: Any = None
_YIELDING = (Iterator, Generator, AsyncIterator, AsyncGenerator)
_AROUND = "a generator with one yield, or a function that returns a context manager"


class _Once(NamedTuple):
    """A hook of `on_start` or `on_stop`, and the type of what it provides; None: nothing."""

    function: Callable[[], Any]
    starts: bool
    kind: Any


class Hooks:
    """The hooks of a queue, and what those of `on_start` have provided in this process."""

    def __init__(self) -> None:
        self._once: list[_Once] = []
        self.around_add: list[Callable[[Any], Any]] = []
        self.around_run: list[Callable[[Any], Any]] = []
        self.forget()

    def forget(self) -> None:
        """Take nothing for started, at the beginning and after a fork."""
        self._lock = threading.Lock()
        # What handlers get, by type; and the ends of what was started.
        self._values: dict[Any, Any] = {}
        self._ends: list[Callable[[], Awaitable[Any]]] = []
        # For runs outside of a worker: hooks and handlers share an event loop, as they do in one.
        self.loop = LoopThread()
        self.is_started = not self._once

    # Once in a process

    @property
    def kinds(self) -> list[Any]:
        """The types that handlers may ask for."""
        return [one.kind for one in self._once if one.kind is not None]

    def declare(self, function: Callable[[], Any], *, starts: bool) -> None:
        """Add a hook of `on_start` or `on_stop`."""
        check_function(function, needs_name=False)
        if parameters := [*inspect.signature(function).parameters]:
            raise BadInput("hook", f"with the parameter {parameters[0]}", needed="a function without any")
        kind = _provided_type(function) if starts else None
        if kind is not None and kind in self.kinds:
            needed = "a type that no other on_start provides"
            raise BadInput("on_start", f"one that provides {kind}", needed=needed)
        self._once.append(_Once(function, starts, kind))
        self.is_started = False

    def surround(self, what: Literal["add", "run"], hook: Callable[[Any], Any]) -> None:
        """Add a hook around each add or run."""
        check_function(hook, needs_name=False)
        if inspect.iscoroutinefunction(hook) or len(inspect.signature(hook).parameters) != 1:
            raise BadInput("hook", hook, needed=f"{_AROUND}, with one parameter: the job")
        (self.around_add if what == "add" else self.around_run).append(hook)

    def value(self, kind: Any) -> Any:
        """What `on_start` has provided."""
        return self._values[kind]

    def start(self, wait: Wait) -> None:
        """Run the hooks of `on_start`, from a thread, unless that was done."""
        if self.is_started:
            return
        with self._lock:
            if not self.is_started:
                wait(self._start())

    async def start_async(self) -> None:
        """Run the hooks of `on_start`, on an event loop, unless that was done."""
        while not self.is_started:
            if not self._lock.acquire(blocking=False):
                await asyncio.sleep(0.01)
                continue
            try:
                await self._start()
            finally:
                self._lock.release()

    async def _start(self) -> None:
        try:
            for hook in self._once:
                if hook.starts:
                    value = await self._begin(hook.function)
                    self._values |= {} if hook.kind is None else {hook.kind: value}
                else:
                    self._ends.append(partial(_aside, hook.function))
            self.is_started = True
        finally:
            if not self.is_started:
                await self.stop_async()

    async def _begin(self, function: Callable[[], Any]) -> Any:
        """Run a hook of `on_start`; returns what it returns or yields."""
        if not _is_generator(function):
            return await _aside(function)
        opened = _Opened(function())
        value = await opened.do_aside(opened.enter())
        self._ends.append(lambda: opened.do_aside(opened.leave(None)))
        return value

    def stop(self, wait: Wait) -> None:
        """End what was started, from a thread."""
        if self._ends or self._values:
            wait(self.stop_async())

    def close(self) -> None:
        """End what was started outside of a worker, and the event loop of that."""
        try:
            self.stop(self.loop.wait)
        finally:
            self.loop.close()

    async def stop_async(self) -> None:
        """End what was started, the last one first; the first error is raised after all have run."""
        errors: list[BaseException] = []
        while self._ends:
            try:
                found = await self._ends.pop()()
                errors += [found] if isinstance(found, RAISED) else []
            except Exception as error:
                errors.append(error)
        self._values.clear()
        self.is_started = not self._once
        if errors:
            raise errors[0]

    # Around each add

    def add(self, ask: AddRequest, send: Callable[[AddRequest], list[int]]) -> list[int]:
        """Add jobs in the hooks around an add, from a thread; returns their ids."""
        jobs = _jobs_of(ask)
        around = Around(self.around_add, jobs, self.loop.wait)
        error, ids = at_once(around.enter()), list[int]()
        try:
            ids = ids if error else send(ask)
        except Exception as failed:
            error = failed
        return _ids(ids, error, at_once(around.leave([error] * len(jobs) if error else ids)))

    async def add_async(
        self, ask: AddRequest, send: Callable[[AddRequest], Awaitable[list[int]]]
    ) -> list[int]:
        """Add jobs in the hooks around an add, on an event loop; returns their ids."""
        jobs = _jobs_of(ask)
        around = Around(self.around_add, jobs, None)
        error, ids = await around.enter(), list[int]()
        try:
            ids = ids if error else await send(ask)
        except Exception as failed:
            error = failed
        return _ids(ids, error, await around.leave([error] * len(jobs) if error else ids))


class LoopThread:
    """An event loop in a thread of its own, which starts when something has to be awaited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Run an awaitable to its end; called in another thread."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_loop, args=(self._loop,), name="holdfast-loop", daemon=True
                )
                self._thread.start()
            waiting = asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the loop."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:
        # These would end the loop.
        raise RuntimeError(f"it raised {error!r}") from error


class Around:
    """The hooks around something that is done for several subjects, which has an outcome for each.

    `wait` is for a thread; None: this is an event loop. From a thread the coroutines of this class do not
    wait themselves, so that `at_once` can run them.
    """

    def __init__(
        self, hooks: Sequence[Callable[[Any], Any]], subjects: Sequence[Any], wait: Wait | None
    ) -> None:
        self._hooks, self._subjects, self._wait = hooks, subjects, wait
        self._opened: list[list[_Opened]] = [[] for _ in subjects]

    async def enter(self) -> BaseException | None:
        """Enter all hooks, in their order; returns the exception of one that failed."""
        try:
            for subject, opened in zip(self._subjects, self._opened, strict=True):
                for hook in self._hooks:
                    one = _Opened(hook(subject))
                    await self._do(one.enter(), one)
                    opened.append(one)
        except RAISED as error:
            return error
        return None

    async def leave(self, outcomes: Sequence[Any]) -> list[Any]:
        """Leave the hooks that were entered, the last one first; returns the outcomes as they leave them."""
        left = []
        for outcome, opened in zip(outcomes, self._opened, strict=True):
            now = outcome
            for one in reversed(opened):
                now = await self._do(one.leave(now), one)
            left.append(now)
        return left

    async def _do(self, step: Coroutine[Any, Any, Any], one: "_Opened") -> Any:
        return self._wait(step) if self._wait is not None and one.is_async else await step


def run_around(
    hooks: Sequence[Callable[[Any], Any]],
    subjects: Sequence[Any],
    call: Callable[[], Sequence[Any]],
    wait: Wait,
) -> list[Any]:
    """Call a function in the hooks, in a thread; returns an outcome for each subject."""
    around = Around(hooks, subjects, wait)
    failed = at_once(around.enter())
    return at_once(around.leave(call() if failed is None else [failed] * len(subjects)))  # type: ignore[no-any-return]


async def run_around_async(
    hooks: Sequence[Callable[[Any], Any]],
    subjects: Sequence[Any],
    call: Callable[[], Awaitable[Sequence[Any]]],
) -> list[Any]:
    """Call a function in the hooks, on an event loop; returns an outcome for each subject."""
    around = Around(hooks, subjects, None)
    failed = await around.enter()
    return await around.leave(await call() if failed is None else [failed] * len(subjects))


def _jobs_of(ask: AddRequest) -> list[NewJob]:
    command = ask.asked
    assert isinstance(command, Add)
    return [*command.jobs, *(replace(command.jobs[-1], data=data) for data in command.more)]


def _ids(ids: list[int], error: BaseException | None, outcomes: list[Any]) -> list[int]:
    """The ids of added jobs; raises the exception of a hook, or that of the add: no hook can undo that."""
    for found in (*outcomes, error):
        if isinstance(found, RAISED):
            raise found
    return ids


class _Opened:
    """A hook that was called: a generator or a context manager, sync or async."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self.is_async = inspect.isasyncgen(made) or hasattr(made, "__aenter__")
        if not (self.is_async or inspect.isgenerator(made) or hasattr(made, "__enter__")):
            raise BadInput("hook", made, needed=_AROUND)

    async def enter(self) -> Any:
        """Run it up to its `yield`; returns what that yields."""
        made = self._made
        try:
            if inspect.isgenerator(made):
                return next(made)
            if inspect.isasyncgen(made):
                return await anext(made)
        except (StopIteration, StopAsyncIteration):
            raise BadInput("hook", "one that did not yield", needed=_AROUND) from None
        return await made.__aenter__() if self.is_async else made.__enter__()

    async def leave(self, outcome: Any) -> Any:
        """Run the rest of it; returns the outcome, or the exception that it raises instead.

        An exception that it catches becomes None.
        """
        made, error = self._made, outcome if isinstance(outcome, RAISED) else None
        try:
            if not (inspect.isgenerator(made) or inspect.isasyncgen(made)):
                kind, trace = type(error) if error else None, error.__traceback__ if error else None
                leave = made.__aexit__ if self.is_async else made.__exit__
                is_caught = leave(kind, error, trace)
                is_caught = await is_caught if self.is_async else is_caught
                return None if error and is_caught else outcome
            if inspect.isasyncgen(made):
                await (made.asend(outcome) if error is None else made.athrow(error))
            elif error is None:
                made.send(outcome)
            else:
                made.throw(error)
        except (StopIteration, StopAsyncIteration):
            return outcome if error is None else None
        except RAISED as raised:
            return raised
        return BadInput("hook", "one that yields twice", needed=_AROUND)

    async def do_aside(self, step: Coroutine[Any, Any, Any]) -> Any:
        """Run `enter` or `leave`: beside the event loop, if it is not a coroutine."""
        return await step if self.is_async else await asyncio.to_thread(at_once, step)


async def _aside(function: Callable[[], Any]) -> Any:
    """Call a function beside the event loop, or await a coroutine function."""
    made = function() if inspect.iscoroutinefunction(function) else await asyncio.to_thread(function)
    return await made if inspect.isawaitable(made) else made


def at_once(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that does not wait for anything."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def _is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _provided_type(function: Callable[[], Any]) -> Any:
    """The type of what a hook of `on_start` returns or yields, by its annotation; None: nothing."""
    kind = returned_type(function)
    if _is_generator(function):
        origin = get_origin(kind)
        kind = get_args(kind)[0] if origin in _YIELDING and get_args(kind) else Any
    return None if kind in (Any, None, type(None)) else kind
