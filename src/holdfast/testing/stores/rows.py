"""Rows: what is found by its table and key, page by page, or when it is due."""

import random

import pytest

from ...core.kinds import DOMAIN, LOG_KEYS, UNIQUE, log_table, name_of
from ...core.unique import UniqueKey
from ...store.contract import Changes, Store, Txn
from .making import commit, keys

# Any text may be a key: quotes, patterns of other languages, controls, and what sorts otherwise in UTF-16 or
# by a language's rules.
KEYS = [
    "\x01",
    " ",
    '"quoted"',
    "%_*?[a-z]\\",
    "A",
    "a",
    "a\x01b",
    "a b",
    "a/b",
    "ab",
    "b",
    "{}",
    "Ä",
    "ä",
    "\uffff",
    "\U0001f980",
]
VALUES = [b"", b"{}", "é✓".encode(), b"\x00", b"a\x01b", b"\xff", b'"quoted"', bytes(range(256)) * 40]
# As long as names may make them: a log of a tenant, a unique key.
LONG = random.Random(1).randbytes(1024)
LONG_TABLE = log_table(LOG_KEYS, name_of("\\" * 255, '"' * 255))


def test_rows_are_kept_by_table_and_key(store: Store) -> None:
    """Any bytes under any key; found by key or all of a table, apart from the same key of another one."""
    rows = {key: VALUES[n % len(VALUES)] for n, key in enumerate(KEYS)}
    commit(store, rows={("k", key): value for key, value in rows.items()})
    commit(store, rows={("other", "a"): b"1", ("other", "z"): b"2"})

    assert store.read(lambda txn: txn.rows("k")) == rows
    assert store.read(lambda txn: txn.rows("k", ["a", "Ä", "z", "a"])) == {"a": rows["a"], "Ä": rows["Ä"]}
    assert store.read(lambda txn: (txn.rows("k", []), txn.rows("none"), txn.rows("none", ["a"]))) == (
        {},
        {},
        {},
    )
    assert store.read(lambda txn: txn.rows("other")) == {"a": b"1", "z": b"2"}


def test_rows_are_replaced_and_deleted(store: Store) -> None:
    """What is not there may be deleted too."""
    commit(store, rows={("k", key): b"old" for key in "abc"})

    commit(store, rows={("k", "a"): b"new", ("k", "b"): None, ("k", "z"): None, ("none", "z"): None})

    assert store.read(lambda txn: (txn.rows("k"), txn.rows("none"))) == ({"a": b"new", "c": b"old"}, {})


def test_tables_are_those_that_have_rows(store: Store) -> None:
    """Of all names; one whose last row has gone is none."""
    assert store.read(lambda txn: txn.tables()) == []
    names = ["k", DOMAIN, UNIQUE, LONG_TABLE, "ä"]
    commit(store, rows={(table, "a"): b"1" for table in [*names, "gone"]}, dues={(DOMAIN, "a"): 5})
    commit(store, rows={("gone", "a"): None}, notice=b"x")

    assert sorted(store.read(lambda txn: txn.tables())) == sorted(names)


def test_names_may_be_long(store: Store) -> None:
    """As long as tenants, tasks, logs, domains and unique keys make them."""
    found = [
        (LONG_TABLE, name_of(LONG)),
        (UNIQUE, UniqueKey("\\" * 255, '"' * 255, LONG, b"real:" + LONG).name),
        (UNIQUE, UniqueKey("\\" * 255, '"' * 255, LONG[:64], b"real:" + LONG).name),
        (DOMAIN, name_of('"' * 255, LONG)),
    ]
    commit(store, rows=dict.fromkeys(found, LONG * 10), dues=dict.fromkeys(found, 7))

    for table, key in found:
        assert store.read(lambda txn, table=table, key=key: txn.rows(table, [key])) == {key: LONG * 10}  # type: ignore[misc]
        mine = sorted(key for one, key in found if one == table)
        assert sorted(keys(store, table)) == sorted(keys(store, table, due_before=7)) == mine


def test_a_scan_goes_by_key_page_by_page(store: Store) -> None:
    """In the order of their bytes, from the first above a key."""
    commit(store, rows={("k", key): key.encode() for key in KEYS})
    commit(store, rows={("k2", "a"): b"", ("", "a"): b""})
    ordered = sorted(KEYS, key=str.encode)

    pages, after = [], ""
    while page := store.read(lambda txn, after=after: txn.scan("k", after=after, limit=3)):  # type: ignore[misc]
        assert len(page) <= 3
        pages += page
        after = page[-1][0]

    assert pages == [(key, key.encode()) for key in ordered]
    assert keys(store, "k", after="a") == ordered[ordered.index("a") + 1 :]
    assert keys(store, "k", after="aa") == ordered[ordered.index("ab") :]
    assert keys(store, "k", limit=0) == keys(store, "none") == []


