"""A script of verbs, one after the other, over and over until its process is killed.

    limits and schedules ─▶ adds of every kind ─▶ a run with progress ─▶ a family through two waves
      ─▶ retry, fail, requeue, update, cancel, delete ─▶ pause and resume ─▶ close, and from the beginning

Wherever it is cut off, the store must open again and everything that it was told must stand.
"""

import holdfast

from .actor import Post
from .hand import Hand
from .ledger import Ledger

LEASE_S = 0.3


def play(post: Post, *, path: str, ledger: str, tag: str) -> None:
    """Play it until killed; each round opens the store anew."""
    book, rounds = Ledger(ledger), 0
    post.say("ready")
    while True:
        rounds += 1
        with holdfast.connect(path, lease=LEASE_S) as queue:
            hand = Hand(queue, book, f"{tag}.{rounds}")
            for act in ACTS:
                act(hand)


def govern(hand: Hand) -> None:
    """Limits and schedules, made and unmade."""
    queue = hand.queue
    queue.limit("site", rate=1000, burst=10, concurrency=2)
    queue.limit("shop-*", concurrency=1)
    queue.limit("gone", concurrency=1)
    queue.limit("gone")
    queue.schedule("nightly", "report", {"tag": "schedule", "n": 0}, cron="0 3 * * *")
    queue.pause_schedule("nightly")
    queue.unschedule("nightly")


def fill(hand: Hand) -> None:
    """Jobs of every kind."""
    hand.add("plain")
    hand.add_many("plain", 50)
    hand.add("later", delay=0.05, priority=1000)
    hand.add("expiring", expires=0.05)
    for domain in ("site", "shop-1", "free"):
        hand.add_many("plain", 5, domain=domain)
    hand.add("keyed", unique=hand.tag, unique_for="1h")


def run_one(hand: Hand) -> None:
    """A run with all that a holder may say."""
    for job in hand.claim(limit=3, tasks=["plain"]):
        job.progress(0.5, "half way")
        hand.extend(job)
        hand.done(job)


def family(hand: Hand) -> None:
    """A parent and its children, in two waves."""
    hand.add("parent")
    for _ in range(3):
        for job in hand.claim(limit=5, tasks=["parent", "child"], wait=0):
            for _ in range(2 if job.task == "parent" and job.claim < 3 else 0):
                hand.child(job, "child")
            hand.done(job)


def mishaps(hand: Hand) -> None:
    """Retry, fail and requeue, release, let lapse; cancel and delete."""
    jobs = hand.claim(limit=5, renew=False)
    for job, verb in zip(jobs, ("retry", "fail", "release", "done", "drop"), strict=False):
        if verb == "retry":
            hand.retry(job, 0.01)
        elif verb != "drop":
            getattr(hand, verb)(job)
    failed, cancelled, deleted = hand.add("unlucky"), hand.add("plain"), hand.add("plain")
    for job in hand.queue.claim(["unlucky"]):
        job.fail()
    hand.queue.requeue(failed)
    hand.queue.update(failed, priority=0)
    hand.queue.cancel(cancelled)
    hand.ledger.write("gone", id=deleted)
    hand.queue.delete(deleted)


def govern_again(hand: Hand) -> None:
    """Pauses, and the archive's old end."""
    hand.queue.pause("plain")
    hand.queue.resume("plain")
    hand.queue.pause(domain="site")
    hand.queue.resume(domain="site")
    hand.queue.counts()


ACTS = (govern, fill, run_one, family, mishaps, govern_again)
