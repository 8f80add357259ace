"""Logs: items in order, keys that lead to them, and what is trimmed."""

from typing import Any

import pytest

from ...core.errors import Unavailable
from ...store.contract import LogRow, Store

ROWS = [
    LogRow(1, b"one", '{"n": 1}'),
    LogRow(2, None, b"\x00\xff"),
    LogRow(3, b"\x00", '"text with \\u0000"'),
    LogRow(4, b"\xff" * 1024, b""),
    LogRow(5, "é".encode(), "null"),
]


def _append(store: Store, log: str, *rows: LogRow) -> None:
    store.run(lambda txn: txn.append_log(log, rows))


def _read(store: Store, log: str, after: int = 0, limit: int = 100) -> list[LogRow]:
    return store.read(lambda txn: txn.read_log(log, after=after, limit=limit))


def test_items_of_a_log_come_back_in_order_as_they_went_in(store: Store) -> None:
    """Text as text and bytes as bytes, with and without keys, apart from another log."""
    _append(store, "a", *ROWS)
    _append(store, "b", LogRow(1, b"one", "2"))

    assert _read(store, "a") == ROWS
    assert _read(store, "a", after=2, limit=2) == ROWS[2:4]
    assert _read(store, "a", after=5) == []
    assert _read(store, "b") == [LogRow(1, b"one", "2")]
    assert _read(store, "c") == []


def test_a_key_leads_to_its_index(store: Store) -> None:
    """Of its own log only."""
    _append(store, "a", *ROWS)

    found = store.read(lambda txn: txn.find_in_log("a", [b"one", b"\x00", b"two", b"\xff" * 1024]))

    assert found == {b"one": 1, b"\x00": 3, b"\xff" * 1024: 4}
    assert store.read(lambda txn: txn.find_in_log("b", [b"one"])) == {}
    assert store.read(lambda txn: txn.find_in_log("a", [])) == {}


def test_an_index_that_is_taken_refuses_the_batch(store: Store) -> None:
    """Nothing of it is written."""
    _append(store, "a", ROWS[0])

    with pytest.raises(Unavailable):
        _append(store, "a", LogRow(2, b"x", "2"), LogRow(1, b"y", "1"))

    assert _read(store, "a") == [ROWS[0]]
    assert store.read(lambda txn: txn.find_in_log("a", [b"x", b"y"])) == {}


def test_a_batch_that_fails_appends_and_trims_nothing(store: Store) -> None:
    """Both are undone."""
    _append(store, "a", *ROWS)

    def fn(txn: Any) -> None:
        txn.append_log("a", [LogRow(6, b"six", "6")])
        txn.trim_log("a", after=0, up_to=3, keys_up_to=3)
        assert [row.at for row in txn.read_log("a", after=0, limit=9)] == [4, 5, 6]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.run(fn)

    assert _read(store, "a") == ROWS
    assert store.read(lambda txn: txn.find_in_log("a", [b"one", b"six"])) == {b"one": 1}


def test_trimming_removes_items_and_later_their_keys(store: Store) -> None:
    """A key is known beyond its item; what is read begins after the trimmed part."""
    _append(store, "a", *ROWS)
    _append(store, "b", ROWS[0])
    keys = [row.key for row in ROWS if row.key is not None]

    store.run(lambda txn: txn.trim_log("a", after=0, up_to=3, keys_up_to=0))
    known = store.read(lambda txn: txn.find_in_log("a", keys))
    store.run(lambda txn: txn.trim_log("a", after=3, up_to=4, keys_up_to=3))

    assert known == {row.key: row.at for row in ROWS if row.key is not None}
    assert _read(store, "a") == ROWS[4:]
    assert store.read(lambda txn: txn.find_in_log("a", keys)) == {ROWS[3].key: 4, ROWS[4].key: 5}
    assert _read(store, "b") == [ROWS[0]]


def test_a_log_takes_a_large_batch(store: Store) -> None:
    """Thousands of items at once, read a page at a time."""
    rows = [LogRow(n, str(n).encode(), str(n)) for n in range(1, 3001)]
    _append(store, "a", *rows)

    pages = [_read(store, "a", after=after, limit=1000) for after in (0, 1000, 2000)]

    assert [row for page in pages for row in page] == rows
    assert store.read(lambda txn: txn.find_in_log("a", [b"2999"])) == {b"2999": 2999}
