"""The way into a process of a crew: `python -m tests.stress.actor MODULE:ROLE {arguments}`.

stdin   lines from the test; its end means that the test is gone, and so goes the process
stdout  lines to the test
stderr  whatever went wrong, for people
"""

import json
import os
import queue
import sys
import threading
from importlib import import_module

ORPHANED = 3


class Post:
    """What a role and its test say to each other, a line at a time."""

    def __init__(self) -> None:
        self._heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, line: str) -> None:
        """Tell the test."""
        with self._lock:
            os.write(1, line.encode() + b"\n")

    def hear(self) -> str:
        """Wait for a word of the test."""
        return self._heard.get()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._heard.put(line.rstrip("\n"))
        os._exit(ORPHANED)


def main() -> None:
    """Play the role that the command line names."""
    module, _, role = sys.argv[1].partition(":")
    getattr(import_module(module), role)(Post(), **json.loads(sys.argv[2]))
    sys.stdout.flush()
    # Not past the listening thread, which holds stdin: Python would wait for it to let go.
    os._exit(0)


if __name__ == "__main__":
    main()
