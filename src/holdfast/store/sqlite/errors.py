"""Translates SQLite's errors: no exception of a library leaves the store."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...core.errors import (
    BadInput,
    Conflict,
    HoldfastError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    TooLarge,
    Unavailable,
)
from .connection import ERRORS, code_of

# SQLite's primary result codes, the low byte of the extended ones.
BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, TOOBIG, NOTADB = 5, 6, 8, 10, 11, 13, 14, 18, 26
IOERR_SHMSIZE = 10 | 19 << 8
CONSTRAINT_PRIMARYKEY, CONSTRAINT_ROWID = 19 | 6 << 8, 19 | 10 << 8


@contextmanager
def faults(path: Path, *, borrowed: bool = False) -> Iterator[None]:
    """Translate errors of SQLite. Used around `fn`: inside, the rules might handle a translated error."""
    try:
        yield
    except ERRORS as error:
        raise translated(error, path, borrowed=borrowed) from error


@contextmanager
def system_faults(path: Path) -> Iterator[None]:
    """Translate errors of the operating system about a file."""
    try:
        yield
    except HoldfastError:  # one of them is an OSError too
        raise
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT, errno.ENOTDIR):
            raise cannot_open(path, str(error.strerror)) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"{path}: no space left on its disk; make room and try again") from error
        raise StoreError(f"{path}: {error.strerror or error}") from error


def translated(error: Exception, path: Path, *, borrowed: bool = False) -> Exception:
    """The Holdfast error for one of SQLite's; `Conflict` for an id that exists already."""
    code, text = code_of(error), str(error)
    if code in (CONSTRAINT_PRIMARYKEY, CONSTRAINT_ROWID):
        return Conflict(f"{path}: there is such a job already")
    return (_borrow_error(code, text, path) if borrowed else None) or _store_error(code, text, path)


def is_busy(error: Exception) -> bool:
    """Whether another connection has the lock."""
    return code_of(error) & 0xFF in (BUSY, LOCKED)


def is_refusal(error: Exception) -> bool:
    """Whether a plain statement was refused, which a batch may resolve.

    The id exists, another connection has the lock, or the view is missing: the store is being moved, or it
    has a new layout.
    """
    has_id = code_of(error) in (CONSTRAINT_PRIMARYKEY, CONSTRAINT_ROWID)
    return has_id or is_busy(error) or is_missing_table(error)


def is_missing_table(error: Exception) -> bool:
    """Whether a table or view is missing: the store is being moved, or it has a new layout."""
    return "no such table" in str(error)


def _store_error(code: int, text: str, path: Path) -> HoldfastError:
    """An error that names the file, the problem and the remedy."""
    kind = code & 0xFF
    if kind == FULL or code == IOERR_SHMSIZE:
        return StoreFull(
            f"{path}: no space left on its disk ({text}); nothing was written, make room and try again"
        )
    if kind == NOTADB:
        return StoreCorrupt(f"{path} is not a SQLite database; give the store a file of its own")
    if kind == CORRUPT:
        return StoreCorrupt(
            f"{path} is damaged ({text}); restore a backup, or try sqlite3's .recover on a copy"
        )
    if kind == READONLY:
        return StoreError(f"{path} cannot be written ({text}); the file and its folder must be writable")
    if kind == CANTOPEN:
        return cannot_open(path, text)
    if kind in (BUSY, LOCKED):
        return Unavailable(f"{path} is locked by another program ({text}); try again")
    if kind == TOOBIG:
        return TooLarge("data", text, needed="smaller")
    if kind == IOERR:
        return StoreError(f"{path} cannot be read or written ({text}); look at its disk")
    return StoreError(f"{path}: SQLite says {text}")


def _borrow_error(code: int, text: str, path: Path) -> HoldfastError | None:
    """The error for a problem of the caller's own connection; None for any other."""
    if not code:
        return BadInput("connection", text, needed="open, and used by one thread at a time")
    if code & 0xFF in (BUSY, LOCKED):
        return Unavailable(
            f"{path}: another connection has written since your transaction began, or is writing; "
            "roll it back, and begin with BEGIN IMMEDIATE"
        )
    return None


def cannot_open(path: Path, text: str) -> StoreError:
    """The error for a file that cannot be opened, with the reason as far as it can be found."""
    # By `os.path`, which says no where pathlib raises an error: about what this user may not see.
    if not os.path.isdir(path.parent):  # noqa: PTH112
        return StoreError(f"{path}: there is no folder {path.parent}; create it first")
    if os.path.isdir(path):  # noqa: PTH112
        return StoreError(f"{path} is a folder, and must be a file")
    needed = path if os.path.exists(path) else path.parent  # noqa: PTH110
    if not os.access(needed, os.W_OK):
        return not_writable(needed)
    return StoreError(f"{path} cannot be opened: {text}")


def not_writable(needed: Path) -> StoreError:
    """The error for a file or folder that this user cannot write."""
    return StoreError(f"{needed} cannot be written by this user; the file and its folder must be writable")
