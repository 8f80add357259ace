"""Jobs as lines of text: in posted bodies, in files for the journal, and in the output of handlers."""

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from .commands import Add, NewJob
from .creating import add_commands
from .errors import BadInput
from .job import Body


def check_line_names(tenant: str, task: str) -> None:
    """Refuse names for which TENANT-TASK would be ambiguous."""
    if any(char in task for char in ",|\n"):
        raise BadInput("task", task, needed="without , | and newline in lines of jobs")
    if any(char in tenant for char in "-,|\n"):
        raise BadInput("tenant", tenant, needed="without - , | and newline in lines of jobs")


def body_of_line(line: str | bytes) -> Body | None:
    """The data of a line: JSON text or bytes; None for an empty line or a comment."""
    raw = line.encode() if isinstance(line, str) else line
    raw = raw.removesuffix(b"\n")
    if not raw or raw.startswith(b"#"):
        return None
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
        return raw.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw


def adds_of_lines(tenant: str, task: str, lines: Iterable[str | bytes]) -> Iterator[Add]:
    """Commands that add a job for each line with data; each command fits a transaction."""
    check_line_names(tenant, task)
    if isinstance(lines, str | bytes):
        raise BadInput("lines", lines, needed="a list of lines: text would be a job for each character")
    bodies = (body for line in lines if (body := body_of_line(line)) is not None)
    first = next(bodies, None)
    if first is not None:
        yield from add_commands(chain([NewJob(task=task, tenant=tenant, data=first)], bodies))
