"""A queue moves, from store to store, while others add and work, and whoever moves it is killed.

adders, workers ──▶ store 1 ──▶ store 2 ──▶ store 3 …         they are told the first address, and follow
                       └─ holdfast move, killed at any moment, and started again
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

import holdfast
from holdfast.core.moving import Standing
from holdfast.queue.connect import store_maker
from holdfast.store.contract import AnyStore
from tests.moving.filled import standing_of
from tests.servers import Schemas
from tests.stress.crew import ROOT, Crew
from tests.stress.moving import INTERVAL_MS, SLOW, adds, lines, works

ARCHIVED = 1_000


# Of one move at most so many are killed; then it may come to its end, and the next begins.
KILLS_EACH = 4
# From each of so many kinds of stores to the next, and from the last to the first.
KINDS = 4
SIZES = [pytest.param(2, id="small"), pytest.param(60, id="full")]


@pytest.mark.proof
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kills", SIZES)
def test_moved_under_load_and_killed_nothing_is_lost_or_doubled(tmp_path, postgres_schemas, kills, tell):
    """Each job that was accepted is there once, was worked once, and its result can be read."""
    with ExitStack() as taken:
        urls = [str(tmp_path / "0.db")]
        _filled(urls[0])
        stop, rng = tmp_path / "stop", random.Random(kills)
        killed: Counter[str] = Counter()
        with Crew() as crew:
            # Few, where a few moves are tried: while they last, everybody is busy.
            few = kills < KINDS
            for role, count, pause in (
                (adds, 1 if few else 2, {"pause_s": 0.02}),
                (works, 2 if few else 3, {}),
            ):
                for n in range(count):
                    path = tmp_path / f"{role.__name__}-{n}.jsonl"
                    crew.start(role, url=urls[0], path=str(path), stop=str(stop), **pause).hear()
            # Where a process takes long to start, some are killed before they have begun.
            while killed.total() < kills or len(urls) < KINDS + 1 or _underway(killed) <= kills // 3:
                urls.append(_next_url(tmp_path, postgres_schemas, len(urls), taken))
                killed += _moved(urls[-2], urls[-1], rng)
            time.sleep(0.5)
            stop.touch()
            assert [member.wait() for member in crew.members] == [0] * len(crew.members)
        _check(tmp_path, urls)
    tell(f"{len(urls) - 1} moves; killed while the store was: {dict(killed)}")


def _underway(killed: "Counter[str]") -> int:
    """How many were killed in the middle of a move."""
    return killed["copying"] + killed["stopped"]


def _next_url(folder: Path, schemas: Schemas, number: int, taken: ExitStack) -> str:
    """A file, a schema, four files as one, a schema and a file as one, a file, and so on."""
    if number % KINDS == 2:
        return f"sqlite:///{folder / f'{number}'}?shards=4"
    file, schema = folder / f"{number}.db", ""
    if number % 2:
        schema = schemas.server.url(taken.enter_context(schemas.one()))
    if number % KINDS == 3:
        return f"sqlite:///{file} {schema}"
    return schema or str(file)


def _filled(url: str) -> None:
    """Something to copy, so that a move takes a while; and a schedule and a limit that must go on."""
    with holdfast.connect(url, retention="1d") as queue:
        queue.limit(SLOW, rate=1000 / INTERVAL_MS)
        queue.schedule("ticks", "tick", every="1s")
        queue.add_many(("old", {"n": n}) for n in range(ARCHIVED))
        for _ in range(ARCHIVED // 1_000):
            for job in queue.claim(["old"], limit=1_000, renew=False):
                job.done({"n": job.data["n"]})


def _moved(source: str, target: str, rng: random.Random) -> "Counter[str]":
    """Move, by one after another who is killed; how far the store was each time."""
    killed: Counter[str] = Counter()
    with closing(store_maker(source, follow=False)()) as store:
        for _ in range(KILLS_EACH):
            mover = _mover(source, target)
            if _ends(mover, store, rng):
                assert mover.returncode == 0
                return killed
            mover.send_signal(signal.SIGKILL)
            mover.wait()
            killed[standing_of(store) or "not begun"] += 1
    assert _mover(source, target).wait(300) == 0
    return killed


def _ends(mover: "subprocess.Popen[bytes]", store: AnyStore, rng: random.Random) -> bool:
    """Whether it ends before the moment at which it is to be killed: any, or while the store stands still."""
    moment = rng.random()
    until_s = time.monotonic() + (10 if moment < 0.5 else 0.4 + moment)
    while mover.poll() is None and time.monotonic() < until_s:
        if moment < 0.5 and standing_of(store) == Standing.STOPPED:
            time.sleep(moment * 0.1)
            break
        time.sleep(0.002)
    return mover.poll() is not None


def _mover(source: str, target: str) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "holdfast", "move", source, target, "--batch", "100", "--json"]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL)


def _check(folder: Path, urls: list[str]) -> None:
    added, worked = lines(folder, "adds"), lines(folder, "works")
    starts = [line for line in worked if "at" in line]
    ends = Counter(line["done"] for line in worked if "done" in line)
    with holdfast.connect(urls[-1], follow=False) as queue:
        archived = _all(queue)
        assert len({line["id"] for line in added}) == len(added) > 100
        assert {line["id"] for line in added} == {job.id for job in archived if job.task == "work"}
        assert queue.jobs(task="work") == []
        assert {id for id, count in ends.items() if count != 1} == set()
        assert {line["id"] for line in added} <= ends.keys()
        assert not [line for line in worked if "refused" in line]
        assert max(Counter((line["id"], line["claim"]) for line in starts).values()) == 1
        for line in added[::50]:
            assert queue.result(line["id"]) == {"n": line["n"]}
        assert sum(job.task == "old" for job in archived) == ARCHIVED
        ticks = [job.run_at for job in archived if job.task == "tick"]
        assert len(ticks) == len(set(ticks)) > 1
    slow = sorted(line["at"] for line in starts if line["slow"])
    assert len(slow) > 5
    assert min(b - a for a, b in pairwise(slow)) >= INTERVAL_MS
    for old in urls[:-1]:
        with holdfast.connect(old, follow=False) as queue, pytest.raises(holdfast.Moved):
            queue.add("late")


def _all(queue: holdfast.Queue) -> list[holdfast.Job]:
    found: list[holdfast.Job] = []
    while page := queue.jobs(archived=True, after=found[-1].id if found else None, limit=1_000):
        found += page
    return found
