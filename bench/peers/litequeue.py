"""litequeue: https://github.com/litements/litequeue

A queue only: the worker loop is ours (pop, run, done; 1 ms nap when empty).
pop() sorts every waiting message each time, so the drain rate falls as the backlog grows.
"""

import time

from harness import TMP, tick

PEER = {
    "requires": ["litequeue"],
    "settings": "one loop of pop() and done(), our own poll of 1 ms when empty",
    "variants": {
        "": {
            "server": None,
            "single": 100_000,
            "bulk": None,
            "drain": 5_000,
            "durability": "SQLite WAL, synchronous=NORMAL: a power cut loses recent commits",
        },
    },
}

from litequeue import LiteQueue

queue = LiteQueue(f"{TMP}/litequeue.db")


def enqueue(payloads, bulk):
    for p in payloads:
        queue.put(p)


def work():
    while True:
        if message := queue.pop():
            tick(message.data)
            queue.done(message.message_id)
        else:
            time.sleep(0.001)


def pending():
    return queue.qsize()
