"""Small data stands beside its job, what is larger apart: nobody can tell by looking through the queue."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from holdfast.store.postgres.rows import BESIDE

import holdfast
from holdfast.store.postgres import open as postgres_open
from holdfast.store.postgres.statements import migrations
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing.stores.making import a_job, ended
from tests.store.helpers import all_ids

SMALL, OTHER, LARGE = "s" * 10, "o" * 10, "é" * BESIDE
WHERE = "SELECT count(body) + count(raw) FROM {}.{}"


@pytest.fixture
def counted(postgres, schema):
    """How many bodies stand beside live jobs, beside archived ones, and apart."""

    def count():
        with postgres.connect() as connection:
            tables = ("jobs", "archive", "data_apart")
            rows = [connection.execute(WHERE.format(schema, table)).fetchone() for table in tables]
            return tuple(row[0] for row in rows)

    return count


@pytest.mark.parametrize(("data", "beside"), [(SMALL, 1), (LARGE, 0)])
def test_data_goes_with_its_job_to_the_archive(queue, counted, data, beside):
    """Beside it or apart, it is the same when claimed and when looked up later."""
    added = queue.add("work", data)
    assert counted() == (beside, 0, 1 - beside)

    job = queue.next(["work"])
    assert job.data == data
    job.done()

    assert queue.data(added) == data
    assert counted() == (0, beside, 1 - beside)


def test_jobs_of_one_batch_are_all_kept_apart_if_one_is_large(queue, counted):
    """So that a batch is one statement."""
    added = queue.add_many([("work", SMALL), ("work", LARGE)])

    assert counted() == (0, 0, 2)
    assert [queue.data(job) for job in added] == [SMALL, LARGE]


def test_data_that_is_replaced_is_there_once(store, queue, counted):
    """A job that is given other data has it apart, and not the old beside it as well."""
    added = queue.add("work", SMALL)

    store.run(lambda txn: txn.put_bodies({added.id: f'"{OTHER}"'}))

    assert queue.data(added) == OTHER
    assert counted() == (0, 0, 1)
    assert queue.next(["work"]).data == OTHER


def test_what_goes_leaves_nothing_beside_or_apart(queue, counted):
    """Removed, or purged from the archive."""
    for data in (SMALL, LARGE):
        queue.delete(queue.add("work", data))
        queue.add("work", data)
        queue.next(["work"]).done()
    queue.purge(before=datetime.now(UTC) + timedelta(days=1))

    assert counted() == (0, 0, 0)


def test_an_id_of_an_archived_job_is_never_given_again(store):
    """Whether its data stands beside it or apart, and whoever adds."""
    store.run(lambda txn: txn.insert_alike(a_job(1), [(1, "{}"), (2, "{}"), (4, "{}")]))
    store.run(lambda txn: txn.archive([ended(txn.load([n])[n]) for n in (1, 2)], keep=True))

    assert store.run(lambda txn: txn.insert([(a_job(1), "{}"), (a_job(3), "{}")])) == {1}
    assert store.run(lambda txn: txn.insert_alike(a_job(9), [(2, "{}"), (5, "{}")])) == {2}
    assert all_ids(store) == [3, 4, 5]


def test_a_schema_of_the_version_before_is_refused_until_it_is_migrated(postgres, monkeypatch):
    """What was kept apart then is found, and is claimed as what is added now."""
    url, known = postgres.url("before"), migrations
    with monkeypatch.context() as patch:
        patch.setattr(postgres_open, "migrations", lambda schema: known(schema)[:3])
        with closing(PostgresStore(url)) as old:
            old.migrate()
    with postgres.connect() as connection:
        (old_id,) = connection.execute("SELECT before.add('work', '{\"n\": 1}')").fetchone()
    last = len(known("before"))
    refused = rf"version 3, and this Holdfast needs {last}: .* holdfast migrate"
    with pytest.raises(holdfast.StoreError, match=refused):
        holdfast.connect(url).counts()

    with closing(PostgresStore(url)) as store:
        assert store.migrate() == [*range(4, last + 1)]

    with holdfast.connect(url) as queue:
        new = queue.add("work", {"n": 2})
        assert {job.id: job.data["n"] for job in queue.claim(["work"], limit=2)} == {old_id: 1, new.id: 2}
