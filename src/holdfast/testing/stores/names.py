"""Domains, unique keys and small records: what is found by its name."""

import pytest

from ...core.errors import Unavailable
from ...core.limits import Domain, Lane
from ...core.unique import Unique, UniqueKey
from ...store.contract import Store

# Any bytes may name a domain or be a key: NUL, slashes, what is no text, and a whole kilobyte.
NAMES = [b"", b"\x00", b"\x00\x00", b"a/b", b"a", b"A", b"\xff\xfe", "é".encode(), b"\xff" * 1024, b"%_'\""]


def test_a_domain_comes_back_as_it_went_in(store: Store) -> None:
    """Whatever its name, and apart from the same name of another tenant."""
    lanes = {"t": Lane(ready=1, held=2), "ü": Lane(held=3)}
    domains = [Domain(tenant="", name=name, tat_us=1 << 52, running=3, lanes=lanes) for name in NAMES]
    domains += [Domain(tenant="x", name=name) for name in NAMES]

    store.run(lambda txn: txn.swap_domains(domains))

    keys = [domain.key for domain in domains]
    assert store.read(lambda txn: txn.domains(keys)) == {domain.key: domain for domain in domains}
    assert store.read(lambda txn: txn.domains([("", b"b")])) == {}
    assert store.read(lambda txn: txn.domains([])) == {}


def test_a_domain_is_replaced_by_its_next_version(store: Store) -> None:
    """One of version 1 is new; anything else refuses the batch."""
    first, second = Domain(tenant="", name=b"d"), Domain(tenant="", name=b"d", version=2, running=1)
    store.run(lambda txn: txn.swap_domains([first]))
    store.run(lambda txn: txn.swap_domains([second]))
    new = Domain(tenant="", name=b"new")

    for wrong in (
        first,
        second,
        Domain(tenant="", name=b"d", version=4),
        Domain(tenant="", name=b"e", version=2),
    ):
        with pytest.raises(Unavailable):
            store.run(lambda txn, wrong=wrong: txn.swap_domains([new, wrong]))  # type: ignore[misc]

    assert store.read(lambda txn: txn.list_domains("", after=b"", limit=9)) == [second]


def test_a_domain_is_dropped_as_stored(store: Store) -> None:
    """And may then be made anew."""
    first, second = Domain(tenant="", name=b"d"), Domain(tenant="", name=b"d", version=2)
    store.run(lambda txn: txn.swap_domains([first]))
    store.run(lambda txn: txn.swap_domains([second]))

    with pytest.raises(Unavailable):
        store.run(lambda txn: txn.drop_domains([first]))
    store.run(lambda txn: txn.drop_domains([second]))

    assert store.read(lambda txn: txn.domains([first.key])) == {}
    store.run(lambda txn: txn.swap_domains([first]))


def test_domains_are_listed_by_name(store: Store) -> None:
    """Those of one tenant, in the order of their bytes, from the first above a name."""
    store.run(lambda txn: txn.swap_domains([Domain(tenant="a", name=name) for name in NAMES]))
    store.run(lambda txn: txn.swap_domains([Domain(tenant="b", name=b"other")]))
    named = [name for name in sorted(NAMES) if name]

    def listed(after: bytes, limit: int) -> list[bytes]:
        return store.read(lambda txn: [d.name for d in txn.list_domains("a", after=after, limit=limit)])

    assert listed(b"", 99) == named
    assert listed(named[2], 2) == named[3:5]


def test_domains_come_when_they_are_due(store: Store) -> None:
    """Up to a moment, first ones first, never those of moment 0."""
    moments = {b"a": 30, b"b": 10, b"c": 0, b"d": 20, b"e": 10}
    store.run(
        lambda txn: txn.swap_domains([Domain(tenant="", name=n, due_ms=ms) for n, ms in moments.items()])
    )

    def due(up_to: int, limit: int) -> list[bytes]:
        return store.read(lambda txn: [d.name for d in txn.due_domains(up_to, limit)])

    assert due(100, 9) == [b"b", b"e", b"d", b"a"]
    assert due(20, 2) == [b"b", b"e"]
    assert due(9, 9) == []

    store.run(lambda txn: txn.swap_domains([Domain(tenant="", name=b"b", version=2)]))
    assert due(10, 9) == [b"e"]


