"""Hooks: functions of the program that run once in a process, and around each add and each run.

    on_start     before the first job of a process; handlers get what it returns or yields, by its type
    on_stop      at the ordinary end of the process; the last one first
    around_add   around each job that the program adds
    around_run   around each run of a handler

A hook around something is a generator with one `yield`, or a function that returns a context manager. What it
surrounds has an outcome: a result, which `yield` returns, or an exception, which `yield` raises.

A hook that was entered is left once, the last one first, whatever is raised. An exception that is no error,
such as KeyboardInterrupt and CancelledError, is an interruption: hooks see it, and cannot change or hide it.
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
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, NamedTuple, TypeGuard, get_args, get_origin

from msgspec.structs import replace

from ..core.commands import Add, NewJob
from ..core.errors import BadInput
from .answers import RAISED
from .asks import QueueRequest
from .definition import check_function, returned_type
from .loop_thread import LoopThread, Wait

AddRequest = QueueRequest[list[int]]
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
        # How many hooks of `on_start` and `on_stop` have begun.
        self._begun = 0
        # How many workers of this process share what was started.
        self._workers = 0

    # Once in a process

    @property
    def is_started(self) -> bool:
        """Whether all hooks of `on_start` have run; one that is declared later still has to."""
        return self._begun == len(self._once)

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
                # Another thread may have done it since the check above.
                if not self.is_started:
                    await self._start()
            finally:
                self._lock.release()

    async def _start(self) -> None:
        try:
            while not self.is_started:
                hook = self._once[self._begun]
                if hook.starts:
                    value = await self._begin(hook.function)
                    self._values |= {} if hook.kind is None else {hook.kind: value}
                else:
                    self._ends.append(partial(_aside, hook.function))
                self._begun += 1
        except BaseException as error:
            await self.stop_async(error)

    async def _begin(self, function: Callable[[], Any]) -> Any:
        """Run a hook of `on_start`; returns what it returns or yields."""
        if not _is_generator(function):
            return await _aside(function)
        opened = _Opened(function())
        self._ends.append(lambda: opened.do_aside(opened.leave(None)))
        if error := await opened.do_aside(opened.enter()):
            raise error
        return opened.value

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Start for a worker in this process; what was started ends with the last worker."""
        self._workers += 1
        try:
            await self.start_async()
            yield
        finally:
            self._workers -= 1
            if not self._workers:
                await self.stop_async()

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

    async def stop_async(self, error: BaseException | None = None) -> None:
        """End what was started, the last one first; then an interruption is raised, or the first error."""
        errors = [error] if error else []
        while self._ends:
            try:
                found = await self._ends.pop()()
            except BaseException as raised:
                found = raised
            errors += [found] if isinstance(found, BaseException) else []
        self._values.clear()
        self._begun = 0
        if errors:
            raise next(filter(_is_interruption, errors), errors[0])

    # Around each add

    def add(self, ask: AddRequest, send: Callable[[AddRequest], list[int]]) -> list[int]:
        """Add jobs in the hooks around an add, from a thread; returns their ids."""

        async def call() -> list[int]:
            return send(ask)

        around = Around(self.around_add, _jobs_of(ask), self.loop.wait)
        return _ids(around, at_once(around.call(call)))

    async def add_async(
        self, ask: AddRequest, send: Callable[[AddRequest], Awaitable[list[int]]]
    ) -> list[int]:
        """Add jobs in the hooks around an add, on an event loop; returns their ids."""
        around = Around(self.around_add, _jobs_of(ask), None)
        return _ids(around, await around.call(lambda: send(ask)))


