"""Who is there: processes that show themselves beside a store's file, without a write to it.

Each has a file of its own in `NAME-workers/`, and holds the kernel's lock on it. However the process
ends, the lock ends with it; no number can be mistaken for another's, and processes of several
containers see each other as they see the store's file.
"""

import fcntl
import os
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class SqlitePresence:
    """One store's place among those who are there."""

    def __init__(self, path: Path) -> None:
        self.folder = path.with_name(path.name + "-workers")
        self._held: dict[str, int] = {}

    def appear(self, name: str) -> bool:
        """Be there under a name that nobody had before; False where that cannot be."""
        if name in self._held:
            return True
        for _ in range(3):  # the folder may be tidied away between the two steps
            try:
                self.folder.mkdir(exist_ok=True)
                fd = os.open(self.folder / name, _FLAGS, 0o666)
            except FileNotFoundError:
                continue
            except OSError:
                break
            # Nobody else knows of the file yet: this cannot wait.
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._held[name] = fd
            return True
        return False

    def sees(self, name: str) -> bool:
        """Whether somebody is there under a name; what the dead have left is tidied away."""
        if name in self._held:
            return True
        try:
            fd = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # not ours to look at: that is no sign of death
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
        """Be there no longer."""
        for name in self._held:
            self._tidy(name)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files, in a forked child: they are its parent's, which still holds the locks."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _tidy(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except OSError:  # others are there
            pass