def test_a_key_is_held_by_whoever_was_put_last(store: Store) -> None:
    """Whatever its bytes, per tenant and task; free again when dropped."""
    holders = [Unique(tenant="", task="t", key=key, job_id=n) for n, key in enumerate(NAMES, start=1)]
    keys: list[UniqueKey] = [holder.id for holder in holders]
    store.run(lambda txn: txn.put_unique(holders))
    taken = Unique(tenant="", task="t", key=b"a", job_id=(1 << 63) - 1, until_ms=5)

    store.run(lambda txn: txn.put_unique([taken]))
    store.run(lambda txn: txn.drop_unique([*keys[:3], ("", "t", b"never held")]))

    found = store.read(lambda txn: txn.find_unique([*keys, ("", "u", b"a"), ("x", "t", b"a")]))
    assert found == {holder.id: holder for holder in holders[3:]} | {taken.id: taken}
    assert store.read(lambda txn: txn.find_unique([])) == {}


def test_keys_lapse_when_their_time_is_over(store: Store) -> None:
    """Those that are held until a job ends do not; as many as asked for at once."""
    untils = [0, 10, 20, 30, 10]
    holders = [
        Unique(tenant="", task="t", key=bytes([n]), job_id=1, until_ms=u) for n, u in enumerate(untils)
    ]
    store.run(lambda txn: txn.put_unique(holders))

    assert store.run(lambda txn: txn.lapse_unique(9, 9)) == 0
    assert store.run(lambda txn: txn.lapse_unique(10, 1)) == 1
    assert store.run(lambda txn: txn.lapse_unique(20, 9)) == 2
    assert store.read(lambda txn: txn.find_unique([h.id for h in holders])).keys() == {
        ("", "t", b"\x00"),
        ("", "t", b"\x03"),
    }


def test_records_are_kept_by_kind_and_name(store: Store) -> None:
    """Any bytes under any name; replaced, deleted, found by name or all of a kind."""
    values = [b"", b"{}", "é✓".encode(), b"\x00", b"a\x00b", b"\xff", b'"quoted"', bytes(range(256)) * 40]
    records = {f"näme {n} \"'": value for n, value in enumerate(values)}
    store.run(lambda txn: txn.put_records("k", records))
    store.run(lambda txn: txn.put_records("other", {"a": b"1"}))

    assert store.read(lambda txn: txn.records("k")) == records
    some = [*list(records)[:3], "unknown"]
    assert store.read(lambda txn: txn.records("k", some)) == {name: records[name] for name in some[:3]}
    assert store.read(lambda txn: txn.records("k", [])) == {}
    assert store.read(lambda txn: txn.records("none")) == {}

    first, second, *_ = records
    store.run(lambda txn: txn.put_records("k", {first: b"new", second: None, "unknown": None}))
    assert store.read(lambda txn: txn.records("k", [first, second])) == {first: b"new"}
    assert store.read(lambda txn: txn.records("other")) == {"a": b"1"}


def test_many_are_as_good_as_one(store: Store) -> None:
    """A thousand names in one call."""
    domains = [Domain(tenant="", name=str(n).encode(), due_ms=n) for n in range(1, 1001)]
    holders = [Unique(tenant="", task="t", key=str(n).encode(), job_id=n, until_ms=n) for n in range(1, 1001)]
    store.run(lambda txn: txn.swap_domains(domains))
    store.run(lambda txn: txn.put_unique(holders))
    store.run(lambda txn: txn.put_records("k", {str(n): b"%d" % n for n in range(1000)}))

    assert store.read(lambda txn: txn.domains([d.key for d in domains])) == {d.key: d for d in domains}
    assert store.read(lambda txn: txn.find_unique([h.id for h in holders])) == {h.id: h for h in holders}
    assert len(store.read(lambda txn: txn.records("k"))) == 1000

    store.run(lambda txn: txn.drop_unique([h.id for h in holders]))
    store.run(lambda txn: txn.drop_domains(domains))
    assert store.read(lambda txn: txn.find_unique([h.id for h in holders])) == {}
    assert store.read(lambda txn: txn.due_domains(9999, 9)) == []
