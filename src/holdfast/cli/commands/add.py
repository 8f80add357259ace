"""`holdfast add`: adds one job, or one for each line of a file."""

from typing import Any

import click

from ..output import answer, emit, say
from ..session import Session, options_of
from ..words import ARG, TaskName, chosen, data_of, job_params

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
        from .add_lines import add_lines

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
            answer({"id": str(handle.id)}, str(handle.id), as_json=session.as_json)
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
