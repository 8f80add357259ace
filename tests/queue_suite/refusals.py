"""Rows of bad input: what must be refused, the word that the error must say, values that are never right."""

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

# What an error must say, and what must raise it.
Row = tuple[str, Callable[[], Any]]


def row(word: str, call: Callable[..., Any], *args: Any, **options: Any) -> Row:
    """A call that must be refused, and the word by which."""
    return word, partial(call, *args, **options)


class Thing:
    """Nothing that can be written as JSON."""

    def __repr__(self) -> str:
        return "a thing"


def not_refused(rows: Iterable[Row], kinds: type[Exception] | tuple[type[Exception], ...]) -> list[str]:
    """The rows that did not raise what they should, or whose error does not name the thing."""
    wrong = []
    for at, (word, call) in enumerate(rows):
        try:
            found: Any = call()
        except kinds as error:
            if word.lower() not in str(error).lower():
                wrong.append(f"row {at}: {error} does not say {word!r}")
        except Exception as error:
            wrong.append(f"row {at} ({word}) raised {error!r}")
        else:
            wrong.append(f"row {at} ({word}) came to {found!r}")
    return wrong


# It could mean any moment of a day.
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001

NO_NAMES: list[Any] = ["", "x" * 256, "ä" * 128, "a\nb", "a\0b", "\x7f", "\ud800"]
NO_NAMES += [7, None, True, b"work", ["work"], Thing()]
NO_DURATIONS: list[Any] = [-1, -0.5, math.nan, math.inf, 11 * 366 * 86_400, timedelta(days=-1)]
NO_DURATIONS += ["soon", "", "1 fortnight", True, [1]]
NO_MOMENTS: list[Any] = [-1, 10**12, math.nan, "yesterday", "2026-02-30", "1969-12-31", NAIVE, True, [], {}]
NO_REPEATS: list[Any] = [
    "SOMETIMES",
    "FINISHED",
    "FINISHED +1 HOUR",
    "FINISHED, 1 HOUR",
    "FINISHED , +1 HOUR",
]
NO_REPEATS += ["finished, +1 week", "FINISHED, +1000 DAYS", "WEEKDAY 1", "FINISHED, WEEKDAY 7"]
NO_REPEATS += ["FINISHED, +1 HOUR,", "ſCHEDULED, +1 DAY", 7, b"DAILY", ["DAILY"]]
