"""Oban for Python (the open-source edition): https://oban.pro/docs/py"""

import asyncio

from harness import PG, chunks, pg_count, tick

PEER = {
    "requires": ["oban"],
    "python": "3.12",
    "server": "postgres",
    "durability": "PostgreSQL, fsync on; acknowledged after it ran",
    "settings": "queue limit 100, uvloop, bulk: enqueue_many of 1000",
    "variants": {"": {"single": 5_000, "bulk": 15_000, "drain": 20_000}},
}

import uvloop
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool


@worker(queue="default")
class Noop:
    async def process(self, job):
        tick(job.args["payload"])


def pool():
    return AsyncConnectionPool(PG, min_size=2, max_size=10, open=False)


def setup():
    async def main():
        async with pool() as p:
            await install(p)

    asyncio.run(main())


def enqueue(payloads, bulk):
    async def main():
        async with pool() as p:
            app = Oban(pool=p)
            if bulk:
                for batch in chunks(payloads):
                    await app.enqueue_many([Noop.new({"payload": x}) for x in batch])
            else:
                for x in payloads:
                    await app.enqueue(Noop.new({"payload": x}))

    uvloop.run(main())


def work():
    async def main():
        async with pool() as p, Oban(pool=p, queues={"default": 100}):
            await asyncio.Event().wait()

    uvloop.run(main())


def pending():
    return pg_count(
        "select count(*) from oban_jobs where state in ('available', 'scheduled', 'executing', 'retryable')"
    )
