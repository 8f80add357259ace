"""Stopping `holdfast.work` by Ctrl-C and SIGTERM, in a process that belongs to the user."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the first Ctrl-C or SIGTERM; the second one has its previous handler.

    Python handles signals in the main thread; in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Ignored signals stay ignored: the parent process wants that.
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
