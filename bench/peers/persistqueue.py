"""persist-queue, SQLiteAckQueue: https://github.com/peter-wangxu/persist-queue

A queue only: the worker loop is ours. get(block=True) sleeps up to 10 s when the put is made by
another process, so the loop polls. Acknowledged rows stay and slow down get() until they are
cleared; the loop clears them every 1000 jobs.
"""

import time

from harness import TMP, tick

PEER = {
    "requires": ["persist-queue"],
    "settings": "one loop of get(block=False) and ack(), clear_acked_data() every 1000, "
    "our own poll of 1 ms when empty",
    "variants": {
        "": {
            "server": None,
            "single": 30_000,
            "bulk": None,
            "drain": 10_000,
            "durability": "SQLite WAL, synchronous=FULL",
        },
    },
}

from persistqueue import Empty, SQLiteAckQueue

queue = SQLiteAckQueue(TMP, auto_resume=False)


def enqueue(payloads, bulk):
    for p in payloads:
        queue.put(p)


def work():
    done = 0
    while True:
        try:
            item = queue.get(block=False, raw=True)
        except Empty:
            time.sleep(0.001)
            continue
        tick(item["data"])
        queue.ack(id=item["pqid"])
        done += 1
        if done % 1000 == 0:
            queue.clear_acked_data(max_delete=1000, keep_latest=0)


def pending():
    return queue._count() + queue.unack_count()
