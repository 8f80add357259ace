"""Throughput and failures over time, as a chart of the last hour, day or month; charts as SVG.

No script is needed to see them; each bar has its numbers as a title.
"""

from collections.abc import Sequence
from operator import attrgetter

from ....core.bounds import DAY_MS, HOUR_MS
from ....core.history import Bucket, GetHistory, Slots, TaskEnds, added_slots, percentile_ms, summed
from ....core.units import counted, iso
from .. import parts
from ..markup import Markup, el
from ..parts import number
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
    chart = bars(
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


WIDTH, HEIGHT, FLOOR = 640, 140, 118


def bars(
    starts_ms: Sequence[int], series: Sequence[tuple[str, str, Sequence[int]]], *, label: str, unit: str
) -> Markup:
    """Stacked bars over time: of each series its name, its colour and its numbers, one for each start."""
    totals = [sum(column) for column in zip(*(numbers for _, _, numbers in series), strict=True)]
    most = _round_up(max(totals, default=0))
    step = WIDTH / max(len(starts_ms), 1)
    drawn: list[Markup] = []
    for index, start in enumerate(starts_ms):
        bottom, parts, said = float(FLOOR), [], []
        for name, colour, numbers in series:
            if numbers[index]:
                height = numbers[index] / most * (FLOOR - 8)
                bottom -= height
                x, width = index * step + step * 0.12, step * 0.76
                parts.append(_bar(x, bottom, width, height, colour))
                said.append(f"{number(numbers[index])} {name}")
        if parts:
            drawn.append(el("g", parts, el("title", f"{iso(start)}: {', '.join(said)}")))
    lines = [
        el("line", x1="0", x2=WIDTH, y1=FLOOR, y2=FLOOR, class_="axis"),
        el("line", x1="0", x2=WIDTH, y1="8", y2="8", class_="grid"),
        el("text", f"{number(most)} {unit}", x="0", y="20", class_="scale"),
        *_times(starts_ms, step),
    ]
    legend = [
        el("span", el("i", class_=colour, aria_hidden="true"), f"{name} {number(sum(numbers))}")
        for name, colour, numbers in series
    ]
    return el(
        "figure",
        el(
            "svg", lines, drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", class_="chart", role="img", aria_label=label
        ),
        el("figcaption", legend),
    )


def _bar(x: float, y: float, width: float, height: float, colour: str) -> Markup:
    return el(
        "rect",
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        width=f"{width:.1f}",
        height=f"{max(height, 1):.1f}",
        class_=colour,
    )


def _times(starts_ms: Sequence[int], step: float) -> list[Markup]:
    """Some of the times below the axis."""
    shown: list[Markup] = []
    every = max(len(starts_ms) // 6, 1)
    # Beyond a day and a half the time of day alone would not tell which day is meant.
    has_dates = len(starts_ms) > 1 and starts_ms[-1] - starts_ms[0] > 1.5 * DAY_MS
    for index in range(0, len(starts_ms), every):
        text = iso(starts_ms[index])[5:10] if has_dates else iso(starts_ms[index])[11:16]
        shown.append(
            el(
                "text",
                text,
                x=f"{index * step:.1f}",
                y=HEIGHT - 4,
                class_="tick",
                data_clock=None if has_dates else starts_ms[index],
            )
        )
    return shown


def _round_up(most: int) -> int:
    """The top of the scale: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= most:
                return factor * power
        power *= 10
