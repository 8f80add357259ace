"""Real workers on a server: they work, survive its restart, and write nothing when there is nothing to do."""

import time
from collections.abc import Iterator

import pytest

from tests.servers import PostgresServer
from tests.work.conftest import Bench


@pytest.fixture
def bench(tmp_path, postgres_url) -> Iterator[Bench]:
    """A store on the server, and nothing left running."""
    bench = Bench(tmp_path, postgres_url)
    yield bench
    bench.close()


def test_a_worker_works_off_what_there_is(bench):
    """Functions and coroutines; results are there."""
    jobs = [bench.queue.add("double", {"n": n}) for n in range(20)]
    later = bench.queue.add("later", {"n": 1})

    bench.work("--processes", "2")

    assert [job.result() for job in jobs] == [2 * n for n in range(20)]
    assert later.result() == 2


def test_a_worker_goes_on_when_its_server_was_restarted(tmp_path, server: PostgresServer):
    """Without being told; what it did meanwhile is not lost."""
    bench = Bench(tmp_path, server.url())
    try:
        bench.start()
        assert bench.queue.add("double", {"n": 1}).result(wait=30) == 2
        server.stop(immediately=True)
        server.start()
        back_s = time.monotonic()

        assert bench.queue.add("double", {"n": 2}).result(wait=30) == 4
        assert time.monotonic() - back_s < 5.0
    finally:
        bench.close()


def test_a_worker_with_nothing_to_do_writes_nothing(bench, postgres, schema):
    """It looks around, and that is all."""
    bench.start()
    assert bench.queue.add("double", {"n": 1}).result(wait=30) == 2
    bench.queue.close()
    # Its entry among the workers comes a moment after its start, and upkeep ten seconds after its last job.
    time.sleep(5)

    with postgres.connect() as connection:
        before = _rows(connection, schema)
        time.sleep(12)
        assert _rows(connection, schema) == before


def _rows(connection, schema):
    """Which rows there are, and which transactions wrote them."""
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    rows = "SELECT array_agg(ctid::text || xmin::text ORDER BY ctid) FROM {}.{}"
    return {name: connection.execute(rows.format(schema, name)).fetchone() for (name,) in tables}
