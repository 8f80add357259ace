"""The stacks of handlers that hang: file, line and function of their frames, and no values."""

import asyncio
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .answers import hidden_files
from .loop_thread import wait_on

# Of a longer stack only the innermost frames are kept.
STACK_FRAMES, STACK_BYTES = 30, 8_192
LINE_CHARS = 500
HEAD = "Stack (most recent call last):\n"

# A thread in a dump of `faulthandler`, and one of its frames.
_THREAD = r"hread 0x0*{:x}\b.*\n((?:  .*\n)*)"
_CRASHED = r"Current thread .*\n((?:  .*\n)*)"
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


class StackFrame(NamedTuple):
    """A place in a stack."""

    file: str
    line: int
    function: str


def thread_stack(thread: int) -> str:
    """Where a thread of this process is, and the coroutine that it waits for; "": not in a handler."""
    return _text(_thread_frames(thread))


def handler_stack(thread: int, loop_thread: int, task: "asyncio.Future[Any] | None") -> str:
    """Where a handler is that a thread runs, or on the event loop a task; "": not known."""
    runs_now = isinstance(task, asyncio.Task) and asyncio.current_task(task.get_loop()) is task
    return thread_stack(thread) if runs_now or thread != loop_thread else _text(_task_frames(task))


def dumped_stack(dump: str, thread: int) -> str:
    """Where a thread was when `faulthandler` dumped all; "" if that does not say."""
    found = re.search(_THREAD.format(thread), dump)
    frames = _FRAME.findall(found[1]) if found else []
    return _text(StackFrame(file, int(line), function) for file, line, function in reversed(frames))


def crash_line(dump: str) -> str:
    """Where the thread was that ended its process, by the dump of `faulthandler`; "": that is not known."""
    _, _, last = dump.rpartition("Fatal Python error")
    found = re.search(_CRASHED, last)
    for file, line, function in _FRAME.findall(found[1]) if found else ():
        if not file.startswith(hidden_files()):
            return f"{file[-LINE_CHARS:]}, line {line}, in {function[:LINE_CHARS]}"
    return ""


def _thread_frames(thread: int) -> Iterator[StackFrame]:
    inner = sys._current_frames().get(thread)
    frames = []
    while inner is not None:
        frames.append(inner)
        inner = inner.f_back
    for frame in reversed(frames):
        yield StackFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
    for frame in frames:
        if frame.f_code is wait_on.__code__:
            for task in frame.f_locals["tasks"]:
                yield from _task_frames(task)


def _task_frames(task: "asyncio.Future[Any] | None") -> Iterator[StackFrame]:
    """The frames of a task that waits, and of the task that it waits for."""
    seen = set()
    while isinstance(task, asyncio.Task) and task not in seen:
        seen.add(task)
        made: Any = task.get_coro()
        while made is not None:
            for kind in ("cr", "gi", "ag"):
                if (frame := getattr(made, f"{kind}_frame", None)) is not None:
                    yield StackFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
            made = next((got for name in _WAITS if (got := getattr(made, name, None)) is not None), None)
        task = getattr(task, "_fut_waiter", None)


_WAITS = ("cr_await", "gi_yieldfrom", "ag_await")


def _text(frames: Iterable[StackFrame]) -> str:
    """The text of a stack, from the first frame of the user's code on."""
    hidden = (*hidden_files(), threading.__file__)
    rest, is_ours = list[StackFrame](), True
    for frame in frames:
        is_ours = is_ours and frame.file.startswith(hidden)
        if not is_ours:
            rest.append(frame)
    lines: list[str] = []
    size = len(HEAD)
    for file, line, function in reversed(rest[-STACK_FRAMES:]):
        text = f'  File "{file[-LINE_CHARS:]}", line {line}, in {function[:LINE_CHARS]}\n'
        size += len(text.encode(errors="replace"))
        if size > STACK_BYTES:
            break
        lines.append(text)
    if not lines:
        return ""
    cut = "  …\n" if len(lines) < len(rest) else ""
    return f"{HEAD}{cut}{''.join(reversed(lines))}"
