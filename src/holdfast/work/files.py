"""Files of the user's project that an executor has imported, and whether they have changed."""

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path


def project_files(error: BaseException | None = None) -> tuple[str, ...]:
    """The files under the current folder that this process has imported, or that an error went through.

    A module that failed to import is not in `sys.modules`, but it is the one that will be edited.
    """
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    if error is not None:
        named += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        named.append(getattr(error, "filename", None))
    here = Path.cwd()
    files = {Path(name) for name in named if isinstance(name, str) and name.endswith(".py")}
    return tuple(sorted(str(file) for file in files if _is_ours(file, here)))


def _is_ours(file: Path, here: Path) -> bool:
    # A virtual environment in the project folder is not part of the project.
    return file.is_relative_to(here) and "site-packages" not in file.parts


class WatchedFiles:
    """Files, with their modification time and size at the last check."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def add(self, files: Iterable[str]) -> None:
        """Watch more files."""
        for file in files:
            self._seen.setdefault(file, _stamp(file))

    def changed(self) -> list[str]:
        """The files that have changed, appeared or gone since the last check."""
        now = {file: _stamp(file) for file in self._seen}
        before, self._seen = self._seen, now
        return [file for file, stamp in now.items() if stamp != before[file]]


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
