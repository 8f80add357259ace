"""Ctrl-C and SIGTERM, for work that is done in somebody else's process."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM stop it; a second one does what it did before.

    Only the main thread has signals; in others this changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # What is ignored stays so: whoever started us wants it.
    ours = [number for number, old in kept.items() if old not in (None, signal.SIG_IGN)]

    def restore() -> None:
        for number in ours:
            signal.signal(number, kept[number])

    def handle(_number: int, _frame: Any) -> None:
        restore()
        stop()

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
