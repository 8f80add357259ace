"""Charts as SVG: no script is needed to see them; each bar has its numbers as a title."""

from collections.abc import Sequence

from ...core.bounds import DAY_MS
from ...core.units import iso
from .markup import Markup, el
from .parts import number

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
