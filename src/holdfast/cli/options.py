"""What can be said of a job besides its task and data: the options that `add` and `schedule` share."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ..core.checks import json_body
from ..core.durations import moment_ms
from .words import JobId, Key

F = TypeVar("F", bound=Callable[..., Any])

_SHARED = (
    click.option("--priority", type=int, help="0 to 1000, higher first.  [500]"),
    click.option("--delay", metavar="TIME", help="Not before so much time has passed: 30s, 2h 30m."),
    click.option("--expires", metavar="TIME", help="Give up after so much time, or at a moment."),
    click.option("--attempts", type=int, help="How many runs may end in an error; 0 for any number.  [10]"),
    click.option("--backoff", metavar="TIME", help="Wait before the second run; doubles.  [1s]"),
    click.option("--timeout", metavar="TIME", help="How long a run may take."),
    click.option("--retry-after", metavar="TIME", help="Hand it out again if not answered in that time."),
    click.option("--unique", type=Key(), metavar="KEY", help="One job at a time has this key."),
    click.option("--unique-for", metavar="TIME", help="Hold the key on after the job's end."),
    click.option(
        "--on-conflict",
        type=click.Choice(("keep", "merge", "replace")),
        help="What becomes of the job that has the key.  [keep]",
    ),
    click.option("--domain", type=Key(), metavar="NAME", help="What limits are counted by."),
    click.option("--then", metavar="TASK", help="The task of a job that follows this one, with its result."),
    click.option("--then-data", metavar="JSON", help="The arguments of the job that follows."),
    click.option("--into", metavar="NAME", help="Which of its arguments gets the result.  [all its data]"),
)

_OF_ONE_JOB = (
    click.option("--run-at", metavar="MOMENT", help="Not before: 2026-11-15T01:02:03Z."),
    click.option("--repeat", metavar="TEXT", help="Run it again and again: 'FINISHED, +1 HOUR', or HOURLY."),
    click.option("--parent", type=JobId(), metavar="ID", help="The PAUSED job that it is a child of."),
)


def job_options(*, schedule: bool = False) -> Callable[[F], F]:
    """Give a command the options of a job, or of those that a schedule adds."""

    def decorate(function: F) -> F:
        for option in reversed(_SHARED if schedule else (*_SHARED, *_OF_ONE_JOB)):
            function = option(function)
        return function

    return decorate


def chosen(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, as the queue takes them."""
    given = {name: value for name, value in options.items() if value is not None}
    if "-" in given.get("expires", ""):
        at = moment_ms(given["expires"], name="expires")
        given["expires"] = datetime.fromtimestamp(at / 1000, UTC)
    if "then_data" in given:
        if "then" not in given:
            raise click.UsageError("--then-data needs --then")
        given["then"] = (given["then"], json.loads(json_body("--then-data", given.pop("then_data"))))
    return given
