"""Files of the user's project: which an executor has imported, and which of them have changed since."""

import sys
import traceback
from collections.abc import Iterable
from pathlib import Path


def project_files(error: BaseException | None = None) -> tuple[str, ...]:
    """The files under the current folder that this process has imported, or that an error went through.

    A module that could not be imported is in no table, but it is where the mending will be.
    """
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    if error is not None:
        named += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        named.append(getattr(error, "filename", None))
    here = Path.cwd()
    files = {Path(name) for name in named if isinstance(name, str) and name.endswith(".py")}
    return tuple(sorted(str(file) for file in files if _is_ours(file, here)))


def _is_ours(file: Path, here: Path) -> bool:
    # An environment beside the project is not part of it.
    return file.is_relative_to(here) and "site-packages" not in file.parts


class Watched:
    """Files, and how they were when last looked at."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}

    def add(self, files: Iterable[str]) -> None:
        """Watch these too."""
        for file in files:
            self._seen.setdefault(file, _stamp(file))

    def changed(self) -> list[str]:
        """Which of them have changed since the last look, came or went."""
        now = {file: _stamp(file) for file in self._seen}
        before, self._seen = self._seen, now
        return [file for file, stamp in now.items() if stamp != before[file]]


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size
