"""Dramatiq on Redis: https://dramatiq.io"""

import os
import sys

from harness import REDIS, redis_client, tick

PEER = {
    "requires": ["dramatiq[redis]", "hiredis"],
    "server": "redis",
    "durability": "Redis RDB, no AOF; acknowledged after it ran",
    "settings": "-p 1 -t 2, dramatiq_queue_prefetch=100",
    "variants": {"": {"single": 20_000, "bulk": None, "drain": 15_000}},
}

import dramatiq
from dramatiq.brokers.redis import RedisBroker

broker = RedisBroker(url=REDIS)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(payload):
    tick(payload)


def enqueue(payloads, bulk):
    for p in payloads:
        noop.send(p)


def work():
    os.environ["dramatiq_queue_prefetch"] = "100"  # noqa: SIM112 - that is its name
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", "peers.dramatiq", "-p", "1", "-t", "2"])


def pending():
    return redis_client().hlen("dramatiq:default.msgs")
