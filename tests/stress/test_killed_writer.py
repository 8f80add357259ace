"""kill -9 of the process that is writing: the others go on at once, and nothing is half-written.

victim   add_many ── BEGIN ──── stopped, seen to hold the lock, killed
other    add ───────────waits───────────────────────────────────▶ returns at once
"""

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast.store.sqlite.lock import WRITE_LOCK_BYTE
from tests.model import view as model_view

from . import checks, lives
from .crew import PATIENCE_S, Crew, Member
from .hand import Hand
from .ledger import Ledger


class Size(NamedTuple):
    """How much of it."""

    kills: int
    batch: int
    # How long the others may be kept waiting: the figure itself, or less than the patience of a store.
    at_once_s: float


SMALL = Size(kills=5, batch=1_000, at_once_s=20.0)
FULL = Size(kills=20, batch=10_000, at_once_s=1.0)
SIZES = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]


@pytest.mark.parametrize("size", SIZES)
def test_the_death_of_a_writer_stops_nobody(tmp_path, size, tell, monkeypatch):
    """Killed while it holds the write lock, time and again; a batch is there as a whole or not at all."""
    monkeypatch.setattr(model_view, "ALL", 10_000_000)
    path, book = tmp_path / "jobs.db", tmp_path / "ledger"
    rng = random.Random()
    waits = []

    with Crew() as crew, holdfast.connect(str(path)) as queue, ThreadPoolExecutor(1) as thread:
        hand = Hand(queue, Ledger(str(book)), "other")
        hand.add("kept")
        for number in range(size.kills):
            files = {"path": str(path), "ledger": str(book)}
            victim = crew.start(lives.write_batches, **files, tag=f"victim-{number}", batch=size.batch)
            _stop_inside_a_transaction(victim, path, rng)
            waiting = thread.submit(hand.add, "kept")
            crew.kill(victim)
            killed = time.monotonic()
            waiting.result(PATIENCE_S)
            waits.append(time.monotonic() - killed)

    assert max(waits) < size.at_once_s
    assert checks.broken(path, book) == []
    tell(f"{size.kills} writers killed; the next write returned after {max(waits) * 1000:.0f} ms at most")


def _stop_inside_a_transaction(victim: Member, path: Path, rng: random.Random) -> None:
    """Have it stand still at a random moment, one at which it holds the write lock."""
    assert victim.hear() == "ready"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        time.sleep(rng.uniform(0, 0.03))
        victim.stop()
        if _is_writing(victim.pid, path):
            return
        victim.signal(signal.SIGCONT)
    raise AssertionError("it was never seen to write")


def _is_writing(pid: int, path: Path) -> bool:
    """Whether a process has SQLite's write lock on the file, which is a byte of its -shm."""
    shm = path.with_name(path.name + "-shm")
    inode = shm.stat().st_ino if shm.exists() else 0
    for line in Path("/proc/locks").read_text().splitlines():
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 120 120
        _, kind, _, mode, holder, file, first, last, *_ = line.replace("->", "").split()
        mine = (kind, mode, holder) == ("POSIX", "WRITE", str(pid)) and file.endswith(f":{inode}")
        if mine and last != "EOF" and int(first) <= WRITE_LOCK_BYTE <= int(last):
            return True
    return False
