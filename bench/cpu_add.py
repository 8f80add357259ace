"""The processor time of single adds, and of `next` and `done`, beside a peer's single adds.

    make cpu                        sqlite, redis and postgres
    python bench/cpu_add.py sqlite  one of them

The contenders alternate in one process, in its main thread, with default options: 12 rounds of 400 adds each.
Printed is the processor time for one, of this process and of the server's processes, in the least and the
median of the rounds, which a busy machine blurs less than a rate; and the median of the ratios in the same
round. Data is in /dev/shm where there is one: a sync then costs nothing, and only the work is seen. Needs the
peers: huey, pgqueuer, asyncpg, uvloop.
"""

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from servers import Postgres, Redis

ROUNDS, N = 12, 400
DATA = "x" * 80


def used_by(pid):
    """The processor time of the threads of a process and of all that it has started, in seconds."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    mine = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    return mine + sum(map(used_by, children))


def measure(contenders, served):
    """Print the processor time for one call of each contender; they take turns."""
    found = {name: ([], []) for name in contenders}
    for at in range(ROUNDS + 1):
        for name, (prepare, act) in contenders.items():
            prepare()
            server, client = served(), time.process_time()
            for _ in range(N):
                act()
            client, server = time.process_time() - client, served() - server
            if at:
                found[name][0].append(client / N * 1e6)
                found[name][1].append(server / N * 1e6)
    peer = next((name for name in contenders if not name.startswith("holdfast")), None)
    for name, (client, server) in found.items():
        line = f"  {name:24} client {min(client):5.0f} (median {statistics.median(client):5.0f})"
        line += f"  server {min(server):5.0f} (median {statistics.median(server):5.0f}) us"
        if peer is not None and name == "holdfast add":
            both = [[sum(pair) for pair in zip(*found[one], strict=True)] for one in (peer, name)]
            ratios = [theirs / ours for theirs, ours in zip(*both, strict=True)]
            line += f"  {statistics.median(ratios):.2f} of {peer}"
        print(line, flush=True)


def ours(url):
    """Our contenders: an add, and a claim with its finish."""
    import holdfast

    queue = holdfast.connect(url)

    @queue.task(attempts=5, timeout="2m")
    def noop(x: str) -> None: ...

    @queue.task(attempts=5, timeout="2m")
    def loop(x: str) -> None: ...

    def fill():
        loop.add_many([(DATA,)] * N)

    def step():
        queue.next(["loop"]).done()

    return {
        "holdfast add": (lambda: None, lambda: noop.add(DATA)),
        "holdfast next, done": (fill, step),
    }


def huey_of(**options):
    """huey's single add."""
    from huey import RedisHuey, SqliteHuey

    app = RedisHuey(**options) if "url" in options else SqliteHuey(**options, fsync=True)

    @app.task()
    def other(x): ...

    return {"huey add": (lambda: None, lambda: other(DATA))}


def pgqueuer_of(url):
    """PgQueuer's single add, by its synchronous way for programs without an event loop."""
    import psycopg
    from pgqueuer.db import SyncPsycopgDriver
    from pgqueuer.queries import SyncQueries

    connection = psycopg.connect(url, autocommit=True)
    queries = SyncQueries(SyncPsycopgDriver(connection))
    payload = DATA.encode()
    return {"PgQueuer add": (lambda: None, lambda: queries.enqueue("noop", payload))}


def install_pgqueuer(url):
    """Create its tables."""
    import asyncio

    import asyncpg
    from pgqueuer.db import AsyncpgDriver
    from pgqueuer.queries import Queries

    async def install():
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(install())


def main(engines):
    """Measure on each engine."""
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with ExitStack() as stack:
        tempfile.tempdir = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        Path(tempfile.tempdir).chmod(0o711)  # PostgreSQL runs as another user
        for engine in engines:
            print(engine, flush=True)
            if engine == "sqlite":
                place = Path(tempfile.mkdtemp())
                contenders = ours(str(place / "ours.db")) | huey_of(filename=str(place / "huey.db"))
                measure(contenders, lambda: 0.0)
                continue
            server = stack.enter_context(Redis() if engine == "redis" else Postgres())
            server.reset()
            pid = server.process.pid
            if engine == "redis":
                contenders = ours(server.url) | huey_of(url=server.url)
            else:
                install_pgqueuer(server.url)
                contenders = ours(server.url) | pgqueuer_of(server.url)
            measure(contenders, lambda pid=pid: used_by(pid))


main(sys.argv[1:] or ["sqlite", "redis", "postgres"])
