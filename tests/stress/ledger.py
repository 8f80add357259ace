"""The ledger: what processes were told, written down outside the system, one line an event.

    adds    (tag, count)                  about to add; the jobs' data says which
    added   (tag, ids)                    `add` has returned
    start   (id, claim, version, at, until)   a claim has returned
    says    (id, claim, verb)             about to answer
    said    (id, claim, verb, version, ended, result)   the answer was accepted
    lost    (id, claim, verb)             the answer was refused with LeaseLost
    gone    (id)                          about to be deleted: it may be missing from here on

One append a line: whatever a process has written stands when it is killed a moment later, and no two
lines of different processes ever mix.
"""

import os
from pathlib import Path
from typing import Any

import msgspec


class Ledger:
    """One process's pen."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **facts: Any) -> None:
        """Write one line."""
        line = msgspec.json.encode({"event": event, "pid": os.getpid(), **facts}) + b"\n"
        written = os.write(self._fd, line)
        assert written == len(line)


def read(path: Path) -> list[dict[str, Any]]:
    """All lines; empty when nobody has written."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
