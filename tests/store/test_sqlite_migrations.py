"""Stores made by older versions, opened by this one."""

import pytest

from holdfast.store.contract import LogRow, WaitingQuery
from holdfast.store.sqlite import open as sqlite_open
from holdfast.store.sqlite import statements as sqlite_sql
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.stores.making import a_job, ids
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


@pytest.mark.parametrize("driver", ["apsw", "stdlib"])
def test_a_store_of_the_first_schema_gets_all_that_came_later(tmp_path, driver, monkeypatch):
    """In their order; a number that does not exist is passed over."""
    path, known = tmp_path / "jobs.db", sqlite_sql.migrations()
    monkeypatch.setattr(sqlite_open, "migrations", lambda: known[:1])
    store = SqliteStore(path, driver=driver)
    store.run(lambda txn: txn.insert([(a_job(1), "{}")]))
    store.close()
    monkeypatch.undo()

    opened = SqliteStore(path, driver=driver)
    opened.run(lambda txn: txn.append_log("l", [LogRow(1, b"k", "{}")]))

    assert opened.facts()["schema"] == str(len(known))
    assert opened.read(lambda txn: ids(txn.load([1]).values())) == [1]
    opened.close()
