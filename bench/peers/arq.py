"""arq: https://arq-docs.helpmanual.io

The worker polls a sorted set every poll_delay; that is its latency, and with max_jobs its rate.
"""

import asyncio

from harness import REDIS, VARIANT, redis_client, tick

PEER = {
    "requires": ["arq"],
    "server": "redis",
    "durability": "Redis RDB, no AOF; acknowledged after it ran",
    "variants": {
        "default": {
            "single": 15_000,
            "bulk": None,
            "drain": 1_000,
            "settings": "max_jobs=10, poll_delay=0.5 (both as shipped), keep_result=0",
        },
        "tuned": {
            "single": 15_000,
            "bulk": None,
            "drain": 5_000,
            "settings": "max_jobs=30, poll_delay=0.01, keep_result=0",
        },
    },
}

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

settings = RedisSettings.from_dsn(REDIS)


async def noop(ctx, payload):
    tick(payload)


def enqueue(payloads, bulk):
    async def main():
        pool = await create_pool(settings)
        for p in payloads:
            await pool.enqueue_job("noop", p)
        await pool.aclose()

    asyncio.run(main())


def work():
    asyncio.set_event_loop(asyncio.new_event_loop())  # Worker() wants one at once
    tuned = {"max_jobs": 30, "poll_delay": 0.01} if VARIANT == "tuned" else {}
    Worker([noop], redis_settings=settings, keep_result=0, **tuned).run()


def pending():
    return redis_client().zcard("arq:queue")
