"""A disk whose syncs take two milliseconds: what most have, and what a group commit is for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

SYNC_S = 0.002


class _SlowFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:  # noqa: N802, the library's name
        time.sleep(SYNC_S)
        super().xSync(flags)


class _SlowDisk(apsw.VFS):
    def __init__(self, base: str) -> None:
        self._base = base
        super().__init__("holdfast-slow", base, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _SlowFile(self._base, name, flags)


@contextmanager
def slow_disk() -> Iterator[None]:
    """Let every database that is opened meanwhile lie on a slow disk."""
    disk = _SlowDisk(apsw.vfs_names()[0])
    try:
        yield
    finally:
        disk.unregister()
