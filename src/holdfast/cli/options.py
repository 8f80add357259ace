"""The options of a job, which `add` and `schedule` share."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ..core.checks import json_body
from ..core.durations import moment_ms
from .words import JobId, Key

F = TypeVar("F", bound=Callable[..., Any])

arg_option = click.option(
    "--arg",
    "args",
    multiple=True,
    metavar="NAME=VALUE",
    help="One argument of the data: JSON or text; repeatable.",
)

_SHARED = (
    click.option("--priority", type=int, help="0 to 1000, higher first.  [500]"),
    click.option("--delay", metavar="TIME", help="Delay before the first run: 30s, 2h 30m."),
    click.option(
        "--expires", metavar="TIME", help="Do not start after this time: 2h, or 2026-11-15T01:02:03Z."
    ),
    click.option("--attempts", type=int, help="How many runs may end in an error; 0: no limit.  [10]"),
    click.option("--backoff", metavar="TIME", help="Delay before the second run; doubles.  [1s]"),
    click.option("--timeout", metavar="TIME", help="How long a run may take."),
    click.option("--retry-after", metavar="TIME", help="Run it again if there is no answer in this time."),
    click.option("--unique", type=Key(), metavar="KEY", help="Unique key: only one job at a time has it."),
    click.option("--unique-for", metavar="TIME", help="Keep the key this long after the job has ended."),
    click.option(
        "--on-conflict",
        type=click.Choice(("keep", "merge", "replace")),
        help="What to do with the job that has the key.  [keep]",
    ),
    click.option("--domain", type=Key(), metavar="NAME", help="Domain, for limits."),
    click.option("--then", metavar="TASK", help="Task of the follow-up job, which gets the result."),
    click.option("--then-data", metavar="JSON", help="Arguments of the follow-up job."),
    click.option("--into", metavar="NAME", help="Its argument that gets the result.  [all its data]"),
)

_OF_ONE_JOB = (
    click.option("--run-at", metavar="MOMENT", help="Do not start before this time: 2026-11-15T01:02:03Z."),
    click.option("--repeat", metavar="TEXT", help="Repeat the job: 'FINISHED, +1 HOUR', or HOURLY."),
    click.option("--parent", type=JobId(), metavar="ID", help="Add it as a child of this PAUSED job."),
)


def job_options(*, schedule: bool = False) -> Callable[[F], F]:
    """Give a command the options of a job, or of the jobs of a schedule."""

    def decorate(function: F) -> F:
        for option in reversed(_SHARED if schedule else (*_SHARED, *_OF_ONE_JOB)):
            function = option(function)
        return function

    return decorate


def chosen(options: dict[str, Any]) -> dict[str, Any]:
    """The given options, as arguments for the queue."""
    given = {name: value for name, value in options.items() if value is not None}
    if "-" in given.get("expires", ""):
        at = moment_ms(given["expires"], name="expires")
        given["expires"] = datetime.fromtimestamp(at / 1000, UTC)
    if "then_data" in given:
        if "then" not in given:
            raise click.UsageError("--then-data needs --then")
        given["then"] = (given["then"], json.loads(json_body("--then-data", given.pop("then_data"))))
    return given
