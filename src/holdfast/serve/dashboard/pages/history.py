"""Throughput and failures over time, as a chart of the last hour, day or month."""

from collections.abc import Sequence
from operator import attrgetter

from ....core.bounds import DAY_MS, HOUR_MS
from ....core.history import (
    Bucket,
    GetHistory,
    Slots,
    TaskEnds,
    added_slots,
    percentile_ms,
    summed,
)
from ....core.units import counted
from .. import charts, parts
from ..markup import Markup, el
from ..view import View

SPANS = {"hour": HOUR_MS, "day": DAY_MS, "month": 30 * DAY_MS}
SHARES = (0.5, 0.95, 0.99)
# The most bars of a chart; neighbours are drawn as one.
BARS = 72
SERIES = (("finished", "finished"), ("retried", "waiting"), ("failed", "failed"), ("cancelled", "cancelled"))


async def card(view: View, path: str = "/", task: str | None = None) -> Markup:
    """The chart of all tasks, or of one with its percentiles; with links to other spans of time."""
    span = view.param("span") if view.param("span") in SPANS else "hour"
    asked = GetHistory(tenant=view.tenant, task=task, span_ms=SPANS[span], timings=task is not None)
    found: list[Bucket] = await view.ask(asked)
    links = [
        el(
            "a",
            name,
            href=view.url(path, span=name, task=task),
            aria_current="true" if name == span else None,
        )
        for name in SPANS
    ]
    drawn = merged(found)
    series = [(name, colour, _sums(drawn, name)) for name, colour in SERIES]
    sums = ", ".join(f"{parts.number(sum(numbers))} {name}" for name, _, numbers in series)
    chart = charts.bars(
        [one.start_ms for one in drawn],
        series,
        label=f"Runs that ended, in the last {span}: {sums}",
        unit=f"in {parts.span(drawn[0].step_ms)}" if drawn else "",
    )
    note = None if view.tenant is None and task is None else unlisted_note(found)
    timings = None if task is None else _timings(found)
    return parts.card(
        "Throughput", chart, note, timings, aside=el("nav", links, class_="spans", aria_label="Span")
    )


def _timings(found: Sequence[Bucket]) -> Markup:
    """How long runs waited and took, as a table of percentiles."""
    waits: Slots = ()
    runs: Slots = ()
    for ends in (ends for bucket in found for ends in bucket.tasks):
        waits, runs = added_slots(waits, ends.waits), added_slots(runs, ends.runs)
    shown = [(name, *map(_shown_ms, percentiles(slots))) for name, slots in (("Wait", waits), ("Run", runs))]
    head = ("", *(f"p{share * 100:g}" for share in SHARES))
    return parts.table(head, shown, caption="How long runs waited and took", right=head[1:])


def percentiles(slots: Slots) -> list[int | None]:
    """The durations that half, 95 and 99 of 100 runs do not exceed; within a sixth of the true ones."""
    return [percentile_ms(slots, share) for share in SHARES]


def _shown_ms(ms: int | None) -> str:
    return "–" if ms is None else parts.span(ms)


def percentile_text(slots: Slots) -> str:
    """The percentiles in one cell."""
    return " / ".join(map(_shown_ms, percentiles(slots))) if slots else "–"


def unlisted_note(found: Sequence[Bucket]) -> Markup | None:
    """That runs are missing of tasks of which, among very many, no number of their own is kept."""
    count = sum(bucket.unlisted for bucket in found)
    text = f"{counted(count, 'run')} of tasks that were not among the busiest: of which tasks is not known."
    return el("p", text, class_="note") if count else None


def _sums(found: Sequence[Bucket], name: str) -> list[int]:
    """How many runs of all tasks ended in one way, in each bucket."""
    return [sum(map(attrgetter(name), one.tasks)) for one in found]


def merged(found: Sequence[Bucket]) -> list[Bucket]:
    """The same buckets, neighbours as one where there are very many."""
    size = -(-len(found) // BARS) if found else 1
    return [
        Bucket(
            start_ms=found[at].start_ms,
            step_ms=found[at].step_ms * size,
            tasks=tuple(ends for one in found[at : at + size] for ends in one.tasks),
        )
        for at in range(0, len(found), size)
    ]


def by_task(found: Sequence[Bucket]) -> dict[tuple[str, str], TaskEnds]:
    """The sums of each task."""
    ends = summed((ends for bucket in found for ends in bucket.tasks), most=10_000)
    return {(one.tenant, one.task): one for one in ends}
