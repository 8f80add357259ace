"""Runs one step of one contender, inside that contender's virtual environment.

    python child.py setup|enqueue|work|watch|latency CONTENDER [arguments]

The result, if any, is the last line of standard output, as JSON.
"""

import importlib
import importlib.metadata
import json
import sys
import threading
import time
from pathlib import Path

import harness

STALL = 60  # seconds without a new job before a phase is given up
THREADS = 16  # that add one by one at the same time
WARMUP, JOBS, GAP = 10, 200, 0.020  # latency: warm-up jobs, measured jobs, seconds between


def wait_for_ticks(n, nap=0.005):
    seen, since = -1, time.monotonic()
    while True:
        size = Path(harness.TICKS).stat().st_size
        if size >= n * harness.RECORD_BYTES:
            return
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > STALL:
            sys.exit(f"stalled after {seen // harness.RECORD_BYTES} of {n} jobs")
        time.sleep(nap)


def setup(peer):
    getattr(peer, "setup", lambda: None)()
    return {
        "versions": {
            r: importlib.metadata.version(r) for r in (r.split("[")[0] for r in peer.PEER["requires"])
        }
    }


def enqueue(peer, n, how):
    if how == "threads":
        return enqueue_in_threads(peer, int(n))
    started = None

    def payloads():
        nonlocal started
        started = time.monotonic()  # connections are open by now
        for i in range(int(n)):
            yield harness.payload(i)

    peer.enqueue(payloads(), how == "bulk")
    seconds = time.monotonic() - started
    return {"seconds": seconds, "pending": peer.pending()}


def enqueue_in_threads(peer, n):
    """One job after the other in each of 16 threads, which begin together."""
    begin = threading.Barrier(THREADS + 1)

    def payloads(first):
        begin.wait()
        for i in range(first, n, THREADS):
            yield harness.payload(i)

    threads = [threading.Thread(target=peer.enqueue, args=(payloads(i), False)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    begin.wait()
    started = time.monotonic()
    for thread in threads:
        thread.join()
    return {"seconds": time.monotonic() - started, "pending": peer.pending()}


def watch(peer, n):
    """Time at which n jobs have run and none is left unacknowledged."""
    wait_for_ticks(int(n))
    since = time.monotonic()
    while left := peer.pending():
        if time.monotonic() - since > STALL:
            sys.exit(f"{left} jobs never acknowledged")
        time.sleep(0.002)
    return {"acknowledged": time.monotonic_ns()}


def latency(peer):
    def payloads():
        for i in range(WARMUP):
            yield harness.payload(i)
            wait_for_ticks(i + 1, nap=0.02)
        time.sleep(1)
        for i in range(WARMUP, WARMUP + JOBS):
            yield harness.payload(i)
            time.sleep(GAP)

    peer.enqueue(payloads(), False)
    wait_for_ticks(WARMUP + JOBS)
    return {"jobs": WARMUP + JOBS, "warmup": WARMUP}


def work(peer):
    peer.work()


if __name__ == "__main__":
    step, name, *rest = sys.argv[1:]
    result = globals()[step](importlib.import_module(f"peers.{name}"), *rest)
    print(json.dumps(result))
