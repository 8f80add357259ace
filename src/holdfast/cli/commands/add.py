"""`holdfast add`: adds one job, or one for each line of a file.

copy input that cannot be read twice ──▶ check every line ──▶ add them, 10,000 in a transaction

So an invalid line changes nothing. An interruption in the middle (a full disk, Ctrl-C) leaves complete
transactions, and the error says how many lines they contain.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from ...core.bounds import BATCH_BYTES, BATCH_JOBS, DATA_BYTES
from ...core.checks import check_new
from ...core.errors import BadInput, HoldfastError
from ...core.job import size_of
from ...core.units import counted
from ..output import answer, emit, note, progress, say
from ..session import Session, options_of
from ..words import ARG, Description, TaskName, chosen, data_of, job_params, json_text, open_input, stdin

if TYPE_CHECKING:
    from ...core.commands import NewJob
    from ...queue.queue import Queue


FILE = click.Option(
    ["--file"], metavar="FILE", help="Add one job for each line of a file; - is standard input."
)
WAIT = click.Option(["--wait"], metavar="TIME", help="Wait this long for the result, and print it.")


@click.command(params=[ARG, FILE, WAIT, *job_params(), *options_of()])
@click.argument("task", required=False, type=TaskName())
@click.argument("data", nargs=-1, metavar="[DATA]")
@click.pass_obj
def add(
    session: Session,
    /,
    *,
    task: str | None,
    data: tuple[str, ...],
    args: tuple[str, ...],
    file: str | None,
    wait: str | None,
    **options: Any,
) -> None:
    """Add a job and print its id.

    DATA is JSON, {} if there is none; - reads it from standard input.

    With --file and a TASK, each line is the data of a job. Without a TASK each line is a whole job,
    {"task": "resize", "data": {"width": 200}, "priority": 900}, with options as in Python. All lines
    are checked before the first job is added.
    """
    if file is not None:
        if data or args or wait:
            raise click.UsageError("--file cannot be combined with DATA, --arg or --wait")
        add_lines(session, file, task, chosen(options))
        return
    if task is None:
        raise click.UsageError("TASK is missing: give a task, or --file with one job per line")
    _add_one(session, task, data_of(data, args), chosen(options), wait)


def _add_one(session: Session, task: str, text: str, options: dict[str, Any], wait: str | None) -> None:
    from msgspec.structs import replace

    from ...queue.asks import wait_s_of

    patience = wait_s_of(wait)
    with session.open() as queue:
        new = replace(queue.call(task, **options), data=text)
        (handle,) = queue.add_many([new])
        if wait is None:
            answer({"id": str(handle.id), "is_new": handle.is_new}, str(handle.id), as_json=session.as_json)
        else:
            _await(session, handle, patience)


def _await(session: Session, handle: Any, patience_s: float) -> None:
    from ...core.errors import HoldfastError
    from ..records import plain

    if not session.as_json:
        say(str(handle.id))
    try:
        result = plain(handle.result(wait=patience_s))
    except HoldfastError:
        if session.as_json:
            emit({"id": str(handle.id), "state": str(handle.get().state), "result": None})
        raise
    emit({"id": str(handle.id), "state": "FINISHED", "result": result} if session.as_json else result)


# A line has the data and the options of a job.
LINE_BYTES = DATA_BYTES + 64 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Reader = Callable[[bytes], "NewJob"]
Numbered = Iterator[tuple[int, "NewJob"]]


class BadLine(BadInput):
    """The error for an invalid line, with its number."""

    def __init__(self, file: str, line: int, error: HoldfastError) -> None:
        HoldfastError.__init__(self, f"{file}, line {line:,}: {error}")


def add_lines(session: Session, name: str, task: str | None, options: dict[str, Any]) -> None:
    """Add a job for each line of a file; see `holdfast add --help`."""
    with _opened(name) as (lines, size), session.open() as queue:
        read = _whole_jobs(queue, options) if task is None else _data_of(queue, task, options)
        shown = "standard input" if name == "-" else name
        with progress("checking", size, unit="bytes") as advance:
            total = sum(1 for _ in _jobs(lines, shown, read, advance))
        added = _add_all(session, queue, _jobs(lines, shown, read), total)
    if not session.as_json:
        say(f"{counted(added, 'job')} added")


def _add_all(session: Session, queue: "Queue", jobs: Numbered, total: int) -> int:
    added = last = 0
    try:
        with progress("adding", total) as advance:
            for line, batch in _batches(jobs):
                handles = queue.add_many(batch)
                added, last = added + len(handles), line
                advance(len(handles))
                for handle in handles if session.as_json else ():
                    emit({"id": str(handle.id)})
    except BaseException as error:
        # A transaction that was interrupted may have been committed.
        unsure = ", and maybe those of the next transaction" if isinstance(error, KeyboardInterrupt) else ""
        if added or unsure:
            note(f"holdfast: stopped after line {last:,}: {counted(added, 'job')} were added{unsure}")
        raise
    return added


def _batches(jobs: Numbered) -> Iterator[tuple[int, list["NewJob"]]]:
    """Batches for one transaction each, with the number of their last line."""
    batch: list[NewJob] = []
    line = size = 0
    for line, new in jobs:
        batch.append(new)
        size += size_of(new.data)
        if len(batch) >= BATCH_JOBS or size >= BATCH_BYTES // 2:
            yield line, batch
            batch, size = [], 0
    if batch:
        yield line, batch


@contextmanager
def _opened(name: str) -> Iterator[tuple[IO[bytes], int]]:
    """A file that can be read twice, and its size."""
    if name == "-":
        with _copied(stdin()) as copy:
            yield copy
        return
    with open_input(name, option="--file") as source:
        about = os.fstat(source.fileno())
        if stat.S_ISREG(about.st_mode):
            yield source, about.st_size
            return
        with _copied(source) as copy:
            yield copy


@contextmanager
def _copied(source: IO[bytes]) -> Iterator[tuple[IO[bytes], int]]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(source, copy, 1024 * 1024)
        yield copy, copy.tell()


def _jobs(
    lines: IO[bytes], name: str, read: Reader, advance: Callable[[int], None] = lambda _size: None
) -> Numbered:
    """The jobs of all lines, with line numbers; empty lines are skipped."""
    lines.seek(0)
    number = 0
    while raw := lines.readline(LINE_BYTES):
        number += 1
        advance(len(raw))
        text = raw.removeprefix(BYTE_ORDER_MARK).strip() if number == 1 else raw.strip()
        if not text:
            continue
        try:
            yield number, read(text)
        except HoldfastError as error:
            raise BadLine(name, number, error) from None


def _data_of(queue: "Queue", task: str, options: dict[str, Any]) -> Reader:
    """Each line is the data of a job; the options are the same for all."""
    from msgspec.structs import replace

    pattern = queue.call(task, **options)
    check_new(pattern)
    return lambda text: replace(pattern, data=json_text("the data", text))


def _whole_jobs(queue: "Queue", options: dict[str, Any]) -> Reader:
    """Each line is a complete job; its options override those of the command line."""
    import msgspec

    from ...queue import asks

    def read(text: bytes) -> "NewJob":
        said: Any = msgspec.json.decode(json_text("the line", text))
        if not isinstance(said, dict) or not isinstance(said.get("task"), str):
            raise BadInput("the line", Description("something else"), needed='an object with a "task"')
        if "tenant" in said:
            raise BadInput("tenant", Description("given"), needed="absent: --tenant says it for all")
        task, data = said.pop("task"), said.pop("data", None)
        new = asks.call(task, data, {**options, **said}, tenant=queue.tenant)  # type: ignore[typeddict-item]
        check_new(new)
        return new

    return read
