"""Holdfast: a durable job queue on a file, PostgreSQL or Redis, by its address alone.

The worker is `holdfast worker` as anybody starts it: one process claims and commits, another runs the
jobs, one at a time. Jobs that have ended are kept in an archive for a day, as shipped; some of the
others delete theirs. The worker of a variant `…-next` is a loop of `queue.next()` and `done()` in one
process and one thread.
"""

import os
import sys

from harness import PG, REDIS, TMP, VARIANT, chunks, tick

PEER = {
    "requires": ["holdfast-queue[all]"],
    "from": "BENCH_HOLDFAST",  # not published: the folder of its source
    "settings": "holdfast worker, nothing else said (one executor with one thread, archive on), "
    "bulk: add_many of 1000",
    "variants": {
        "sqlite": {
            "server": None,
            "single": 20_000,
            "threads": 40_000,
            "bulk": 400_000,
            "drain": 80_000,
            "durability": "SQLite WAL, synchronous=FULL; acknowledged after it ran",
        },
        "postgres": {
            "server": "postgres",
            "single": 15_000,
            "threads": 30_000,
            "bulk": 250_000,
            "drain": 80_000,
            "durability": "PostgreSQL, fsync on; acknowledged after it ran",
        },
        "redis": {
            "server": "redis",
            "single": 20_000,
            "threads": 30_000,
            "bulk": 250_000,
            "drain": 50_000,
            "durability": "Redis RDB, no AOF; acknowledged after it ran",
        },
        "sqlite-next": {
            "server": None,
            "single": None,
            "bulk": None,
            "drain": 20_000,
            "durability": "SQLite WAL, synchronous=FULL; acknowledged after it ran",
            "settings": "a loop of queue.next() and done()",
        },
        "postgres-next": {
            "server": "postgres",
            "single": None,
            "bulk": None,
            "drain": 10_000,
            "durability": "PostgreSQL, fsync on; acknowledged after it ran",
            "settings": "a loop of queue.next() and done()",
        },
        "redis-next": {
            "server": "redis",
            "single": None,
            "bulk": None,
            "drain": 15_000,
            "durability": "Redis RDB, no AOF; acknowledged after it ran",
            "settings": "a loop of queue.next() and done()",
        },
    },
}

import holdfast

STORES = {"sqlite": f"{TMP}/jobs.db", "postgres": PG, "redis": REDIS}
queue = holdfast.connect(STORES[VARIANT.removesuffix("-next")])


@queue.task()
def noop(payload: str) -> None:
    tick(payload)


def setup():
    queue.counts()  # whoever comes first makes the tables


def enqueue(payloads, bulk):
    queue.counts()  # opens the connection
    if bulk:
        for batch in chunks(payloads):
            noop.add_many((p,) for p in batch)
    else:
        for p in payloads:
            noop.add(p)


def work():
    if VARIANT.endswith("-next"):
        work_in_a_loop()
    os.execv(sys.executable, [sys.executable, "-m", "holdfast", "worker", "peers.holdfast:queue"])


def work_in_a_loop():
    while True:
        if job := queue.next(["noop"], wait=60):
            tick(job.data["payload"])
            job.done()


def pending():
    ended = ("FINISHED", "FAILED", "CANCELLED")
    return sum(n for states in queue.counts().values() for s, n in states.items() if s not in ended)
