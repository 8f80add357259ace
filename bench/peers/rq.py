"""RQ: https://python-rq.org

The default Worker forks a process for every job; SimpleWorker runs jobs in its own process.
"""

import os
import sys

from harness import REDIS, VARIANT, chunks, redis_client, tick

PEER = {
    "requires": ["rq", "hiredis"],
    "server": "redis",
    "durability": "Redis RDB, no AOF; a dead worker's job is moved to failed, not rerun",
    "variants": {
        "simple": {
            "single": 10_000,
            "bulk": 30_000,
            "drain": 2_000,
            "settings": "SimpleWorker, bulk: enqueue_many of 1000",
        },
        "fork": {
            "single": 10_000,
            "bulk": 30_000,
            "drain": 300,
            "settings": "Worker (the default), bulk: enqueue_many of 1000",
        },
    },
}

from rq import Queue

queue = Queue(connection=redis_client())


def noop(payload):
    tick(payload)


def enqueue(payloads, bulk):
    if bulk:
        for batch in chunks(payloads):
            queue.enqueue_many([Queue.prepare_data(noop, (p,)) for p in batch])
    else:
        for p in payloads:
            queue.enqueue(noop, p)


def work():
    kind = {"simple": "rq.worker.SimpleWorker", "fork": "rq.worker.Worker"}[VARIANT]
    os.execv(
        sys.executable, [sys.executable, "-m", "rq.cli", "worker", "-q", "-u", REDIS, "-w", kind, "default"]
    )


def pending():
    return queue.count + redis_client().zcard(queue.started_job_registry.key)
