"""The raw limit of SQLite: the bare driver inserting, claiming and deleting the same job.

One table, one index, one job or 1,000 a transaction, with the durability that Holdfast ships. What
Holdfast does beside it is measured against this, in the same run, on the same disk.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

SCHEMA = """
CREATE TABLE job (id INTEGER PRIMARY KEY, place INT, rank INT, data TEXT);
CREATE INDEX ready ON job (place, rank);
"""
INSERT = "INSERT INTO job VALUES (?, 0, ?, ?)"
CLAIM = """
UPDATE job SET place = 1 WHERE id IN (SELECT id FROM job WHERE place = 0 ORDER BY rank LIMIT ?)
RETURNING id, data
"""


@contextmanager
def raw(folder: Path) -> Iterator[apsw.Connection]:
    """A bare database with the same journal and the same syncs."""
    with closing(apsw.Connection(str(folder / "raw.db"))) as db:
        db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0")
        db.execute(SCHEMA)
        yield db


def insert(db: apsw.Connection, first: int, count: int, by: int, data: str) -> None:
    """Insert jobs, so many a transaction."""
    for start in range(first, first + count, by):
        with db:
            db.executemany(INSERT, [(n, n, data) for n in range(start, start + by)])


def drain(db: apsw.Connection, by: int) -> int:
    """Claim and delete all jobs, two transactions for each batch; how many."""
    total = 0
    while True:
        with db:
            ids = [(row[0],) for row in db.execute(CLAIM, (by,))]
        if not ids:
            return total
        with db:
            db.executemany("DELETE FROM job WHERE id = ?", ids)
        total += len(ids)
