"""Types of arguments and the options of a job. No error contains data of a job."""

import json
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from ..core.bounds import DATA_BYTES
from ..core.checks import json_body
from ..core.errors import BadInput, HoldfastError, TooLarge
from ..core.units import duration_ms, moment_ms

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

STATES = ("QUEUED", "RUNQUEUED", "RUNNING", "PAUSED", "FINISHED", "FAILED", "CANCELLED")


class JobId(ParamType):
    """The id of a job."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert an argument to a number."""
        from ..core.ids import MAX_ID
        from ..queue.options import job_id

        try:
            return job_id(value)
        except BadInput:
            number = f"a number up to {MAX_ID}" if str(value).isdecimal() else "a number"
            raise BadInput("job id", value, needed=f"{number}, as `holdfast jobs` lists them") from None


class Key(ParamType):
    """A domain or unique key: the bytes as typed."""

    name = "text"
    metavar = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """The bytes of an argument, also if it is not UTF-8."""
        return value if isinstance(value, bytes) else os.fsencode(value)


class TaskName(ParamType):
    """The name of a task; the shell completes the tasks of jobs in the store."""

    name = "task"
    metavar = "NAME"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete the tasks of jobs in the store."""
        return _completed(ctx, incomplete, lambda queue: list(queue.counts()))


class ScheduleName(ParamType):
    """The name of a schedule; the shell completes existing names."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete the names of schedules."""
        return _completed(ctx, incomplete, lambda queue: [one.name for one in queue.schedules()])


class Duration(ParamType):
    """A duration, as milliseconds."""

    name = metavar = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert text such as 30s."""
        return value if isinstance(value, int) else duration_ms(value, name=_word(param))


class Moment(ParamType):
    """A time, as milliseconds since 1970."""

    name = metavar = "MOMENT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert text such as 2026-11-15T01:02:03Z."""
        return value if isinstance(value, int) else moment_ms(value, name=f"--{_word(param)}")


class Rate(ParamType):
    """Starts in a second, from a number or text such as 100/m."""

    name = metavar = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert text."""
        from ..queue.options import rate_per_s

        try:
            return float(value)
        except ValueError:
            return rate_per_s(value)


class JsonText(ParamType):
    """JSON, as text that was checked."""

    name = metavar = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the text."""
        return json_text(f"--{_word(param)}", value)


def _word(param: click.Parameter | None) -> str:
    """The name of an option or argument, as it is typed."""
    return "value" if param is None else param.opts[0].lstrip("-")


def _completed(ctx: click.Context, incomplete: str, names: Any) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    from .session import Session

    try:
        with ctx.ensure_object(Session).existing() as queue:
            return [CompletionItem(name) for name in names(queue) if name.startswith(incomplete)]
    except HoldfastError:
        # Completion must not print errors.
        return []


