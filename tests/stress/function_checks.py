"""What the log of functions must show, however many processes were killed. See `functions`.

calls      a step is called again only by another process, after the one before was killed, and if its result
           was not recorded
values     all runs get the same, which is what the last call returned; so is what the job's result has
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from .kills import Blow

# What the result of a function has, by what it is: of a call, or of a signal.
CALLS = ("a", "fail", "again", "tell", "half", "fails", "c")
SIGNALS = ("go", "stop", "told")
# What the job has recorded; the steps that run at the same time come in any order.
KINDS = sorted(
    ["step a", "error try", "step try", "sleep", "step tell", "signal go", "call", "signal go"]
    + ["signal told", "step c"]
)

Key = tuple[int, str]
# At most, an executor its supervisor.
OUTLIVES_NS = 2 * 10**9


class Line(NamedTuple):
    """One line of the log; `n` numbers the functions."""

    event: str
    job: int
    claim: int
    executor: int
    supervisor: int
    ns: int
    n: int
    name: str
    value: str

    @classmethod
    def read(cls, text: str) -> "Line":
        """A line as it was written."""
        event, *numbers, name, value = text.split()
        return cls(event, *map(int, numbers), name, value)  # type: ignore[arg-type, call-arg]


def read(history: Path) -> list[Line]:
    """All lines, in order."""
    return sorted(map(Line.read, history.read_text().splitlines()), key=lambda line: line.ns)


def by_key(lines: Sequence[Line], event: str) -> dict[Key, list[Line]]:
    """The lines of an event, by function and name."""
    found = defaultdict(list)
    for line in lines:
        if line.event == event:
            found[line.n, line.name].append(line)
    return found


def called_without_need(lines: Sequence[Line], blows: Sequence[Blow]) -> Iterator[str]:
    """Calls that were not the first, and should not have been."""
    kept = by_key(lines, "kept")
    for (n, name), calls in by_key(lines, "called").items():
        for first, again in pairwise(calls):
            what = f"{name} of function {n} was called again by claim {again.claim} of job {again.job}"
            # Numbers of processes come again; and an executor ends shortly after its supervisor.
            ends = [
                blow.from_ns
                for blow in blows
                if blow.pid in (first.executor, first.supervisor) and blow.from_ns > first.ns - OUTLIVES_NS
            ]
            if not ends:
                yield f"{what}, and the process of claim {first.claim} was not killed"
            elif again.ns < min(ends):
                yield f"{what}, before the process of claim {first.claim} was killed"
            if any(line.ns < again.ns for line in kept[n, name]):
                yield f"{what}, after its result was recorded"


def different_values(lines: Sequence[Line], results: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """Values that runs got, or the job returned, other than those of the last calls."""
    called, kept = by_key(lines, "called"), by_key(lines, "kept")
    for n, result in results.items():
        if sorted(result) != sorted([*CALLS, *SIGNALS]):
            yield f"function {n} returned {result}"
        for name in [*CALLS, *SIGNALS]:
            got = {str(result.get(name)), *(line.value for line in kept[n, name])}
            calls = called[n, name]
            if name in CALLS and not calls:
                yield f"{name} of function {n} was never called"
            got |= {line.value for line in calls[-1:]}
            if len(got) > 1:
                yield f"{name} of function {n} is {' and '.join(sorted(got))}"


def wrong_signals(results: Mapping[int, Mapping[str, Any]], told: Mapping[int, int]) -> Iterator[str]:
    """Signals that were lost, swapped or taken twice: each gets two from the test, one from another."""
    for n, result in results.items():
        got = [result.get(name) for name in SIGNALS]
        if got != [10 * n + 1, 10 * n + 2, told[n]]:
            yield f"function {n} got the signals {got}"
