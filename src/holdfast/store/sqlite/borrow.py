"""A caller's own connection: is it one that the store may write with?"""

import os
from pathlib import Path
from typing import Any

from ...core.errors import BadInput
from ..common.lending import driver_of, kind_of
from .connection import Driver, Link
from .guard import inode_of


def find_link(driver: Driver, connection: Any, path: Path) -> Link:
    """A caller's connection, or the one inside SQLAlchemy's or Django's; `BadInput` if it cannot be used."""
    found = driver_of(connection)
    if found is None:
        # Django's, which has not been used yet.
        raise BadInput("connection", "not in a transaction", needed="in one: with transaction.atomic()")
    link = driver.lent(found)
    if link is None:
        raise BadInput("connection", kind_of(connection), needed=driver.wanted)
    name = link.value("SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'")
    if not name or inode_of(Path(os.fsdecode(name))) != inode_of(path) or not path.exists():
        raise BadInput("connection", os.fsdecode(name or b"") or "in memory", needed=f"one to {path}")
    return link


def begin_borrowed(driver: Driver, connection: Any, link: Link) -> None:
    """Begin where the library itself would; `BadInput` if the connection is then in no transaction.

    Its commits make no checkpoints from now on: those of the store are made in turn with all writers, which
    keeps clear of the WAL-reset bug of SQLite before 3.51.3.
    """
    driver.begin_as_library(driver_of(connection))
    if not link.in_transaction:
        raise BadInput("connection", "not in a transaction", needed="in one: BEGIN IMMEDIATE first")
    link.rows("PRAGMA wal_autocheckpoint = 0")
