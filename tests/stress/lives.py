"""Small roles: one writes large batches without end, one waits for jobs, one waits for nothing."""

import time

import holdfast
from holdfast.core import bounds
from holdfast.engine import sysid, upkeep, waiter
from holdfast.store.sqlite import store as sqlite

from .actor import Post
from .hand import Hand
from .ledger import Ledger

# So short that a few seconds of waiting see what else happens once a minute: a process's number runs
# out, and upkeep looks around.
LEASE_MS = 1_000
# How long a process that waits for jobs relies on being woken.
LOOK_S = 20.0


def write_batches(post: Post, *, path: str, ledger: str, tag: str, batch: int) -> None:
    """Add batch after batch, until killed."""
    hand = Hand(holdfast.connect(path), Ledger(ledger), tag)
    post.say("ready")
    while True:
        hand.add_many("kept", batch)
        post.say("added")


def wait_for_jobs(post: Post, *, path: str, trials: int) -> None:
    """Wait for each job, and say when it started, in nanoseconds of the clock that all processes share."""
    sqlite.POLL_S = waiter.LONGEST_SLEEP_S = LOOK_S
    with holdfast.connect(path) as queue:
        for _ in range(trials):
            post.say("waiting")
            job = queue.next(["ring"], wait=100)
            started_ns = time.monotonic_ns()
            assert job is not None
            post.say(str(started_ns))
            job.done()


def wait_for_nothing(post: Post, *, path: str) -> None:
    """Wait for jobs of a task that nobody adds, until killed. Its number runs out meanwhile."""
    sysid.SYSID_LEASE_MS = LEASE_MS  # type: ignore[attr-defined]
    sysid.RENEW_MS = LEASE_MS // 3
    bounds.UPKEEP_PERIOD_MS = upkeep.QUIET_MS = LEASE_MS // 2
    queue = holdfast.connect(path)
    queue.add("unknown")
    assert queue.next(["nothing"], wait=0.2) is None
    post.say("waiting")
    assert queue.next(["nothing"], wait=600) is None
