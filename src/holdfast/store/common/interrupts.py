"""Threads in which an exception may be raised at any step, and what they share with others.

The main thread is interrupted by Ctrl-C and by signal handlers that raise, the thread of a handler by its
soft limit. An interrupt inside `threading` leaves a lock locked for ever: in `Event.set`, `Thread.start` and
`with condition`. A `with` block of a plain lock takes and releases it in one step. So what these threads call
waits for no event, takes the lock of a condition itself, and starts threads by `ServiceThread`.
"""

import _thread
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any

from ...core.errors import WouldBlock

# The threads that may be interrupted by an exception at any step; the main thread is the first.
_interruptible: list[int | None] = [threading.main_thread().ident]
IN_HANDLER = (
    "a signal handler called the queue during a commit of its own thread, and would wait for it for ever; "
    "set a flag in the handler, and call the queue when it has returned"
)


def _note_main() -> None:
    _interruptible[:] = [threading.main_thread().ident]


os.register_at_fork(after_in_child=_note_main)


def may_be_interrupted() -> bool:
    """Whether an exception may be raised in this thread at any step."""
    return threading.get_ident() in _interruptible


@contextmanager
def interruptible() -> Iterator[None]:
    """Mark this thread as one in which an exception may be raised at any step."""
    thread = threading.get_ident()
    outermost = thread not in _interruptible
    try:
        if outermost:
            _interruptible.append(thread)
        yield
    finally:
        if outermost:
            _interruptible.remove(thread)


def call_in_turn(turn: threading.Lock, function: Callable[..., Any], *values: Any) -> None:
    """Call a function with a lock, in a thread that may be interrupted."""
    if turn.locked():
        check_not_in_turn(turn)
    with turn:
        function(*values)


def check_not_in_turn(turn: "threading.Lock | None" = None) -> None:
    """Raise `WouldBlock` in a signal handler that has interrupted `call_in_turn`, with this lock or any.

    It goes on only when the handler has returned. The frames tell that: an interrupt may keep a thread from
    taking back what it notes about itself.
    """
    # Not the frame of the caller, which may be about to take its turn.
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code is call_in_turn.__code__ and turn in (None, frame.f_locals["turn"]):
            raise WouldBlock(IN_HANDLER)
        frame = frame.f_back


def wake(signal: threading.Lock) -> None:
    """Wake the thread that waits for a lock, or that is about to."""
    try:
        signal.release()
    except RuntimeError:
        pass


def import_all(names: Sequence[str]) -> None:
    """Import modules: in another thread, where an interrupt could leave their locks taken for ever."""
    if not may_be_interrupted():
        for name in names:
            import_module(name)
        return
    thread = ServiceThread(partial(import_all, names), "holdfast-import")
    thread.start()
    thread.join()


class ServiceThread:
    """A daemon thread that is started on first use, also by a thread that is interrupted meanwhile."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run, self._name = run, name
        # Whether it was started; perhaps not yet if that was interrupted.
        self.is_started = False
        # The thread that runs: 0 before it does, -1 when it has ended.
        self.ident = 0
        self._has_ended = threading.Lock()
        self._has_ended.acquire()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start it, unless it was started."""
        if self.is_started:
            return
        # Of several that are started because the first start was interrupted, the others end at once.
        if may_be_interrupted():
            _thread.start_new_thread(self._start_or_run, ())
        else:
            self._start()
        self.is_started = True

    def join(self, timeout_s: float = -1) -> bool:
        """Wait until it has ended; False after the time-out. It must have been started."""
        if not self._has_ended.acquire(timeout=timeout_s):
            return False
        self._has_ended.release()
        return True

    def _start_or_run(self) -> None:
        try:
            self._start()
        except RuntimeError:  # there are too many threads for another one
            self._main()

    def _start(self) -> None:
        threading.Thread(target=self._main, name=self._name, daemon=True).start()

    def _main(self) -> None:
        with self._lock:
            if self.ident:
                return
            # Also where the thread that started it was interrupted.
            self.ident, self.is_started = threading.get_ident(), True
        try:
            self._run()
        finally:
            self.ident = -1
            self._has_ended.release()
