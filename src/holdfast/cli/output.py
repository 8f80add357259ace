"""Output of commands: tables and text for people, JSON lines for programs, and progress."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from ..core.bounds import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from .exits import Exit, complain

if TYPE_CHECKING:
    from rich.console import Console

# Rich needs a millisecond per row, and people do not read longer tables.
RICH_ROWS = 1_000
# Longer texts are cut in the cells of tables.
CELL_CHARS = 60
NOTHING = "–"
_STYLES = {
    **dict.fromkeys(("QUEUED", "WAITING", "SCHEDULED"), "cyan"),
    **dict.fromkeys(("RUNNING", "RUNQUEUED"), "yellow"),
    "PAUSED": "magenta",
    "FINISHED": "green",
    "FAILED": "red",
    "CANCELLED": "dim",
}
_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "m"), (SECOND_MS, "s"))


def emit(record: Any) -> None:
    """One record for programs: a line of JSON."""
    # In ASCII, which works on every terminal, pipe and file.
    click.echo(json.dumps(record))


def say(text: str = "") -> None:
    """A line for people."""
    click.echo(clean(text))


def answer(record: Any, text: str, grid: "Grid | None" = None, *, as_json: bool) -> None:
    """Print one record: JSON for programs, or text for people, perhaps below a table."""
    if as_json:
        emit(record)
        return
    if grid is not None:
        table(grid.columns, grid.rows, right=grid.right)
    if text:
        say(text)


class Grid(NamedTuple):
    """A table, as arguments of `table`."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()


class Printout(NamedTuple):
    """One answer: a record for programs, and text for people, perhaps below a table."""

    record: Any
    text: str
    grid: Grid | None = None


class Listing(NamedTuple):
    """How the entries of a list are shown: as rows of a table, or as records. Both get the store's time."""

    empty: str
    columns: tuple[str, ...]
    row: Callable[[Any, int], tuple[str, ...]]
    record: Callable[[Any, int], Any]
    right: tuple[str, ...] = ()
    # The order, if the store has none that people know.
    key: Callable[[Any], Any] | None = None


def show_list(
    listing: Listing,
    found: Iterable[Any],
    now: int,
    most: int | None = None,
    is_chosen: bool = False,
    *,
    as_json: bool,
) -> None:
    """Print at most `most` entries; `is_chosen`: options said which."""
    found = found if listing.key is None else sorted(found, key=listing.key)
    if as_json:
        for one in islice(found, most):
            emit(listing.record(one, now))
        return
    shown = list(islice(found, None if most is None else most + 1))
    if not shown:
        say(listing.empty + (" match" if is_chosen else ""))
        return
    rows = [listing.row(one, now) for one in shown[:most]]
    table(listing.columns, rows, right=listing.right)
    if most is not None and len(shown) > most:
        note(f"there are more: --after {rows[-1][0]}, or a larger --limit")


def note(text: str) -> None:
    """A line for people, on stderr."""
    click.echo(clean(text), err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table for people; `right` names the columns with numbers. In colour on a terminal."""
    shown = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(width_of, cells)) for cells in zip(columns, *shown, strict=True)]
    if sys.stdout.isatty() and len(rows) <= RICH_ROWS:
        # A table that is too wide is printed completely, and the terminal wraps its lines.
        width = None if _fits(widths) else sum(widths) + 2 * len(widths)
        click.echo(_drawn(columns, shown, right, width))
        return
    # In a pipe nothing is cut or coloured: programs search for whole words.
    is_right = [name in right for name in columns]
    for row in (columns, *shown):
        cells = (_padded(*cell) for cell in zip(row, widths, is_right, strict=True))
        click.echo("  ".join(cells).rstrip())


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes: 日 takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(cell: str, width: int, is_right: bool) -> str:
    space = " " * (width - width_of(cell))
    return space + cell if is_right else cell + space


def _fits(widths: Sequence[int]) -> bool:
    """Whether all columns fit the terminal; the last one may be cut."""
    return sum(widths[:-1]) + 2 * len(widths) + min(widths[-1], 8) <= shutil.get_terminal_size().columns


def style_of(column: str, cell: str = "") -> str:
    """The style of a cell: that of its state in column STATE, otherwise that of its column."""
    return "dim" if cell == NOTHING else _STYLES.get(cell if column == "STATE" else column, "")


def terminal(width: int | None = None) -> "Console":
    """Standard output for Rich: colours only on a terminal, and only if NO_COLOR is not set."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))
    return Console(file=sys.stdout, width=width, highlight=False, color_system=None if plain else "auto")


def painted(state: str) -> str:
    """A state in its colour, if colours are used."""
    if not sys.stdout.isatty():
        return state
    from rich.text import Text

    console = terminal()
    with console.capture() as drawing:
        console.print(Text(state, style=_STYLES.get(state, "")), end="")
    return drawing.get()


def _drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], width: int | None
) -> str:
    """A table for a terminal. Rich does not print it itself: it would end the process on a closed pipe."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        side: Literal["left", "right"] = "right" if name in right else "left"
        # Values may be copied from a table, so only the last column is cut.
        grid.add_column(name, justify=side, no_wrap=name != columns[-1])
    for row in rows:
        # As `Text`, so that a task called "[red]" is not taken for markup.
        styled = ((cell, style_of(name, cell)) for name, cell in zip(columns, row, strict=True))
        grid.add_row(*(Text(cell, style, no_wrap=True, overflow="ellipsis") for cell, style in styled))
    console = terminal(width)
    with console.capture() as drawing:
        console.print(grid)
    return "\n".join(line.rstrip() for line in drawing.get().splitlines())


def clean(text: str) -> str:
    """Text that is safe for a terminal: control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() or c == "\xa0" else _escape(c) for c in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def cut(text: str, chars: int = CELL_CHARS) -> str:
    """The beginning of a text, as one line."""
    line = " ".join(text.split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def span(ms: int) -> str:
    """A duration in its two largest units: 3d 4h, 1m 30s, 250ms."""
    if ms < SECOND_MS:
        return f"{ms}ms"
    parts = []
    for unit_ms, unit in _UNITS:
        if ms >= unit_ms:
            parts.append(f"{ms // unit_ms}{unit}")
            ms %= unit_ms
    return " ".join(parts[:2])


def since(moment: int, now: int) -> str:
    """A time relative to now: 3m ago, in 2h, now."""
    if abs(moment - now) < SECOND_MS:
        return "now"
    length = span(abs(moment - now)).split()[0]
    return f"in {length}" if moment > now else f"{length} ago"


def confirm(question: str) -> None:
    """Ask on stderr, and exit if the answer is no; without a terminal, refuse with a hint."""
    click.echo(f"{question} [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if not answer:
        click.echo(err=True)
        raise click.UsageError(
            "confirmation needed, but standard input is not a terminal; use --yes to skip the question"
        )
    if answer.strip().lower() not in ("y", "yes"):
        complain("holdfast: nothing was changed")
        raise click.exceptions.Exit(Exit.ERROR)


@contextmanager
def progress(what: str, total: int | None = None, *, unit: str = "jobs") -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal; yields a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    done = "{task.percentage:>3.0f} %" if unit == "bytes" else f"{unit}: {{task.completed:,}}"
    columns = [SpinnerColumn(), TextColumn(what), BarColumn(), TextColumn(done), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)