@pytest.mark.parametrize(
    ("prefix", "after", "found"),
    [
        ("a", "", ["a", "a%", "a%b", "ab", "abc", "a\U0001f980"]),
        ("ab", "", ["ab", "abc"]),
        ("ab", "ab", ["abc"]),
        ("ab", "aa", ["ab", "abc"]),
        ("ab", "ac", []),
        ("ab", "b", []),
        ("a%", "", ["a%", "a%b"]),
        ("a_", "", []),
        ("*", "", []),
        ("a\U0001f980", "", ["a\U0001f980"]),
        ('["', "", ['["x","y"]']),
        ("B", "", []),
    ],
)
def test_a_scan_finds_what_begins_with_a_prefix(
    store: Store, prefix: str, after: str, found: list[str]
) -> None:
    """Letter for letter; the first page begins where the prefix does."""
    there = ["a", "a%", "a%b", "ab", "abc", "a\U0001f980", "b", '["x","y"]', "Ab"]
    commit(store, rows={("k", key): b"" for key in there})

    assert keys(store, "k", prefix=prefix, after=after) == found
    assert keys(store, "k", prefix=prefix, after=after, limit=2) == found[:2]


def test_a_scan_finds_what_is_due(store: Store) -> None:
    """Up to a moment, the first due first and then by key; never what has no moment."""
    moments = {"a": 30, "b": 10, "d": 20, "e": 10, "f": 1_760_000_000_000}
    rows = {("k", key): key.encode() for key in (*moments, "c")}
    commit(store, rows=rows, dues={("k", key): due for key, due in moments.items()})
    commit(store, rows={("other", "x"): b""}, dues={("other", "x"): 5})

    assert keys(store, "k", due_before=100) == ["b", "e", "d", "a"]
    assert keys(store, "k", due_before=20, limit=2) == ["b", "e"]
    assert keys(store, "k", due_before=9) == []
    assert keys(store, "k", due_before=1 << 52) == ["b", "e", "d", "a", "f"]
    assert store.read(lambda txn: txn.scan("k", due_before=10, limit=1)) == [("b", b"b")]
    assert keys(store, "k") == ["a", "b", "c", "d", "e", "f"]


def test_what_is_due_moves_with_every_write(store: Store) -> None:
    """To another moment, to none, or away with the row; what others wrote beside it stays."""
    rows = {("k", key): b"1" for key in "abcd"}
    commit(store, rows=rows, dues=dict.fromkeys(rows, 10))

    commit(
        store,
        rows={("k", "a"): b"2", ("k", "b"): b"2", ("k", "c"): None},
        dues={("k", "a"): 20},
    )

    assert keys(store, "k", due_before=19) == ["d"]
    assert keys(store, "k", due_before=20) == ["d", "a"]
    assert store.read(lambda txn: txn.rows("k")) == {"a": b"2", "b": b"2", "d": b"1"}

    commit(store, rows={("k", "b"): b"3", ("k", "c"): b"3"}, dues={("k", "b"): 5})
    assert keys(store, "k", due_before=20) == ["b", "d", "a"]


def test_many_rows_are_as_good_as_one(store: Store) -> None:
    """Thousands in one batch: written, found, due and deleted."""
    rows = {("k", f"{n:05}"): b"%d" % n for n in range(3000)}
    commit(store, rows=rows, dues={row: 3000 - n for n, row in enumerate(rows)})
    values = {key: value for (_, key), value in rows.items()}

    assert store.read(lambda txn: txn.rows("k")) == store.read(lambda txn: txn.rows("k", list(values)))
    assert store.read(lambda txn: txn.rows("k")) == values
    pages = [store.read(lambda txn, at=at: txn.scan("k", after=at, limit=1500)) for at in ("", "01499")]  # type: ignore[misc]
    assert [row for page in pages for row in page] == list(values.items())
    assert keys(store, "k", due_before=3, limit=9) == ["02999", "02998", "02997"]

    commit(store, rows=dict.fromkeys(rows))
    assert store.read(lambda txn: (txn.rows("k"), txn.tables(), txn.scan("k", limit=9))) == ({}, [], [])


def test_a_batch_sees_the_rows_that_it_has_written(store: Store) -> None:
    """By key, by table, page by page and when due, before other processes do; read ahead or not."""
    commit(store, rows={("k", "a"): b"1", ("k", "b"): b"1", ("k", "c"): b"1"}, dues={("k", "a"): 5})

    def fn(txn: Txn) -> tuple[Changes, list[object]]:
        txn.read_ahead({"k": ["a", "b", "d"], "other": None})
        seen: list[object] = [txn.rows("k", ["a", "d"]), txn.rows("other")]
        rows = {("k", "a"): None, ("k", "b"): b"2", ("k", "d"): b"2", ("other", "x"): b"2"}
        txn.write(Changes(rows=rows, dues={("k", "d"): 6}))
        seen += [txn.rows("k", ["a", "b", "c", "d"]), txn.rows("k"), txn.rows("other")]
        seen += [txn.scan("k", limit=9), txn.scan("k", due_before=6, limit=9)]
        return Changes(rows={("k", "b"): b"3"}), seen

    first, none, *seen = store.run(fn)

    assert (first, none) == ({"a": b"1"}, {})
    after = {"b": b"2", "c": b"1", "d": b"2"}
    assert seen == [after, after, {"x": b"2"}, list(after.items()), [("d", b"2")]]
    assert store.read(lambda txn: txn.rows("k")) == after | {"b": b"3"}
