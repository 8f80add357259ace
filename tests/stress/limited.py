"""Processes that work through limited domains.

worker   next ──▶ hold it a little ──▶ done, until nothing is left, or until killed
bulk     claim a hundred at a time, for very many domains
"""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import holdfast

from .actor import Post
from .hand import Hand
from .ledger import Ledger


def worker(post: Post, *, path: str, ledger: str, tag: str, hold_s: float, lease_s: float) -> None:
    """Work until nothing is left."""
    with holdfast.connect(path, lease=lease_s) as queue:
        hand = Hand(queue, Ledger(ledger), tag)
        post.say("ready")
        while (job := queue.next(until_empty=True)) is not None:
            hand.started(job)
            post.say("start")
            # The work: somebody has to be busy while others are held back.
            sleep(hold_s)
            hand.done(job)


def bulk(post: Post, *, path: str) -> None:
    """Work through many domains, many jobs at a time, until nothing is left."""
    with holdfast.connect(path) as queue, ThreadPoolExecutor(16) as threads:
        post.say("ready")
        done = 0
        while (first := queue.next(until_empty=True, renew=False)) is not None:
            jobs = [first, *queue.claim(limit=500, renew=False)]
            list(threads.map(lambda job: job.done(), jobs))
            done += len(jobs)
        post.say(str(done))
