"""Migrations: an older store gets what it lacks."""

import pytest

from holdfast.store import sqlite_open, sqlite_sql
from holdfast.store.contract import LogRow
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.stores.making import a_job, add, ids


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_a_store_of_the_first_schema_gets_all_that_came_later(tmp_path, driver, monkeypatch):
    """In their order; a number that does not exist is passed over."""
    path, known = tmp_path / "jobs.db", sqlite_sql.migrations()
    monkeypatch.setattr(sqlite_open, "migrations", lambda: known[:1])
    store = SqliteStore(path, driver=driver)
    add(store, a_job(1))
    store.close()
    monkeypatch.undo()

    opened = SqliteStore(path, driver=driver)
    opened.run(lambda txn: txn.append_log("l", [LogRow(1, b"k", "{}")]))

    assert opened.facts()["schema"] == str(len(known))
    assert opened.read(lambda txn: ids(txn.load([1]).values())) == [1]
    opened.close()
