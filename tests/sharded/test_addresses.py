"""Shards by their addresses: what is made, and what is refused because it is something else."""

import sqlite3
from contextlib import closing

import pytest

import holdfast
from holdfast.core import ids
from holdfast.queue.connect import is_served, shown_url, store_file
from tests.cli.shell import Shell
from tests.queue_suite.tools import take_all
from tests.sharded.places import of


def test_a_folder_of_files_is_one_queue(tmp_path):
    """For whoever opens it."""
    url = f"sqlite:///{tmp_path}/jobs?shards=4"
    with holdfast.connect(url) as queue:
        added = [queue.add("work", n) for n in range(12)]

    with holdfast.connect(url) as queue:
        assert queue.counts() == {"work": {"QUEUED": 12}}
        assert {queue.data(job) for job in added} == set(range(12))
    assert {path.name for path in (tmp_path / "jobs").glob("*.db")} == {
        f"shard-{at}-of-4.db" for at in range(4)
    }
    assert {of(job) for job in added} == {0, 1, 2, 3}


def test_another_number_of_shards_is_refused(tmp_path):
    """Half of the jobs would be where nobody looks."""
    with holdfast.connect(f"sqlite:///{tmp_path}/jobs?shards=4") as queue:
        queue.add("work")

    with (
        holdfast.connect(f"sqlite:///{tmp_path}/jobs?shards=2") as queue,
        pytest.raises(holdfast.StoreError, match="another number of shards than 2"),
    ):
        queue.add("work")


def test_stores_in_another_order_are_refused(tmp_path):
    """Each knows which one it is; so is one twice, and one that has jobs of its own."""
    one, two = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two"))
    with holdfast.connect(f"{one} {two}") as queue:
        queue.add("work")
        queue.add("work")
    with holdfast.connect(f"sqlite:///{tmp_path}/alone.db") as queue:
        queue.add("work")

    for url, found in (
        (f"{two} {one}", "is shard 1 of 2, and was opened as shard 0 of 2"),
        (f"{one} {one}", "is shard 0 of 2, and was opened as shard 1 of 2"),
        (f"{one} sqlite:///{tmp_path}/alone.db", "is a store of its own"),
    ):
        with holdfast.connect(url) as queue, pytest.raises(holdfast.StoreError, match=found):
            queue.counts()


def test_a_job_of_another_shard_is_refused_in_a_transaction_of_ones_own(tmp_path):
    """By its domain or its key, also that of a follow-up job; the others are in their shard."""
    path = tmp_path / "jobs" / "shard-1-of-2.db"
    path.parent.mkdir()
    with (
        holdfast.connect(f"sqlite:///{path.parent}?shards=2") as queue,
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        queue.counts()
        keys = [f"k{n}" for n in range(8)]
        here = [key for key in keys if ids.slot_of("", "work", key.encode()) % 2 == 1]
        connection.execute("BEGIN IMMEDIATE")
        for key in keys:
            if key in here:
                assert of(queue.add("work", unique=key, connection=connection)) % 2 == 1
                continue
            with pytest.raises(holdfast.BadInput, match=f"unique is b'{key}'.*your connection"):
                queue.add("work", unique=key, connection=connection)
        then = queue.call("then", unique="k")
        with pytest.raises(holdfast.BadInput, match="key of a follow-up job"):
            queue.add("work", unique=here[0], then=then, connection=connection)
        connection.execute("COMMIT")

        assert 0 < len(here) < 8
        assert queue.counts() == {"work": {"QUEUED": len(here)}}
        assert len(take_all(queue)) == len(here)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///jobs?shards=3",
        "sqlite:///jobs?shards=128",
        "sqlite:///jobs?shards=two",
        "sqlite:///a.db sqlite:///b.db sqlite:///c.db",
    ],
)
def test_numbers_of_shards_are_powers_of_two(url):
    """Refused at once, before anything is opened."""
    with pytest.raises(holdfast.BadInput, match="shards"):
        holdfast.connect(url)


def test_addresses_are_shown_without_their_passwords():
    """Each of them."""
    url = "postgresql://me:secret@a/jobs postgresql://me:secret@b/jobs?password=hidden"

    assert shown_url(url) == "postgresql://me@a/jobs postgresql://me@b/jobs?password=…"
    assert is_served(url)
    assert store_file("my jobs.db") is not None


def test_the_command_line_takes_shards(tmp_path):
    """As any other store."""
    shell, store = Shell(tmp_path), ("--store", f"sqlite:///{tmp_path}/jobs?shards=2")
    for _ in range(4):
        shell.ok("add", "work", *store)

    assert shell.ok("counts", "--json", *store).record["totals"] == {"QUEUED": 4}
    assert len(shell.ok("jobs", "--json", *store).records) == 4
    assert shell.ok("doctor", "--json", *store).record["facts"]["store"] == "2 shards"
