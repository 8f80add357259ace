"""The engine's limit: LPUSH, LMOVE to a second list, run, LREM.

One command a round trip with redis-py, or pipelines written and read with hiredis alone.
"""

import socket
import urllib.parse

from harness import REDIS, VARIANT, chunks, redis_client, tick_many

PEER = {
    "requires": ["redis", "hiredis"],
    "server": "redis",
    "durability": "Redis RDB, no AOF; acknowledged after it ran",
    "variants": {
        "1": {
            "single": 40_000,
            "bulk": None,
            "drain": 20_000,
            "settings": "one command a round trip; BLMOVE when idle",
        },
        "1000": {
            "single": None,
            "bulk": 1_500_000,
            "drain": 800_000,
            "settings": "pipelines of 1000 commands (hiredis, no redis-py); BLMOVE when idle",
        },
    },
}

import hiredis

redis = redis_client()
where = urllib.parse.urlsplit(REDIS)
wire, reader = socket.create_connection((where.hostname, where.port)), hiredis.Reader()


def pipelined(commands):
    """As redis-py's pipeline(), without its cost of 10 microseconds a command."""
    commands = list(commands)
    wire.sendall(b"".join(map(hiredis.pack_command, commands)))
    replies = []
    while len(replies) < len(commands):
        if (reply := reader.gets()) is False:
            reader.feed(wire.recv(1 << 20))
        else:
            replies.append(reply)
    return replies


def enqueue(payloads, bulk):
    if bulk:
        for batch in chunks(payloads):
            pipelined(("LPUSH", "queue", p) for p in batch)
    else:
        for p in payloads:
            redis.lpush("queue", p)


def work():
    size = int(VARIANT)
    while True:
        claimed = [redis.blmove("queue", "active", 0, "RIGHT", "LEFT")]
        if more := min(size - 1, redis.llen("queue") if size > 1 else 0):
            claimed += pipelined([("LMOVE", "queue", "active", "RIGHT", "LEFT")] * more)
        tick_many([p.decode() for p in claimed if p])
        if size == 1:
            redis.lrem("active", -1, claimed[0])
        else:
            pipelined(("LREM", "active", -1, p) for p in claimed if p)


def pending():
    return redis.llen("queue") + redis.llen("active")
