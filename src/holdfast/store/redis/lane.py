"""Lanes: by what it is known whether a commit whose reply was lost was done.

A lane is one who commits, one commit after the other, and each has a number. The script writes the number
with the rest, and refuses a commit whose number does not follow the last one. So a commit is done once
however often it is sent, and one that is still on its way when its lane is cut off is never done.
"""

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .keys import Keys

# A lane that was not used for so long is forgotten by the server, and another begun.
LANE_MS = 600_000


class Lane:
    """One who commits."""

    def __init__(self, keys: Keys) -> None:
        self.key = keys.lane(secrets.token_hex(8))
        # Of the last commit that was sent, and of the last that was done: "" before the first.
        self.number = b"0"
        self.last = b""
        # Whether it can be used again: not while nobody knows what became of its last commit.
        self.open = True

    def next(self) -> bytes:
        """The number of the next commit."""
        self.number = b"%d" % (int(self.number) + 1)
        return self.number


class Lanes:
    """Those that are not used just now."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._free: list[Lane] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @contextmanager
    def one(self) -> Iterator[Lane]:
        """A lane for one commit; one of which nobody knows what became of its commit is not used again."""
        lane = self._take()
        try:
            yield lane
        finally:
            if lane.open:
                with self._lock:
                    self._free.append(lane)

    def _take(self) -> Lane:
        with self._lock:
            if self._pid != os.getpid():
                # A fork's child: these are its parent's, whose next numbers would be taken for ours.
                self._pid, self._free = os.getpid(), []
            return self._free.pop() if self._free else Lane(self._keys)
