"""Functions that sleep, wait and call go on where they were, whoever is killed, and do no step without need.

workers ──▶ store        every so many steps one executor or supervisor is killed
  └── executors ──▶ log of the calls of steps and of what runs got ──▶ compared with results and kills
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import holdfast
from tests.stores import here_and_in_proof

from . import checks
from .conftest import SHAREABLE
from .function_checks import (
    CALLS,
    KINDS,
    OUTLIVES_NS,
    SIGNALS,
    Line,
    called_without_need,
    different_values,
    read,
    wrong_signals,
)
from .kills import Blow, Gang

APP = "tests.stress.functions:queue"
# Calls of steps and of called jobs in each function.
CALLS_EACH = 7
# Longer than the machine is ever busy with other things: a lease that runs out is as good as a kill.
LEASE_S = 10.0


class Size(NamedTuple):
    """How much of it."""

    workers: int
    functions: int
    kills: int
    words: tuple[str, ...]
    patience_s: float


SMALL = Size(2, 20, 2, ("--threads", "4"), 300)
FULL = Size(3, 2_000, 200, ("--processes", "2", "--threads", "4", "--concurrency", "8"), 5_400)


@pytest.fixture(params=here_and_in_proof(["sqlite"], SHAREABLE))
def address(request: pytest.FixtureRequest) -> str:
    """The address of an empty store, of each kind that processes can share."""
    return SHAREABLE[request.param](request)


@pytest.mark.long
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="small", marks=pytest.mark.timeout(600)),
        pytest.param(FULL, id="full", marks=[pytest.mark.proof, pytest.mark.timeout(7200)]),
    ],
)
def test_whoever_is_killed_each_step_is_done_once(tmp_path, address, size, tell):
    """Executors and supervisors killed at any moment: the same results, and no call that was not needed."""
    started_s = time.monotonic()
    with holdfast.connect(address) as queue:
        jobs = _add(queue, size.functions)
        signals = _signals(queue, jobs)
        shares = size.kills + 1
        calls = CALLS_EACH * size.functions

        with Gang(
            tmp_path,
            workers=size.workers,
            words=size.words,
            store=address,
            app=APP,
            ways=("executor", "supervisor"),
            lease_s=LEASE_S,
        ) as gang:
            for n in range(1, shares):
                for _ in range(len(jobs) * 2 // shares):
                    next(signals)
                gang.wait_for_runs(n * calls // shares, size.patience_s)
                gang.strike()
            assert list(signals) == [None] * (2 * len(jobs) - size.kills * (len(jobs) * 2 // shares))
            gang.wait(lambda: _all_ended(queue, len(jobs)), size.patience_s, "end of all functions")
            gang.dismiss()

        results = {n: queue.result(job) for n, job in jobs.items()}
        lines = read(gang.history)
        assert list(wrong_signals(results, {n: n + 1 for n in jobs})) == []
        assert list(different_values(lines, results)) == []
        assert list(called_without_need(lines, gang.blows)) == []
        for job in jobs.values():
            kinds = sorted(f"{one.kind} {one.name}".strip() for one in queue.timeline(job))
            assert (kinds, queue.get(job).attempts) == (KINDS, 0)
    assert checks.examined(address)[1] == []
    _show(tell, lines, gang.blows, time.monotonic() - started_s)


def _add(queue: holdfast.Queue, count: int) -> dict[int, int]:
    """So many functions by their numbers; each tells the one before."""
    jobs: dict[int, int] = {}
    for n in range(1, count + 1):
        task = "threaded" if n % 2 else "awaiting"
        data = {"n": n, "other": jobs.get(n - 1, 0), "ms": n % 300}
        # One that is unlucky ten times over would be set aside as the killer, as it should be elsewhere.
        jobs[n] = queue.add(task, data, losses=1_000).id
    queue.signal(jobs[count], "told", count + 1)
    return jobs


def _signals(queue: holdfast.Queue, jobs: dict[int, int]) -> Iterator[None]:
    """Send two signals to each function, in random order of the functions; some again, with the same key."""
    order = [n for n in jobs for _ in range(2)]
    random.shuffle(order)
    sent: Counter[int] = Counter()
    for n in order:
        sent[n] += 1
        for number in random.choice([(sent[n],), (1, sent[n])]):
            queue.signal(jobs[n], "go", 10 * n + number, key=str(number))
        yield


def _all_ended(queue: holdfast.Queue, count: int) -> bool:
    functions = {"threaded": {"FINISHED": (count + 1) // 2}, "awaiting": {"FINISHED": count // 2}}
    return queue.counts() == functions | {"half": {"FINISHED": count}, "fails": {"FAILED": count}}


def _show(tell: Any, lines: list[Line], blows: list[Blow], seconds: float) -> None:
    ways, events = Counter(blow.way for blow in blows), Counter(line.event for line in lines)
    functions = len({line.n for line in lines})
    again = events["called"] - CALLS_EACH * functions
    killed = f"{ways['executor']} executors and {ways['supervisor']} supervisors killed"
    claims = len({(line.job, line.claim) for line in lines})
    tell(f"{functions:,} functions, {claims:,} runs; {killed}; {again} calls again; {seconds:.0f} s")


def _line(event: str, ns: int, *, claim: int = 1, executor: int = 11, value: str = "v") -> Line:
    return Line(event, 7, claim, executor, executor // 10, ns, 1, "a", value)


CALLED, AGAIN = _line("called", 10), _line("called", 30, claim=2, executor=22)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([CALLED, AGAIN], ""),
        ([CALLED, _line("kept", 40), AGAIN], ""),
        ([CALLED, _line("kept", 25), AGAIN], "after its result was recorded"),
        ([CALLED, _line("called", 15, claim=2, executor=22)], "before the process of claim 1 was killed"),
        ([CALLED, AGAIN, _line("called", 50, claim=3)], "the process of claim 2 was not killed"),
    ],
)
@pytest.mark.parametrize("killed", [11, 1])
def test_a_call_that_was_not_needed_is_found(lines, complaint, killed):
    """Executor 11 or its supervisor 1 was killed at 20."""
    told = list(called_without_need(lines, [Blow("", killed, 20, 20)]))

    assert [complaint in text for text in told] == ([True] if complaint else [])


def test_numbers_of_processes_that_come_again_are_told_apart():
    """By the time of the kill."""
    blows = [Blow("", 11, ns, ns) for ns in (20, 90)]
    later = _line("called", OUTLIVES_NS + 100)

    assert list(called_without_need([CALLED, AGAIN], blows)) == []
    assert len(list(called_without_need([later, later._replace(ns=later.ns + 9)], blows))) == 1


def test_a_value_that_is_not_that_of_the_last_call_is_found():
    """In the result, and in any run."""
    names = [*CALLS, *SIGNALS]
    lines = [_line("called", 10)._replace(name=name, value=name) for name in CALLS]
    good = {name: name for name in names}

    assert list(different_values(lines, {1: good})) == []
    assert list(different_values(lines, {1: good | {"a": "b"}})) == ["a of function 1 is a and b"]
    assert list(different_values([*lines, _line("kept", 50, value="b")], {1: good})) != []
    assert list(different_values([*lines, AGAIN], {1: good})) == ["a of function 1 is a and v"]
    assert list(different_values(lines[1:], {1: good})) == ["a of function 1 was never called"]


def test_a_signal_that_is_lost_or_swapped_is_found():
    good = {"go": 11, "stop": 12, "told": 2}

    assert list(wrong_signals({1: good}, {1: 2})) == []
    for wrong in ({"go": 12, "stop": 11}, {"stop": 11}, {"told": 3}):
        assert len(list(wrong_signals({1: good | wrong}, {1: 2}))) == 1
