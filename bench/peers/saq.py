"""SAQ on Redis or PostgreSQL: https://saq-py.readthedocs.io"""

import asyncio

from harness import PG, REDIS, VARIANT, pg_count, redis_client, tick

PEER = {
    "requires": ["saq[redis,postgres,hiredis]", "psycopg[binary]"],
    "settings": "concurrency=30, ttl=-1 (result not kept)",
    "variants": {
        "redis": {
            "server": "redis",
            "single": 15_000,
            "bulk": None,
            "drain": 5_000,
            "durability": "Redis RDB, no AOF; acknowledged after it ran",
        },
        "postgres": {
            "server": "postgres",
            "single": 5_000,
            "bulk": None,
            "drain": 3_000,
            "durability": "PostgreSQL, fsync on; acknowledged after it ran",
        },
    },
}

from saq import Queue, Worker


def queue():
    return Queue.from_url(REDIS if VARIANT == "redis" else PG)


async def noop(ctx, *, payload):
    tick(payload)


def setup():
    async def main():  # two processes that first connect at once race to make the tables
        q = queue()
        await q.connect()
        await q.disconnect()

    asyncio.run(main())


def enqueue(payloads, bulk):
    async def main():
        q = queue()
        await q.connect()
        for p in payloads:
            await q.enqueue("noop", payload=p, ttl=-1)
        await q.disconnect()

    asyncio.run(main())


def work():
    async def main():
        q = queue()
        await q.connect()
        await Worker(q, [noop], concurrency=30).start()

    asyncio.run(main())


def pending():
    if VARIANT == "redis":
        return redis_client().zcard("saq:default:incomplete")
    return pg_count("select count(*) from saq_jobs where status in ('new', 'queued', 'active')")
