"""Chancy: https://tkte.ch/chancy

Finished jobs are written back once a second, in one batch: the tail of the drain shows it.
"""

import asyncio

from harness import PG, pg_count, tick

PEER = {
    "requires": ["chancy[cli]", "psycopg[binary]"],
    "server": "postgres",
    "durability": "PostgreSQL, fsync on; acknowledged after it ran",
    "settings": "AsyncExecutor, concurrency=1000, eager_polling, bulk: sync_push_many of 1000",
    "variants": {"": {"single": 5_000, "bulk": 15_000, "drain": 10_000}},
}

from chancy import Chancy, Queue, Worker, job


@job()
async def noop(*, payload: str):
    tick(payload)


def setup():
    async def main():
        async with Chancy(PG) as app:
            await app.migrate()
            await app.declare(
                Queue("default", executor=Chancy.Executor.Async, concurrency=1000, eager_polling=True),
                upsert=True,
            )

    asyncio.run(main())


def enqueue(payloads, bulk):
    jobs = (noop.job.with_kwargs(payload=p) for p in payloads)
    with Chancy(PG) as app:  # the synchronous producer is a third faster than the other
        if bulk:
            for _ in app.sync_push_many(jobs, batch_size=1000):
                pass
        else:
            for j in jobs:
                app.sync_push(j)


def work():
    async def main():
        async with Chancy(PG) as app, Worker(app) as worker:
            await worker.wait_for_shutdown()

    asyncio.run(main())


def pending():
    return pg_count("select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')")
