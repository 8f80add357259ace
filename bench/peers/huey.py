"""huey: https://huey.readthedocs.io

A task is deleted from the store when it is taken, before it runs: nothing to acknowledge.
The Redis store waits in BLPOP; the SQLite store polls (0.1 s, growing to 10 s when idle).
"""

import os
import sys

from harness import REDIS, TMP, VARIANT, tick

PEER = {
    "requires": ["huey", "redis", "hiredis"],
    "settings": "huey_consumer -w 1 -k thread, rest as shipped",
    "variants": {
        "sqlite": {
            "server": None,
            "single": 20_000,
            "threads": 20_000,
            "bulk": None,
            "drain": 20_000,
            "durability": "SQLite WAL, synchronous=FULL; job lost if the worker dies",
        },
        "redis": {
            "server": "redis",
            "single": 30_000,
            "threads": 30_000,
            "bulk": None,
            "drain": 20_000,
            "durability": "Redis RDB, no AOF; job lost if the worker dies",
        },
    },
}

from huey import RedisHuey, SqliteHuey

app = RedisHuey(url=REDIS) if VARIANT == "redis" else SqliteHuey(filename=f"{TMP}/huey.db")


@app.task()
def noop(payload):
    tick(payload)


def enqueue(payloads, bulk):
    for p in payloads:
        noop(p)


def work():
    os.execv(
        sys.executable,
        [sys.executable, "-m", "huey.bin.huey_consumer", "peers.huey.app", "-w", "1", "-k", "thread", "-q"],
    )


def pending():
    return app.storage.queue_size()
