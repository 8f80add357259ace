"""This version opens what each released version has left: a file, a dump and an RDB (`make kept`)."""

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.store.contract import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.redis.store import RedisStore
from holdfast.store.sqlite.statements import LAYOUT
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import MovedClock
from tests.moving.filled import make_queue
from tests.redis_servers import RedisServer
from tests.upgrades.keep import KEPT, NAME, START_MS, summary

LAYOUTS = range(1, LAYOUT + 1)
Open = Callable[[MovedClock], Store]


@contextmanager
def _sqlite(request: pytest.FixtureRequest, kept: Path) -> Iterator[Open]:
    file = request.getfixturevalue("tmp_path") / "jobs.db"
    file.write_bytes(gzip.decompress(kept.with_suffix(".db.gz").read_bytes()))
    yield lambda clock: SqliteStore(file, clock=clock)


@contextmanager
def _postgres(request: pytest.FixtureRequest, kept: Path) -> Iterator[Open]:
    postgres = request.getfixturevalue("postgres")
    lines = gzip.decompress(kept.with_suffix(".sql.gz").read_bytes()).decode().splitlines(keepends=True)
    with postgres.connect() as connection:
        # Lines of psql itself, which newer versions of pg_dump write.
        connection.execute("".join(line for line in lines if not line.startswith("\\")))
        store = PostgresStore(postgres.url(NAME))
        try:
            store.migrate()
            yield lambda clock: PostgresStore(postgres.url(NAME), clock=clock)
        finally:
            store.close()
            connection.execute(f"DROP SCHEMA {NAME} CASCADE")


@contextmanager
def _redis(request: pytest.FixtureRequest, kept: Path) -> Iterator[Open]:
    folder = request.getfixturevalue("tmp_path")
    (folder / "dump.rdb").write_bytes(kept.with_suffix(".rdb").read_bytes())
    try:
        server = RedisServer(dir=str(folder))
    except RuntimeError as error:
        if "RDB format version" in str(error):
            pytest.skip("the server is older than the one that wrote the file")
        raise
    try:
        yield lambda clock: RedisStore(server.url(NAME), clock=clock)
    finally:
        server.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("open_kept", [_sqlite, _postgres, _redis])
def test_a_store_of_every_released_layout_is_opened_with_all_that_it_has(request, open_kept, layout):
    """What users see is the same; waiting jobs are run, and running ones by others when their leases end."""
    kept, clock = KEPT / f"layout-{layout}", MovedClock(START_MS)
    with open_kept(request, kept) as open_store, make_queue(lambda: open_store(clock)) as queue:
        assert json.loads(json.dumps(summary(queue))) == json.loads(kept.with_suffix(".json").read_text())

        clock.advance(60_000)
        done = {job.done("ok").task for job in queue.claim(limit=100, renew=False)}
        assert {"plain", "kept", "away", "resize", "call"} <= done
        added = queue.add("plain")
        (job,) = queue.claim(["plain"], renew=False)
        assert job.done("new").id == added.id
        assert queue.result(added) == "new"
