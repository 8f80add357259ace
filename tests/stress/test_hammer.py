"""Many processes hammer one store, some are killed and replaced: no job is lost, none has two holders.

32 × hammer ──▶ one file         the rng kill one now and then, and another takes over its share
     │
     └──▶ ledger ──▶ checks.broken(file, ledger) == []
"""

import random
from typing import NamedTuple

import pytest

import holdfast
from tests.model import view as model_view
from tests.stores import SERVED

from . import checks, hammer, ledger
from .crew import Crew, Member
from .hand import Hand
from .ledger import Ledger


class Size(NamedTuple):
    """How much of it."""

    processes: int
    jobs: int
    kills: int
    patience_s: float


SMALL = Size(processes=6, jobs=500, kills=4, patience_s=250)
FULL = Size(processes=32, jobs=100_000, kills=300, patience_s=3_600)
# By way of a server each step takes ten times as long.
SMALL_SERVED = Size(processes=4, jobs=250, kills=3, patience_s=250)
FULL_SERVED = Size(processes=16, jobs=20_000, kills=60, patience_s=3_600)


@pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]
)
def test_every_accepted_job_is_kept_and_none_has_two_holders(tmp_path, size, tell, monkeypatch):
    """Add, claim, answer, children and limits all at once, with SIGKILL in between."""
    _hammer(str(tmp_path / "jobs.db"), tmp_path / "ledger", size, tell, monkeypatch)


@pytest.mark.parametrize(
    "size",
    [pytest.param(SMALL_SERVED, id="small"), pytest.param(FULL_SERVED, id="full", marks=pytest.mark.proof)],
)
@pytest.mark.parametrize("url", SERVED)
def test_the_same_by_way_of_a_server(request, url, tmp_path, size, tell, monkeypatch):
    """Where batches run side by side."""
    _hammer(request.getfixturevalue(url), tmp_path / "ledger", size, tell, monkeypatch)


def _hammer(path, book, size, tell, monkeypatch):
    monkeypatch.setattr(model_view, "ALL", 10_000_000)
    with holdfast.connect(path) as queue:
        for domain, limit in hammer.LIMITS.items():
            queue.limit(domain, **limit)

    with Crew() as crew:
        killed = _hammered(crew, size, path=path, ledger=str(book))
    _finish(path, book)

    assert checks.broken(path, book) == []
    _show(tell, path, ledger.read(book), killed)


def _hammered(crew: Crew, size: Size, **files: str) -> int:
    """Let them work; kill one each time that a part of the jobs has been accepted."""
    rng = random.Random()
    share = size.jobs // size.processes
    every = size.jobs // (size.kills + 1)
    added = killed = 0
    left: dict[Member, int] = {}

    def join(share: int) -> None:
        tag = f"{len(crew.members)}-{rng.getrandbits(40):x}"
        seed = rng.getrandbits(32)
        member = crew.start(hammer.work, **files, tag=tag, seed=seed, share=share, lease_s=1.0)
        left[member] = share

    for _ in range(size.processes):
        join(share)
    for member, line in crew.listen(patience_s=size.patience_s):
        if not line.isdigit():
            continue
        added += int(line)
        left[member] -= int(line)
        if added // every > killed and killed < size.kills:
            victim = rng.choice([one for one in crew.members if left[one] > 0] or crew.members)
            crew.kill(victim)
            killed += 1
            join(max(left[victim], 1))
    return killed


def _finish(path, book):
    """Work off what the last of them has left: a lease that ended after it had gone, if anything."""
    with holdfast.connect(str(path), lease=1) as queue:
        hand = Hand(queue, Ledger(str(book)), "last")
        while {"QUEUED", "RUNNING"} & _states(queue):
            for job in hand.claim(wait=1):
                hand.done(job)


def _states(queue):
    return {state for states in queue.counts().values() for state in states}


def _show(tell, path, events, killed):
    """All jobs have ended, but for children whose parent failed before it let them run: they wait for it."""
    with holdfast.connect(str(path)) as queue:
        assert _states(queue) <= {"FINISHED", "FAILED", "PAUSED"}
        for child in queue.jobs(state="PAUSED", limit=1_000):
            assert queue.get(child.parent_id).state == "FAILED", queue.why(child)
    jobs = sum(len(event["ids"]) for event in checks.of(events, "added"))
    starts, lost = len(checks.of(events, "start")), len(checks.of(events, "lost"))
    tell(f"{jobs:,} jobs accepted, {starts:,} starts, {lost} late answers refused, {killed} processes killed")
