"""`holdfast schedule`: create, change, run, pause or delete a schedule."""

from typing import TYPE_CHECKING, Any

import click

from ..options import arg_option, chosen, job_options
from ..output import answer
from ..session import Session, now_ms, settings
from ..words import ScheduleName, TaskName, data_of

if TYPE_CHECKING:
    from ...core.schedule import Schedule

_WHEN = ("cron", "every", "repeat", "tz", "catch_up", "overlap", "jitter")


@click.command()
@click.argument("name", type=ScheduleName())
@click.argument("task", required=False, type=TaskName())
@click.argument("data", nargs=-1, metavar="[DATA]")
@arg_option
@click.option("--cron", metavar="LINE", help="Five fields, such as '30 4 * * 1-5', or @daily, @hourly …")
@click.option("--every", metavar="TIME", help="Interval in whole seconds: 10m.")
@click.option("--repeat", metavar="TEXT", help="'FINISHED, +1 HOUR', or HOURLY.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron and --repeat.  [UTC]")
@click.option(
    "--catch-up", type=click.Choice(("none", "one", "all")), help="What to do about missed times.  [one]"
)
@click.option(
    "--overlap",
    type=click.Choice(("skip", "wait", "allow")),
    help="What to do while its last job still runs.  [skip]",
)
@click.option("--jitter", metavar="TIME", help="Spread starts randomly over this time.")
@click.option("--delete", is_flag=True, help="Delete the schedule; its jobs stay.")
@click.option("--pause", is_flag=True, help="Pause the schedule.")
@click.option("--resume", is_flag=True, help="Resume the schedule.")
@click.option("--run", is_flag=True, help="Add its job now; its times stay as they are.")
@job_options(schedule=True)
@settings()
@click.pass_obj
def schedule(
    session: Session,
    /,
    *,
    name: str,
    task: str | None,
    data: tuple[str, ...],
    args: tuple[str, ...],
    **options: Any,
) -> None:
    """Add a job at given times, again and again.

    To change a schedule, give its NAME and all options again.
    DATA is JSON, {} if there is none; - reads it from standard input.
    """
    verbs = [verb for verb in _VERBS if options.pop(verb)]
    given = chosen(options)
    when = {field: given.pop(field) for field in _WHEN if field in given}
    if verbs:
        if len(verbs) > 1 or task is not None or args or given or when:
            raise click.UsageError(f"--{verbs[0]} needs the name of the schedule and nothing else")
        _VERBS[verbs[0]](session, name)
    elif task is None:
        raise click.UsageError("TASK is missing; to change a schedule, give all of it again")
    elif not when.keys() & {"cron", "every", "repeat"}:
        raise click.UsageError("give one of --cron, --every and --repeat; to run one now: NAME --run")
    else:
        _set(session, name, task, data_of(data, args), when, given)


def _set(
    session: Session, name: str, task: str, text: str, when: dict[str, Any], options: dict[str, Any]
) -> None:
    from msgspec.structs import replace

    from ...core.checks import check_new

    with session.open() as queue:
        new = replace(queue.call(task, **options), data=text)
        check_new(new)
        kept = queue.schedule(name, new, **when)
        now = now_ms(queue)
    _tell(session, kept, task, now)


def _tell(session: Session, kept: "Schedule", task: str, now: int) -> None:
    from ...core.schedule import upcoming
    from ..records import moment, schedule_record

    moments = upcoming(kept, now, 3)
    after = f"next at {moment(moments[0])}" if moments else "paused" if kept.paused else "next after its job"
    text = f"{kept.name}: {after}"
    answer(schedule_record(kept, task, moments), text, as_json=session.as_json)


def _delete(session: Session, name: str) -> None:
    with session.existing() as queue:
        queue.unschedule(name)
    answer({"name": name, "deleted": True}, f"{name}: deleted", as_json=session.as_json)


def _pause(session: Session, name: str, *, on: bool = True) -> None:
    with session.existing() as queue:
        kept = queue.pause_schedule(name, on=on)
    text = "paused" if kept.paused else "goes on"
    answer({"name": name, "paused": kept.paused}, f"{name}: {text}", as_json=session.as_json)


def _run(session: Session, name: str) -> None:
    with session.existing() as queue:
        job = queue.run_schedule(name)
    answer({"name": name, "id": str(job.id)}, f"{name}: added job {job.id}", as_json=session.as_json)


_VERBS: dict[str, Any] = {
    "delete": _delete,
    "pause": _pause,
    "run": _run,
    "resume": lambda session, name: _pause(session, name, on=False),
}
