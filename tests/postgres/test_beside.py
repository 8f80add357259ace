"""Small data stands beside its job, what is larger apart: nobody can tell by looking through the queue."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.errors import Unavailable
from holdfast.store.contract import Changes, NewJobs
from holdfast.store.postgres.changes import BESIDE
from holdfast.testing.stores.making import a_job, add, commit, ended, look
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


def test_of_one_batch_each_stands_where_it_should(queue, counted):
    """Alike or not, text or bytes."""
    added = queue.add_many([("work", SMALL), ("work", LARGE), ("other", SMALL.encode()), ("other", LARGE)])

    assert counted() == (2, 0, 2)
    assert [queue.data(job) for job in added] == [SMALL, LARGE, SMALL.encode(), LARGE]


def test_data_that_is_replaced_is_there_once(store, queue, counted):
    """A job that is given other data has it apart, and not the old beside it as well."""
    added = queue.add("work", SMALL)

    commit(store, data={added.id: f'"{OTHER}"'})

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
    """Whether its data stands beside it or apart; nothing of the batch is written."""
    add(store, a_job(1), a_job(2), a_job(4))
    done = [ended(job) for job in look(store, lambda txn: txn.load([1, 2])).values()]
    commit(store, archived=done)

    for known in (1, 2):
        groups = [NewJobs(a_job(9), [(known, "{}"), (5, "{}")]), NewJobs(a_job(3, task="u"), [(3, "{}")])]
        for some in (groups, groups[:1]):
            with pytest.raises(Unavailable):
                store.run(lambda txn, some=some: (Changes(added=some), None))

    assert all_ids(store) == [4]
