"""The raw limit of SQLite: the bare driver inserting, claiming and deleting the same job.

One table, one index, one job or 1,000 a transaction, with the durability that Holdfast ships. What
Holdfast does beside it is measured against this, in the same run, on the same disk.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from ...core.errors import BadInput
from ...queue.connect import store_file

SCHEMA = (
    "CREATE TABLE job (id INTEGER PRIMARY KEY, place INT, rank INT, data TEXT)",
    "CREATE INDEX ready ON job (place, rank)",
)
INSERT = "INSERT INTO job VALUES (?, 0, ?, ?)"
CLAIM = """
UPDATE job SET place = 1 WHERE id IN (SELECT id FROM job WHERE place = 0 ORDER BY rank LIMIT ?)
RETURNING id, data
"""


class SqliteRaw:
    """A bare database of the store's own library, with the same journal and the same syncs."""

    def __init__(self, db: Any) -> None:
        self._db = db
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 0"):
            db.execute(f"PRAGMA {pragma}").fetchall()
        for statement in SCHEMA:
            db.execute(statement)

    def insert(self, first: int, count: int, by: int, data: str) -> None:
        """Insert jobs, so many a transaction."""
        db = self._db
        for start in range(first, first + count, by):
            db.execute("BEGIN")
            db.executemany(INSERT, [(n, n, data) for n in range(start, start + by)])
            db.execute("COMMIT")

    def drain(self, by: int) -> int:
        """Claim and delete all jobs, two transactions for each batch; how many."""
        db, total = self._db, 0
        while True:
            db.execute("BEGIN")
            ids = [(row[0],) for row in db.execute(CLAIM, (by,))]
            db.execute("COMMIT")
            if not ids:
                return total
            db.execute("BEGIN")
            db.executemany("DELETE FROM job WHERE id = ?", ids)
            db.execute("COMMIT")
            total += len(ids)


class SqliteSide:
    """SQLite files in folders of their own, beside the file that was named."""

    def __init__(self, url: str | None, folder: Path | None) -> None:
        named = None if url is None else store_file(url)
        self._query = url.partition("?")[2] if url is not None else ""
        self._is_apsw = "driver=apsw" in self._query
        self._folder = folder if named is None else named.absolute().parent
        if self._folder is not None and not self._folder.is_dir():
            raise BadInput("store", str(self._folder), needed="in a folder that is there")

    def settings(self) -> str:
        """The library, and what it was told."""
        if self._is_apsw:
            import apsw

            library = f"SQLite {apsw.sqlite_lib_version()}, apsw"
        else:
            library = f"SQLite {sqlite3.sqlite_version}, stdlib"
        return f"{library}, WAL, synchronous=FULL, archive on, 100 bytes of data"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A file in a folder of its own."""
        with self._place() as folder:
            yield f"sqlite:///{folder}/jobs.db" + (f"?{self._query}" if self._query else "")

    @contextmanager
    def raw(self) -> Iterator[SqliteRaw]:
        """A bare database on the same disk."""
        with self._place() as folder, closing(self._opened(f"{folder}/raw.db")) as db:
            yield SqliteRaw(db)

    def slow(self) -> AbstractContextManager[None] | None:
        """Only apsw lets a program stand between SQLite and its disk."""
        if not self._is_apsw:
            return None
        from .slow import slow_disk

        return slow_disk()

    def written(self, url: str) -> object:
        """The sizes and times of the file and of its log."""
        path = store_file(url)
        assert path is not None
        found = [path.with_name(path.name + end) for end in ("", "-wal")]
        return [(stat.st_size, stat.st_mtime_ns) for stat in (one.stat() for one in found if one.exists())]

    def _opened(self, path: str) -> Any:
        if not self._is_apsw:
            return sqlite3.connect(path, isolation_level=None)
        import apsw

        return apsw.Connection(path)

    def _place(self) -> AbstractContextManager[str]:
        return tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=self._folder)
