"""taskiq with taskiq-redis: https://taskiq-python.github.io"""

import asyncio
import os
import sys

from harness import REDIS, VARIANT, redis_client, tick

PEER = {
    "requires": ["taskiq", "taskiq-redis", "redis", "hiredis", "uvloop"],
    "server": "redis",
    "settings": "-w 1 --max-async-tasks 100 --max-prefetch 100, uvloop",
    "variants": {
        "list": {
            "single": 10_000,
            "bulk": None,
            "drain": 10_000,
            "durability": "Redis RDB, no AOF; job lost if the worker dies",
        },
        "stream": {
            "single": 10_000,
            "bulk": None,
            "drain": 10_000,
            "durability": "Redis RDB, no AOF; acknowledged after it ran",
        },
    },
}

from taskiq_redis import ListQueueBroker, RedisStreamBroker

broker = {"list": ListQueueBroker, "stream": RedisStreamBroker}[VARIANT](REDIS)


@broker.task(task_name="noop")
async def noop(payload: str) -> None:
    tick(payload)


def enqueue(payloads, bulk):
    async def main():
        await broker.startup()
        for p in payloads:
            await noop.kiq(p)
        await broker.shutdown()

    asyncio.run(main())


def work():
    os.execv(
        sys.executable,
        [
            sys.executable,
            "-m",
            "taskiq",
            "worker",
            "peers.taskiq:broker",
            "-w",
            "1",
            "--max-async-tasks",
            "100",
            "--max-prefetch",
            "100",
            "--log-level",
            "WARNING",
        ],
    )


def pending():
    if VARIANT == "list":
        return redis_client().llen("taskiq")
    group = redis_client().xinfo_groups("taskiq")[0]
    return group["pending"] + (group["lag"] or 0)
