"""Files of the user's project that an executor has imported, and whether they have changed."""

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

# The modification time in ns and the size of a file.
Stamp = tuple[int, int]
NO_STAMP: Stamp = (0, 0)


def project_files(began_ms: int, error: BaseException | None = None) -> dict[str, Stamp]:
    """The files under the current folder that this process has imported, or that an error went through.

    A module that failed to import is not in `sys.modules`, but it is the one that will be edited; one that is
    missing may be created. A file that was changed since the imports began has no stamp, so that it counts as
    changed: perhaps it was imported before.
    """
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    if error is not None:
        named += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        named.append(getattr(error, "filename", None))
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = [Path(folder, *error.name.split(".")) for folder in sys.path]
        named += [str(file) for path in missing for file in (path.with_suffix(".py"), path / "__init__.py")]
    # Here, but not in a virtual environment in the project folder.
    here = str(Path.cwd() / "_")[:-1]
    files = {name for name in named if isinstance(name, str) and name.startswith(here)}
    ours = sorted(name for name in files if name.endswith(".py") and "site-packages" not in Path(name).parts)
    stamps = {name: _stamp(name) for name in ours}
    return {file: NO_STAMP if stamp[0] >= began_ms * 10**6 else stamp for file, stamp in stamps.items()}


class WatchedFiles:
    """Files, with their modification time and size at the last check."""

    def __init__(self) -> None:
        self._seen: dict[str, Stamp] = {}

    def add(self, files: Mapping[str, Stamp]) -> None:
        """Watch more files, for changes since these stamps."""
        self._seen = {**files, **self._seen}

    def changed(self) -> list[str]:
        """The files that have changed, appeared or gone since the last check."""
        now = {file: _stamp(file) for file in self._seen}
        before, self._seen = self._seen, now
        return [file for file, stamp in now.items() if stamp != before[file]]


def _stamp(file: str) -> Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return NO_STAMP
    return found.st_mtime_ns, found.st_size
