"""Stores made by older versions, opened by this one."""

import pytest

from holdfast.store import sqlite_open, sqlite_sql
from holdfast.store.contract import WaitingQuery
from holdfast.store.sqlite import SqliteStore
from tests.store.helpers import execute


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_a_store_of_the_first_schema_knows_who_waits(tmp_path, driver, monkeypatch):
    """What was served when is forgotten; nobody who waits is."""
    path, first = tmp_path / "jobs.db", sqlite_sql.migrations()[:1]
    with monkeypatch.context() as older:
        older.setattr(sqlite_open, "migrations", lambda: first)
        store = SqliteStore(path, driver=driver)
        store.run(lambda txn: None)
        store.close()
    lanes = "('b', 't', 1, 5), ('a', 't', 1, 1760000000000), ('a', 's', 1, 0), ('c', 'gone', 0, 7)"
    execute(path, f"INSERT INTO holdfast_lanes (tenant, task, ready, served) VALUES {lanes}")

    store = SqliteStore(path, driver=driver)
    waiting = store.read(lambda txn: txn.waiting(WaitingQuery(limit=9)))
    store.close()

    assert [lane[:2] for lane in waiting] == [("a", "s"), ("b", "t"), ("a", "t")]
