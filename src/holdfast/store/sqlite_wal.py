"""Checkpoints: moving what was committed from the write-ahead log into the file, beside the commits.

A commit only appends to the log. When enough has been appended a thread copies it into the file, which
stops nobody, after which the next writer begins the log anew. Where writers never pause it would always
find something left, so when the log has grown large the thread asks for its own turn to write, copies the
little that is left, and lets them go on: the log cannot grow without bound.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from ..core.errors import HoldfastError
from .sqlite_driver import Driver, Link
from .sqlite_faults import faults
from .sqlite_lock import WriteQueue
from .sqlite_open import open_reader

PAGE_BYTES = 4096
# When to copy, and when to insist: 16 MB and 32 MB. Each time two files are synced, beside the commits,
# which on many disks slows them down; so not too often.
COPY_PAGES = 4_000
INSIST_PAGES = 8_000
# A commit touches a page of each table and index, and more as it is larger.
PAGES_OF_A_COMMIT = 8
ROWS_OF_A_PAGE = 8
# The file gives space back when more than this, and more than half of it, is empty: 40 MB; so much at once.
EMPTY_PAGES = 10_000
PAGES_GIVEN_BACK = 1_000
# A reader that stands in the way will go; then it is tried again, with the next commits.
PATIENCE_S = 5.0


class Checkpointer:
    """Counts what is written, and has a thread copy it when it is due."""

    def __init__(self, driver: Driver, path: Path) -> None:
        self._driver, self._path = driver, path
        self._pages = 0
        self._due = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def opened(self) -> None:
        """Whoever wrote before us may have left a log behind."""
        self._pages = log_bytes(self._path) // PAGE_BYTES

    def written(self, rows: int) -> None:
        """A commit of so many rows was made."""
        self._pages += PAGES_OF_A_COMMIT + rows // ROWS_OF_A_PAGE
        if self._pages < COPY_PAGES:
            return
        self._pages = 0
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-checkpoint", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Wait for the thread to end."""
        self._stopped = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with faults(self._driver, self._path):
                self._work()
        except HoldfastError:
            # Whatever it is, the next commit meets it too, and has somebody to tell.
            self._thread = None

    def _work(self) -> None:
        link, queue = open_reader(self._driver, self._path), WriteQueue(self._path, PATIENCE_S)
        try:
            link.rows("PRAGMA query_only = 0")
            while self._due.wait() and not self._stopped:
                self._due.clear()
                if _copy(link) >= INSIST_PAGES and not self._stopped:
                    _in_turn(queue, lambda: _copy(link))
                if _mostly_empty(link) and not self._stopped:
                    _in_turn(queue, lambda: link.give_back(PAGES_GIVEN_BACK))
        finally:
            queue.close()
            link.close()


def log_bytes(path: Path) -> int:
    """How large the write-ahead log is."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def copy_all(link: Link) -> None:
    """Copy everything and empty the log, if nobody is in the way."""
    link.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(link: Link) -> int:
    """Copy what nobody is reading around; how many pages the log has."""
    _, logged, _ = link.rows("PRAGMA wal_checkpoint(PASSIVE)")[0]
    return int(logged)


def _mostly_empty(link: Link) -> bool:
    empty = int(link.value("PRAGMA freelist_count"))
    return empty > EMPTY_PAGES and empty * 2 > link.value("PRAGMA page_count")


def _in_turn(queue: WriteQueue, do: Callable[[], object]) -> None:
    try:
        queue.take()
        do()
    finally:
        queue.give()
