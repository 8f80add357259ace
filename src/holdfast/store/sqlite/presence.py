"""Which processes are running, shown by locked files beside the database, without a write to it.

Each process has a file in `NAME-workers/` and holds a lock on it, which ends with the process however that
ends. Unlike process ids, this works across containers that share the file, and names are never reused.
"""

import fcntl
import os
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class SqlitePresence:
    """The files of one store in `NAME-workers/`."""

    def __init__(self, path: Path) -> None:
        self.folder = path.with_name(path.name + "-workers")
        self._held: dict[str, int] = {}

    def appear(self, name: str) -> bool:
        """Create and lock the file of a unique name; False if that is not possible."""
        if name not in self._held:
            if (fd := self._lock_file(name)) is None:
                return False
            self._held[name] = fd
        return True

    def keep(self) -> None:
        """Create the files again that another program has removed."""
        for name in list(self._held):
            # Not by pathlib, which raises an error about a folder that this user may not enter.
            if not os.path.exists(self.folder / name):  # noqa: PTH110
                fd = self._lock_file(name)
                if fd is not None:
                    os.close(self._held[name])
                    self._held[name] = fd

    def _lock_file(self, name: str) -> int | None:
        """The descriptor of the locked file of a name; None if it cannot be created."""
        for _ in range(3):  # the folder may be removed between the two steps
            try:
                self.folder.mkdir(exist_ok=True)
                fd = os.open(self.folder / name, _FLAGS, 0o666)
            except FileNotFoundError:
                continue
            except OSError:
                break
            # No other process knows the file yet, so this does not block.
            fcntl.flock(fd, fcntl.LOCK_EX)
            return fd
        return None

    def sees(self, name: str) -> bool:
        """Whether the process with this name is running; the file of one that has ended is removed."""
        if name in self._held:
            return True
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # no permission: it may be running
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        self._tidy(name)
        return False

    def close(self) -> None:
        """Remove the store's files."""
        for name in self._held:
            self._tidy(name)
        self.abandon()

    def abandon(self) -> None:
        """Close the files in a forked child without removing them: the parent still holds the locks."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _tidy(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # not empty
            pass
