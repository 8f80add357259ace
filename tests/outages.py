"""What the tests of servers that are away share."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import holdfast
from holdfast.core.errors import Unavailable
from holdfast.store.common.clock import monotonic_s


class Heard(logging.Handler):
    """What the log of Holdfast says, and a signal when it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


def first_add_waits(url: str, heard: Heard, then: Callable[[], Any]) -> str:
    """Add to a server that is away until `then`, which is called once the log says so; that line."""
    with holdfast.connect(url) as queue, ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(queue.add, "work") for _ in range(4)]
        assert heard.first.wait(60), "nothing was logged"
        then()
        assert len({one.result(60).id for one in adding}) == 4
    waiting, back = heard.lines
    assert waiting.startswith("trying again for 30 s: ")
    assert back.endswith("answers again")
    return waiting


def close_during_an_outage(url: str, heard: Heard) -> None:
    """Close a queue while an add waits for a server that is away: both end soon, not after 30 s."""
    queue = holdfast.connect(url)
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(queue.add, "work")
        assert heard.first.wait(60), "nothing was logged"
        began_s = monotonic_s()
        queue.close()
        assert isinstance(adding.exception(60), Unavailable)
    assert monotonic_s() - began_s < 15
