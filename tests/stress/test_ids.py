"""No id is made twice: adding is idempotent by id, so an id made twice would be a job lost.

expiry, re-use, clocks an hour off ──▶ add ──▶ ids, all distinct, each with the data that it was added with
"""

import random
import time
from typing import NamedTuple

import pytest

from holdfast.core import ids
from holdfast.store.common.clock import system_clock
from tests.model import view as model_view

from . import checks, ledger, numbering
from .crew import Crew, Member


class Size(NamedTuple):
    """How much of it."""

    processes: int
    jobs: int
    kills: int
    lives: int
    patience_s: float


SMALL = Size(processes=8, jobs=2_000, kills=4, lives=24, patience_s=250)
FULL = Size(processes=32, jobs=200_000, kills=100, lives=1_000, patience_s=3_600)
SIZES = [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]

# How many short lives overlap.
AT_ONCE = 8


@pytest.mark.parametrize("size", SIZES)
def test_no_id_is_made_twice_whatever_clocks_and_expiry_do(tmp_path, size, tell, monkeypatch):
    """Many processes add while their numbers expire and are re-used and their clocks jump by an hour."""
    monkeypatch.setattr(model_view, "ALL", 10_000_000)
    path, book = tmp_path / "jobs.db", tmp_path / "ledger"

    with Crew() as crew:
        _made(crew, size, path=str(path), ledger=str(book))

    assert checks.broken(path, book) == []
    accepted = [job_id for event in checks.of(ledger.read(book), "added") for job_id in event["ids"]]
    makers: dict[int, set[int]] = {}
    for event in checks.of(ledger.read(book), "added"):
        makers.setdefault(ids.unpack(event["ids"][0]).sysid, set()).add(event["pid"])
    shared = sum(len(pids) > 1 for pids in makers.values())
    assert shared, "no number was ever taken over, so nothing was shown"
    tell(
        f"{len(accepted):,} ids, all distinct; {shared} of {len(makers)} numbers went from process to process"
    )


def _made(crew: Crew, size: Size, **files: str) -> None:
    rng = random.Random()
    noon_ms = system_clock()
    every = size.jobs // (size.kills + 1)
    left: dict[Member, int] = {}
    added = killed = 0

    def join(share: int) -> None:
        tag, seed = f"{rng.getrandbits(48):x}", rng.getrandbits(32)
        left[crew.start(numbering.make, **files, tag=tag, seed=seed, noon_ms=noon_ms, share=share)] = share

    for _ in range(size.processes):
        join(size.jobs // size.processes)
    for member, line in crew.listen(patience_s=size.patience_s):
        if line.isdigit():
            added += int(line)
            left[member] -= int(line)
        if added // every > killed and killed < size.kills:
            victim = rng.choice(crew.members)
            crew.kill(victim)
            killed += 1
            join(max(left[victim], 1))


@pytest.mark.parametrize("size", SIZES)
def test_short_lives_leave_one_job_each(tmp_path, size, tell, monkeypatch):
    """Processes that add one job and exit, some killed before or after the reply, on clocks that disagree."""
    monkeypatch.setattr(model_view, "ALL", 10_000_000)
    path, book = tmp_path / "jobs.db", tmp_path / "ledger"
    started = time.monotonic()

    with Crew() as crew:
        killed = _lived(crew, size, path=str(path), ledger=str(book))

    assert checks.broken(path, book) == []
    accepted = len(checks.of(ledger.read(book), "added"))
    assert accepted >= size.lives - killed
    per_life_ms = (time.monotonic() - started) * 1000 / size.lives
    tell(f"{size.lives:,} lives, {killed} killed, {accepted:,} jobs accepted, {per_life_ms:.0f} ms a life")


def _lived(crew: Crew, size: Size, **files: str) -> int:
    """Let them all live, a few at a time; how many were killed, before the reply or right after it."""
    rng = random.Random()
    noon_ms = system_clock()
    lives, killed = 0, 0
    fates: dict[Member, str] = {}

    def begin() -> None:
        nonlocal lives
        tag, seed = f"life-{lives}", rng.getrandbits(32)
        member = crew.start(numbering.add_one, **files, tag=tag, seed=seed, noon_ms=noon_ms)
        fates[member] = rng.choice(["", "", "", "adding", "added"])
        lives += 1

    for _ in range(min(AT_ONCE, size.lives)):
        begin()
    for member, line in crew.listen(patience_s=size.patience_s):
        if line == fates[member] and member in crew.members:
            if line == "adding":
                # Any moment of the next few: opening, taking the number, writing, replying.
                time.sleep(rng.uniform(0, 0.03))
            crew.kill(member)
            killed += 1
        if line == "adding" and lives < size.lives:
            begin()
    return killed
