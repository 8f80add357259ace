"""Real workers on a server: they work, survive its restart, and write nothing when there is nothing to do."""

import time
from collections.abc import Iterator

import pytest

from holdfast.core.queries import ListWorkers
from tests.servers import PostgresServer
from tests.work.conftest import Bench


@pytest.fixture
def bench(tmp_path, postgres_url) -> Iterator[Bench]:
    """A store on the server, and nothing left running."""
    bench = Bench(tmp_path, postgres_url)
    yield bench
    bench.close()


@pytest.mark.proof
def test_a_worker_works_off_what_there_is(bench):
    """Functions and coroutines; results are there."""
    jobs = [bench.queue.add("double", {"n": n}) for n in range(20)]
    later = bench.queue.add("later", {"n": 1})

    bench.work("--processes", "2")

    assert [job.result() for job in jobs] == [2 * n for n in range(20)]
    assert later.result() == 2


@pytest.mark.proof
def test_a_worker_goes_on_when_its_server_was_restarted(tmp_path, server: PostgresServer):
    """Without being told; what it did meanwhile is not lost."""
    bench = Bench(tmp_path, server.url())
    try:
        bench.start()
        assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
        server.stop(immediately=True)
        server.start()

        assert bench.queue.add("double", {"n": 2}).result(wait=60) == 4
    finally:
        bench.close()


@pytest.mark.long
def test_a_worker_with_nothing_to_do_writes_nothing(bench, postgres, schema):
    """It looks around, and that is all."""
    bench.start()
    assert bench.queue.add("double", {"n": 1}).result(wait=60) == 2
    ask = bench.queue.connection.ask
    # It says once more what it has done, and from then on nothing.
    bench.wait_for(lambda: [one.done for one in ask(ListWorkers())] == [1])
    bench.queue.close()

    with postgres.connect() as connection:
        # Upkeep comes ten seconds after the last job, and later on a busy machine.
        for _ in range(3):
            before = _rows(connection, schema)
            time.sleep(12)
            if _rows(connection, schema) == before:
                return
    pytest.fail("it has written in each of three windows")


def _rows(connection, schema):
    """Which rows there are, and which transactions wrote them."""
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    rows = "SELECT array_agg(ctid::text || xmin::text ORDER BY ctid) FROM {}.{}"
    return {name: connection.execute(rows.format(schema, name)).fetchone() for (name,) in tables}
