"""The options by which `jobs`, `cancel`, `requeue` and `delete` select jobs, and how these are listed."""

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ..core.bounds import PAGE_JOBS
from .words import JobId, Key, ScheduleName, TaskName, state_option

if TYPE_CHECKING:
    from ..core.job import Job
    from ..queue.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])

# Jobs that ended like this are in the archive, except children that their parent has not read yet.
ARCHIVED_STATES = ("FINISHED", "CANCELLED")


class Selection(NamedTuple):
    """The criteria; None: any."""

    state: str | None = None
    task: str | None = None
    domain: bytes | None = None
    parent: int | None = None
    schedule: str | None = None
    archived: bool = False
    stuck: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there are no criteria."""
        return self == Selection()


def selecting(*, archived: bool = True) -> Callable[[F], F]:
    """Give a command the options of a `Selection`."""
    options = [
        state_option("Jobs in this state."),
        click.option("--task", type=TaskName(), metavar="NAME", help="Jobs of this task."),
        click.option("--domain", type=Key(), metavar="NAME", help="Jobs of this domain."),
        click.option("--parent", type=JobId(), metavar="ID", help="Children of this job."),
        click.option(
            "--schedule", type=ScheduleName(), metavar="NAME", help="Jobs that this schedule added."
        ),
        click.option("--stuck", is_flag=True, help="Running jobs without a lease, or past it."),
    ]
    if archived:
        options.append(click.option("--archived", is_flag=True, help="Jobs of the archive."))

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Selecting(click.Command):
    """A command without arguments that selects by --task: for a bare argument the error suggests --task."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, but with a hint."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            word = ctx.args[0]
            raise click.UsageError(f"{word!r} is an unexpected argument; did you mean --task {word}?", ctx)
        return rest


def find(
    queue: "Queue", wanted: Selection, *, now: int, after: int = 0, archive: bool = True
) -> "Iterator[Job]":
    """The jobs of a selection, oldest first, page by page; the archive only if needed."""
    if wanted.stuck:
        for state in ("RUNNING", "RUNQUEUED"):
            live = _pages(queue, wanted._replace(state=state, archived=False), after)
            yield from (job for job in live if _is_stuck(job, now))
    elif archive and wanted.state in ARCHIVED_STATES and not wanted.archived:
        both = (_pages(queue, wanted._replace(archived=archived), after) for archived in (False, True))
        yield from heapq.merge(*both, key=lambda job: job.id)
    else:
        yield from _pages(queue, wanted, after)


def _pages(queue: "Queue", wanted: Selection, after: int) -> "Iterator[Job]":
    asked = wanted._asdict()
    del asked["stuck"]
    while page := queue.jobs(**asked, after=after, limit=PAGE_JOBS):
        yield from page
        after = page[-1].id
        if len(page) < PAGE_JOBS:
            return


def _is_stuck(job: "Job", now: int) -> bool:
    return job.place.name == "RUNNING" and job.lease_until <= now
