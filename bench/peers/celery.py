"""Celery on Redis: https://docs.celeryq.dev"""

import os
import sys

from harness import REDIS, VARIANT, redis_client, tick

PEER = {
    "requires": ["celery[redis]", "hiredis"],
    "server": "redis",
    "durability": "Redis RDB, no AOF; acknowledged before it runs, so lost if the worker dies",
    "variants": {
        "prefork": {
            "single": 5_000,
            "bulk": None,
            "drain": 5_000,
            "settings": "prefork -c 2, prefetch multiplier 128, results ignored",
        },
        "solo": {
            "single": 5_000,
            "bulk": None,
            "drain": 5_000,
            "settings": "solo, prefetch multiplier 128, results ignored",
        },
    },
}

from celery import Celery

app = Celery("bench", broker=REDIS)
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=128)


@app.task(name="noop")
def noop(payload):
    tick(payload)


def enqueue(payloads, bulk):
    for p in payloads:
        noop.delay(p)


def work():
    pool = {"prefork": ["-c", "2"], "solo": []}[VARIANT]
    os.execv(
        sys.executable,
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "peers.celery:app",
            "worker",
            "-P",
            VARIANT,
            *pool,
            "-l",
            "ERROR",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ],
    )


def pending():
    return redis_client().llen("celery") + redis_client().hlen("unacked")
