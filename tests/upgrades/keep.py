"""Keeps a store of today's layout for the tests of later versions: `make kept`, at each release.

`kept/` gets a file of SQLite, a dump of PostgreSQL and an RDB of Redis, each filled with something of
everything, and a summary of it. Until the first release the layout may still change, and those of layout 1
are made again; those of a released layout never.
"""

import gzip
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.queue.queue import Queue
from holdfast.store.contract import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.redis.store import RedisStore
from holdfast.store.sqlite.statements import LAYOUT
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import MovedClock
from tests.moving.filled import fill, make_queue
from tests.redis_servers import RedisServer
from tests.servers import PostgresServer, postgres_programs

KEPT = Path(__file__).parent / "kept"
# The schema and the prefix of the kept stores.
NAME = "kept"
# When they were filled.
START_MS = 1_800_000_000_000


def summary(queue: Queue) -> dict[str, Any]:
    """What a user can see of a filled store, without ids and times."""
    jobs = [*queue.jobs(limit=1000), *queue.jobs(archived=True, limit=1000)]
    return {
        "counts": queue.counts(),
        "jobs": sorted([job.task, job.state, job.priority, job.claim, repr(queue.data(job))] for job in jobs),
        "results": sorted(repr(queue.result(job)) for job in jobs if job.has_result),
        "logs": sorted([line.text for line in queue.log(job)] for job in jobs if job.log_lines),
        "steps": [queue.steps(job) for job in jobs if job.steps],
        "limits": {name.decode(): repr(limit) for name, limit in queue.limits().items()},
        "schedules": sorted(schedule.name for schedule in queue.schedules()),
    }


def main() -> None:
    """Fill a store of each kind, and keep it."""
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.db"
        _fill(lambda clock: SqliteStore(file, clock=clock))
        (KEPT / f"layout-{LAYOUT}.db.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    postgres = PostgresServer()
    try:
        _fill(lambda clock: PostgresStore(postgres.url(NAME), clock=clock))
        words = [str(postgres_programs() / "pg_dump"), "--no-owner", "--inserts", "-n", NAME, postgres.dsn]
        dump = subprocess.run(words, check=True, capture_output=True).stdout
        (KEPT / f"layout-{LAYOUT}.sql.gz").write_bytes(gzip.compress(dump, mtime=0))
    finally:
        postgres.close()
    redis = RedisServer()
    try:
        _fill(lambda clock: RedisStore(redis.url(NAME), clock=clock))
        with redis.client() as client:
            client.save()
        (KEPT / f"layout-{LAYOUT}.rdb").write_bytes((redis.folder / "dump.rdb").read_bytes())
    finally:
        redis.close()


def _fill(open_store: Callable[[MovedClock], Store]) -> None:
    clock = MovedClock(START_MS)
    with make_queue(lambda: open_store(clock)) as queue:
        fill(queue)
        text = json.dumps(summary(queue), indent=1, sort_keys=True)
    (KEPT / f"layout-{LAYOUT}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