class Description(str):
    """A description instead of a value: shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class NotJson(BadInput):
    """The error for invalid JSON: says where, but not what it contains."""

    def __init__(self, what: str, where: str) -> None:
        HoldfastError.__init__(self, f"{what} is not JSON: {where}")


class EmptyJson(NotJson):
    """The error for empty input instead of JSON."""

    def __init__(self, what: str) -> None:
        HoldfastError.__init__(self, f"{what} is empty, and must be JSON, such as {{}} or 42")


def json_text(what: str, raw: str | bytes) -> str:
    """Return JSON text unchanged after a check; an error says where it is invalid, without its content."""
    import msgspec

    from ..core.checks import json_fault

    try:
        written = raw.encode() if isinstance(raw, str) else raw
        if len(written) > DATA_BYTES:
            raise TooLarge(what, Description("too large"), needed=f"at most {DATA_BYTES:,} bytes")
        if not written.strip():
            raise EmptyJson(what)
        msgspec.json.decode(written)
        return written.decode()
    except msgspec.DecodeError as error:
        raise NotJson(what, json_fault(error, written)) from None
    except UnicodeError:
        raise NotJson(what, "it is not UTF-8") from None
    except RecursionError:
        raise NotJson(what, "it is nested too deeply") from None


def data_of(words: tuple[str, ...], args: tuple[str, ...]) -> str:
    """The data of a job, as JSON text: DATA, standard input, or --arg by --arg."""
    if len(words) > 1:
        raise click.UsageError("DATA must be one argument: put quotes around it, as in '{\"width\": 200}'")
    if words and args:
        raise click.UsageError("DATA and --arg cannot be combined")
    if args:
        named = dict(map(_arg, args))
        if len(named) < len(args):
            raise click.UsageError("each --arg needs a different name")
        return json.dumps(named, ensure_ascii=False)
    if not words:
        return "{}"
    if words[0] != "-":
        return _typed(words[0])
    return json_text("standard input", stdin().read(DATA_BYTES + 1))


def stdin() -> IO[bytes]:
    """Standard input as bytes; it may be closed."""
    if sys.stdin is None or sys.stdin.closed:
        raise click.UsageError("standard input is closed")
    return sys.stdin.buffer


def open_input(name: str, *, option: str = "") -> IO[bytes]:
    """A file that an argument or an option names; raises `UsageError` if it cannot be opened."""
    try:
        return Path(name).open("rb")
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option} {name}: {getattr(error, 'strerror', error)}".lstrip()) from None


def _typed(word: str) -> str:
    try:
        return json_text("DATA", word)
    except EmptyJson:
        raise
    except NotJson as error:
        if re.match(r"\w+:?=", word):
            raise click.UsageError(f"{error}; did you mean --arg {word.partition('=')[0]}=…?") from None
        raise click.UsageError(f'{error}; names and text need double quotes, \'{{"a": "b"}}\'') from None


def _arg(word: str) -> tuple[str, Any]:
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise click.UsageError("--arg must be name=value, as in --arg width=200")
    try:
        return name, json.loads(json_text("--arg", text))
    except NotJson:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"--arg {name}", Description("not UTF-8"), needed="text") from None
        return name, text


def moment_word(name: str, word: str, now: int) -> int:
    """A time: a date and time, or how long ago, `7d`."""
    try:
        # Without a unit it is refused: 2025 is more likely a year than seconds.
        if not word.strip().replace(".", "").isdigit():
            return max(now - duration_ms(word, name=name), 0)
    except BadInput:
        pass
    try:
        return moment_ms(word, name=name)
    except BadInput:
        needed = "how long ago, such as 7d or 12h, or a time such as 2026-11-15T01:02:03Z"
        raise BadInput(name, word, needed=needed) from None


# The options of a job, which `add` and `schedule` share.
ARG = click.Option(
    ["--arg", "args"],
    multiple=True,
    metavar="NAME=VALUE",
    help="One argument of the data: JSON or text; repeatable.",
)

_SHARED = (
    click.Option(["--priority"], type=int, help="0 to 1000, higher first.  [500]"),
    click.Option(["--delay"], metavar="TIME", help="Delay before the first run: 30s, 2h 30m."),
    click.Option(
        ["--expires"], metavar="TIME", help="Do not start after this time: 2h, or 2026-11-15T01:02:03Z."
    ),
    click.Option(["--attempts"], type=int, help="How many runs may end in an error; 0: no limit.  [10]"),
    click.Option(["--backoff"], metavar="TIME", help="Delay before the second run; doubles.  [1s]"),
    click.Option(["--timeout"], metavar="TIME", help="How long a run may take."),
    click.Option(["--retry-after"], metavar="TIME", help="Run it again if there is no answer in this time."),
    click.Option(["--unique"], type=Key(), metavar="KEY", help="Unique key: only one job at a time has it."),
    click.Option(["--unique-for"], metavar="TIME", help="Keep the key this long after the job has ended."),
    click.Option(
        ["--on-conflict"],
        type=click.Choice(("keep", "merge", "replace")),
        help="What to do with the job that has the key.  [keep]",
    ),
    click.Option(["--domain"], type=Key(), metavar="NAME", help="Domain, for limits."),
    click.Option(["--then"], metavar="TASK", help="Task of the follow-up job, which gets the result."),
    click.Option(["--then-data"], metavar="JSON", help="Arguments of the follow-up job."),
    click.Option(["--into"], metavar="NAME", help="Its argument that gets the result.  [all its data]"),
    click.Option(["--on-failure"], metavar="TASK", help="Task of the job that is added if this one fails."),
)

_OF_ONE_JOB = (
    click.Option(["--run-at"], metavar="MOMENT", help="Do not start before this time: 2026-11-15T01:02:03Z."),
    click.Option(["--repeat"], metavar="TEXT", help="Repeat the job: 'FINISHED, +1 HOUR', or HOURLY."),
    click.Option(["--parent"], type=JobId(), metavar="ID", help="Add it as a child of this PAUSED job."),
)


def job_params(*, schedule: bool = False) -> tuple[click.Option, ...]:
    """The options of a job, or of the jobs of a schedule."""
    return _SHARED if schedule else (*_SHARED, *_OF_ONE_JOB)


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
