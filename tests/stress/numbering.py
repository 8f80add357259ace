"""Processes that make ids while everything that ids rest upon is shaken.

sysids   a handful instead of two thousand, leased for a blink: they expire and are taken over all the time
clocks   each process's own, set an hour forward or back in the middle of its work
lives    queues closed and opened again, processes that add one job and are gone, or are killed
"""

import os

import holdfast
from holdfast.core import ids
from holdfast.engine import sysid
from holdfast.store.common.clock import monotonic_s

from .actor import Post
from .hand import Dice, Hand
from .ledger import Ledger

HOUR_MS = 3_600_000
STEPS = {"add": 6, "add_many": 2, "claim": 3, "jump": 2}
# Fewer numbers than processes at times, so that one whose ids are still to come is taken over.
FEW_SYSIDS = 16
LEASE_MS = 150


class JumpyClock:
    """A clock that is set, again and again, to one of the same three moments, an hour apart.

    So all processes live through the same few milliseconds many times over: what could make one id
    twice, does.
    """

    def __init__(self, rng: Dice, noon_ms: int) -> None:
        self._rng, self._noon_ms = rng, noon_ms
        self.jump()

    def __call__(self) -> int:
        return self._set_to_ms + int((monotonic_s() - self._set_at_s) * 1000)

    def jump(self) -> None:
        """Be set anew."""
        self._set_to_ms = self._noon_ms + self._rng.choice([-HOUR_MS, 0, HOUR_MS])
        self._set_at_s = monotonic_s()


def make(post: Post, *, path: str, ledger: str, tag: str, seed: int, noon_ms: int, share: int) -> None:
    """Add a share of jobs, a few for each opening of the queue."""
    sysid.SYSID_LEASE_MS = LEASE_MS  # type: ignore[attr-defined]
    sysid.RENEW_MS = LEASE_MS // 3
    ids.FIRST_JOURNAL_SYSID = FEW_SYSIDS
    rng, book = Dice(seed), Ledger(ledger)
    clock = JumpyClock(rng, noon_ms)
    made = opened = 0
    post.say("ready")
    while made < share:
        opened += 1
        with holdfast.connect(path, clock=clock) as queue:
            hand = Hand(queue, book, f"{tag}.{opened}")
            for _ in range(rng.upto(1, 30)):
                added = _step(hand, rng, clock)
                made += added
                if added:
                    post.say(str(added))


def _step(hand: Hand, rng: Dice, clock: JumpyClock) -> int:
    """One verb; how many jobs it added. All numbers may be taken for a moment: then it added none."""
    verb = rng.pick(STEPS)
    count = 1 if verb == "add" else rng.upto(2, 40) if verb == "add_many" else 0
    try:
        if verb == "jump":
            clock.jump()
        elif verb == "claim":
            # Nobody adds such jobs: this takes or renews the number, and makes no id.
            assert not hand.claim(tasks=["nothing"])
        else:
            hand.add_many("kept", count)
    except holdfast.StoreFull:
        return 0
    return count


def add_one(post: Post, *, path: str, ledger: str, tag: str, seed: int, noon_ms: int) -> None:
    """Add one job and be gone: in good order, or as if the plug was pulled."""
    rng = Dice(seed)
    queue = holdfast.connect(path, clock=JumpyClock(rng, noon_ms))
    hand = Hand(queue, Ledger(ledger), tag)
    post.say("adding")
    hand.add("kept")
    post.say("added")
    if rng.one_in(2):
        os._exit(0)
    queue.close()