class Around:
    """The hooks around something that is done for several subjects, which has an outcome for each.

    `wait` is for a thread; None: this is an event loop. From a thread the coroutines of this class do not
    wait themselves, so that `at_once` can run them.
    """

    def __init__(
        self, hooks: Sequence[Callable[[Any], Any]], subjects: Sequence[Any], wait: Wait | None
    ) -> None:
        self._hooks, self._subjects, self._wait = hooks, subjects, wait
        # What was raised instead of outcomes.
        self.error: BaseException | None = None
        # The hooks that were called, with the index of their subject.
        self._opened: list[tuple[int, _Opened]] = []

    async def call(self, function: Callable[[], Awaitable[Sequence[Any]]]) -> list[Any]:
        """Call a function that returns an outcome for each subject; returns them as the hooks leave them."""
        try:
            await self._enter()
            outcomes = [*await function()]
        except BaseException as error:
            outcomes = self._fail(error)
        # Those of the first subject are left first.
        self._opened.sort(key=lambda opened: -opened[0])
        while self._opened:
            try:
                index, one = self._opened[-1]
                if one.is_open:
                    outcomes[index] = await self._leave(one, outcomes[index])
                self._opened.pop()
            except BaseException as error:
                outcomes = self._fail(error)
        if _is_interruption(self.error):
            raise self.error
        return outcomes

    async def _enter(self) -> None:
        for index, subject in enumerate(self._subjects):
            for hook in self._hooks:
                one = _Opened(hook(subject))
                self._opened.append((index, one))
                if error := await self._do(one.enter(), one):
                    raise error

    async def _leave(self, one: "_Opened", outcome: Any) -> Any:
        try:
            found = await self._do(one.leave(outcome), one)
        except RAISED as error:
            # The event loop of the hook has ended.
            found = error
        if _is_interruption(found):
            raise found
        return self.error if _is_interruption(self.error) else found

    def _fail(self, error: BaseException) -> list[Any]:
        self.error = error
        return [error] * len(self._subjects)

    async def _do(self, step: Coroutine[Any, Any, Any], one: "_Opened") -> Any:
        return self._wait(step) if self._wait is not None and one.is_async else await step


def run_around(
    hooks: Sequence[Callable[[Any], Any]],
    subjects: Sequence[Any],
    call: Callable[[], Sequence[Any]],
    wait: Wait,
) -> list[Any]:
    """Call a function in the hooks, in a thread; returns an outcome for each subject."""

    async def run() -> Sequence[Any]:
        return call()

    return at_once(Around(hooks, subjects, wait).call(run))  # type: ignore[no-any-return]


def _jobs_of(ask: AddRequest) -> list[NewJob]:
    command = ask.asked
    assert isinstance(command, Add)
    return [*command.jobs, *(replace(command.jobs[-1], data=data) for data in command.more)]


def _ids(around: Around, outcomes: list[Any]) -> list[int]:
    """The ids of added jobs; raises the exception of a hook, or that of the add: no hook can undo that."""
    for found in (*outcomes, around.error):
        if isinstance(found, BaseException):
            raise found
    return outcomes


def _is_interruption(found: Any) -> TypeGuard[BaseException]:
    return isinstance(found, BaseException) and not isinstance(found, RAISED)


class _Opened:
    """A hook that was called: a generator or a context manager, sync or async."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self.is_async = inspect.isasyncgen(made) or hasattr(made, "__aenter__")
        if not (self.is_async or inspect.isgenerator(made) or hasattr(made, "__enter__")):
            raise BadInput("hook", made, needed=_AROUND)
        self.value: Any = None
        self._is_entered = False

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left; of a generator, also if it was interrupted just now."""
        made = self._made
        return made.gi_suspended if inspect.isgenerator(made) else self._is_entered

    async def enter(self) -> BaseException | None:
        """Run it up to its `yield`, for its value; returns what it raises."""
        made = self._made
        try:
            if inspect.isgenerator(made):
                self.value = next(made)
            elif inspect.isasyncgen(made):
                self.value = await anext(made)
            else:
                self.value = await made.__aenter__() if self.is_async else made.__enter__()
            self._is_entered = True
        except (StopIteration, StopAsyncIteration):
            return BadInput("hook", "one that did not yield", needed=_AROUND)
        except BaseException as error:
            return error
        return None

    async def leave(self, outcome: Any) -> Any:
        """Run the rest of it, if it is open; returns the outcome, or the exception that it raises instead.

        An exception that it catches becomes None.
        """
        if not self.is_open:
            return outcome
        self._is_entered = False
        made, error = self._made, outcome if isinstance(outcome, BaseException) else None
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
        except BaseException as raised:
            return raised
        return BadInput("hook", "one that yields twice", needed=_AROUND)

    async def do_aside(self, step: Coroutine[Any, Any, Any]) -> Any:
        """Run `enter` or `leave`: beside the event loop, if it is not a coroutine."""
        return await step if self.is_async else await _in_thread(lambda: at_once(step))


async def _aside(function: Callable[[], Any]) -> Any:
    """Call a function beside the event loop, or await a coroutine function."""
    made = function() if inspect.iscoroutinefunction(function) else await _in_thread(function)
    return await made if inspect.isawaitable(made) else made


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread, as `asyncio.to_thread`; a cancellation waits until it has ended."""
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, function)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


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
