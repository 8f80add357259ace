"""Jobs on the command line: which are meant, how they are listed, and one verb for many of them.

    ids ─────────────────────────────────┐
                                         ├──▶ 500 at a time, committed together ──▶ the result of each
    a selection ──▶ its ids ──▶ sure? ───┘

If a job is refused, the others continue: the error is printed on stderr, and the first one sets the exit
code.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..core.bounds import PAGE_JOBS
from ..core.commands import Cancel, Command, Delete, Requeue
from ..core.errors import HoldfastError, NotFound, Refused, StoreError
from ..core.units import counted
from ..core.why import waits_in_short
from ..queue.asks import ARCHIVED_STATES
from .exits import Exit, complain, tell
from .output import Listing, confirm, cut, emit, progress, say, since, table
from .records import job_record, key_text
from .session import Session, now_ms
from .verbs import verb_command
from .words import STATES, JobId, Key, ScheduleName, TaskName

if TYPE_CHECKING:
    from ..core.job import Job
    from ..queue.queue import Queue

TOGETHER = 500
# This many errors are printed one by one.
TOLD = 20
# Jobs that ended like this are in the archive, except children that their parent has not read yet.


# Which jobs


class Selection(NamedTuple):
    """The criteria; None: any."""

    state: str | None = None
    task: str | None = None
    domain: bytes | None = None
    parent: int | None = None
    schedule: str | None = None
    archived: bool = False
    stuck: bool = False


_STATE = click.Choice(STATES, case_sensitive=False)
_SELECTING: tuple[click.Parameter, ...] = (
    click.Option(["--state"], type=_STATE, help="Jobs in this state."),
    click.Option(["--task"], type=TaskName(), metavar="NAME", help="Jobs of this task."),
    click.Option(["--domain"], type=Key(), metavar="NAME", help="Jobs of this domain."),
    click.Option(["--parent"], type=JobId(), metavar="ID", help="Children of this job."),
    click.Option(["--schedule"], type=ScheduleName(), metavar="NAME", help="Jobs that this schedule added."),
    click.Option(["--stuck"], is_flag=True, help="Running jobs without a lease, or past it."),
)
_ARCHIVED = click.Option(["--archived"], is_flag=True, help="Jobs of the archive.")
_AFTER = click.Option(["--after"], type=JobId(), default=0, metavar="ID", help="Start after this job.")
_LIMIT = click.Option(
    ["--limit"],
    type=click.IntRange(1, 1_000_000),
    default=100,
    metavar="N",
    help="The most jobs to list.  [100]",
)
_ONLY_IDS = click.Option(["--ids"], is_flag=True, help="Print only the ids, one on each line.")
YES = click.Option(["--yes", "-y"], is_flag=True, help="Do not ask.")
_IDS = click.Argument(["ids"], metavar="[ID]...", nargs=-1, type=JobId())
_ALL = click.Option(["--all", "everything"], is_flag=True, help="All jobs, or all jobs that match.")


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


# How they are listed


def job_table(found: "list[Job]", now: int) -> None:
    """A table of jobs."""
    table(LISTING.columns, [_row(job, now) for job in found], right=LISTING.right)


def _row(job: "Job", now: int) -> tuple[str, ...]:
    numbers = str(job.priority), f"{tries(job):,}"
    return str(job.id), job.task, str(job.state), when(job, now), *numbers, _note(job, now)


def tries(job: "Job") -> int:
    """The number of runs: failed ones, lost ones, and the current or last one."""
    goes_on = job.place.name == "RUNNING"
    # `attempts` counts only errors, not the run whose answer ended the job.
    by_answer = job.ended == "FINISHED" or (
        job.ended == "FAILED" and job.outcome is not None and job.outcome.code == "failed"
    )
    return job.attempts + job.losses + (1 if goes_on or by_answer else 0)


def when(job: "Job", now: int) -> str:
    """The most relevant time of a job."""
    match job.place.name:
        case "SCHEDULED" | "READY" | "HELD":
            return f"due {since(job.run_at, now)}"
        case "RUNNING" if not job.started_at:
            return "claimed"
        case "RUNNING":
            return f"since {since(job.started_at, now).removesuffix(' ago')}"
        case "PAUSED":
            return f"added {since(job.created_at, now)}"
    # The time may have been lost with a damaged record.
    return f"ended {since(job.finished_at, now)}" if job.finished_at else "ended"


def _note(job: "Job", now: int) -> str:
    if job.place.name == "RUNNING":
        if job.lease_until <= now:
            return "past its lease" if job.lease_until else "without a lease"
        if job.cancel_requested:
            return "asked to stop"
        if job.progress is not None:
            return cut(f"{job.progress.fraction:.0%} {job.progress.note}")
    if job.place.name == "HELD":
        return cut(f"held by domain {key_text(job.domain)}")
    if waits := waits_in_short(job):
        return cut(waits)
    return cut(job.reason or (job.errors[-1].error if job.errors and not job.ended else ""))


LISTING = Listing(
    "no jobs",
    ("ID", "TASK", "STATE", "WHEN", "PRIORITY", "TRIES", "NOTE"),
    _row,
    lambda job, _now: job_record(job),
    right=("PRIORITY", "TRIES"),
)


@verb_command(
    "jobs",
    listing=LISTING,
    params=(*_SELECTING, _ARCHIVED, _AFTER, _LIMIT, _ONLY_IDS),
    without=("filter", "after", "limit"),
)
def _list(queue: "Queue", *, after: int, limit: int, ids: bool, **criteria: Any) -> "Iterator[Job] | None":
    """List jobs, oldest first.

    FINISHED and CANCELLED jobs are in the archive: use --archived, or --state with one of the two. TRIES
    counts the runs of a job: runs that failed, runs that were lost, and the current or last run.
    """
    found = find(queue, Selection(**criteria), now=now_ms(queue), after=after)
    if not ids:
        return found
    for job in islice(found, limit):
        click.echo(job.id)
    return None


# One verb for many


class Many:
    """The jobs that a command line selects, and what is done with them."""

    def __init__(
        self,
        queue: "Queue",
        command: str,
        past: Callable[[Any], str],
        *,
        default: "Callable[[Job], bool]" = lambda _job: True,
    ) -> None:
        """`past` is the text for a reply: "cancelled {}"; without a state `default` says which are meant."""
        self._queue, self._command, self._past, self._default = queue, command, past, default
        self._session = click.get_current_context().ensure_object(Session)
        self._done: Counter[str] = Counter()
        self._refused = 0
        self._code = Exit.OK

    def choose(self, ids: Sequence[int], *, everything: bool, yes: bool, **criteria: Any) -> list[int]:
        """The ids of the jobs that are meant."""
        wanted = Selection(**criteria)
        if ids:
            if everything or wanted != Selection():
                raise click.UsageError("give ids or options such as --state, not both")
            return list(dict.fromkeys(ids))
        if wanted == Selection() and not everything:
            raise click.UsageError(
                f"choose the jobs to {self._command}: ids, options such as --state, or --all"
            )
        found = self._find(wanted)
        if found and not yes:
            confirm(f"{self._command} {counted(len(found), 'job')}?")
        return found

    def _find(self, wanted: Selection) -> list[int]:
        queue, found = self._queue, []
        with progress("looking") as advance:
            for job in find(queue, wanted, now=now_ms(queue), archive=self._command == "delete"):
                advance(1)
                if wanted.state or self._default(job):
                    found.append(job.id)
        # Children are younger than their parents, and come first.
        return found[::-1]

    def run(self, ids: Sequence[int], command: "Callable[[int], Command]") -> None:
        """Send the command for each job, print the results, and exit with the code of the first error."""
        import asyncio

        if ids:
            asyncio.run(self._run(ids, command))
        if not self._session.as_json:
            self._summarise()
        if self._code:
            raise click.exceptions.Exit(self._code)

    def _summarise(self) -> None:
        if self._done or not self._refused:
            done = self._done or {self._past(None): 0}
            say(", ".join(text.format(counted(count, "job")) for text, count in done.items()))
        if self._refused > TOLD:
            complain(f"holdfast: … and {counted(self._refused - TOLD, 'more refusal')}")

    async def _run(self, ids: Sequence[int], command: "Callable[[int], Command]") -> None:
        import asyncio

        queue = self._session.many()
        ask = queue.session.connection.ask_async
        try:
            with progress(self._command, len(ids)) as advance:
                for start in range(0, len(ids), TOGETHER):
                    batch = ids[start : start + TOGETHER]
                    replies = await asyncio.gather(*map(ask, map(command, batch)), return_exceptions=True)
                    for job_id, reply in zip(batch, replies, strict=True):
                        self._tell(job_id, reply)
                    advance(len(batch))
        finally:
            await queue.close()

    def _tell(self, job_id: int, reply: Any) -> None:
        as_json = self._session.as_json
        if self._command == "cancel" and str(getattr(reply, "state", "")) == "FINISHED":
            reply = Refused("cancel", job_id, found="FINISHED", needed="in any other state")
        if isinstance(reply, HoldfastError) and not isinstance(reply, StoreError):
            self._refused += 1
            code = tell(reply, as_json=as_json) if as_json or self._refused <= TOLD else Exit.OK
            self._code = self._code or code
        elif isinstance(reply, BaseException):
            raise reply
        else:
            self._done[self._past(reply)] += 1
        if as_json and not isinstance(reply, BaseException):
            emit({"id": str(job_id), "state": str(reply.state) if reply is not None else None})


@verb_command("cancel", params=(_IDS, *_SELECTING, _ALL, YES), without=("job_id",))
def _cancel(queue: "Queue", *, ids: tuple[int, ...], force: bool, **options: Any) -> None:
    """Take jobs out of the queue.

    A running job is asked to stop; with --force its claim ends at once. A selection without --state takes
    jobs that have not ended. Use --state FAILED to cancel failed jobs.
    """

    def past(job: "Job | None") -> str:
        return "asked {} to stop" if job is not None and job.ended is None else "cancelled {}"

    many = Many(queue, "cancel", past, default=lambda job: job.ended is None)
    many.run(many.choose(ids, **options), lambda job_id: Cancel(job_id=job_id, force=force))


@verb_command("delete", params=(_IDS, *_SELECTING, _ARCHIVED, _ALL, YES), without=("job_id",))
def _delete(queue: "Queue", *, ids: tuple[int, ...], **options: Any) -> None:
    """Delete jobs, including archived ones.

    A job that is running, or that its parent waits for, is refused: cancel it first.
    """
    many = Many(queue, "delete", lambda _reply: "deleted {}")
    many.run(many.choose(ids, **options), lambda job_id: Delete(job_id=job_id))


_FROM = click.Option(
    ["--from", "from_step"], metavar="STEP", help="Do this step and all after it again: a name or number."
)


@verb_command(
    "requeue",
    params=(_IDS, *_SELECTING, _ALL, YES, _FROM),
    without=("job_id", "task", "forgive", "unless_running", "from_step"),
)
def _requeue(
    queue: "Queue", *, ids: tuple[int, ...], run_at: int | None, from_step: str | None, **options: Any
) -> None:
    """Put jobs back in the queue, with their attempts reset.

    By id you can requeue a job in any state, except archived jobs; of running ones you are asked, since they
    may then run a second time beside themselves. A selection without --state takes FAILED jobs, or stuck jobs
    with --stuck. A function that has undone its steps fails again at once, unless you give --from with a step
    that was undone, or one before it.
    """

    def is_failed(job: "Job") -> bool:
        return str(job.ended) == "FAILED" or options["stuck"]

    many = Many(queue, "requeue", lambda _job: "requeued {}", default=is_failed)
    chosen = many.choose(ids, **options)
    # A selection was confirmed as a whole.
    confirmed = chosen if options["yes"] or not ids else _confirm_running(queue, chosen)
    many.run(
        chosen,
        lambda job_id: Requeue(
            job_id=job_id,
            run_at=run_at or 0,
            unless_running=job_id not in confirmed,
            from_step=from_step or "",
        ),
    )


def _confirm_running(queue: "Queue", ids: list[int]) -> Collection[int]:
    """Ask before running jobs are requeued; returns which of these jobs run."""
    running = set()
    for job_id in ids:
        # What is missing is refused later.
        with suppress(NotFound):
            if queue.get(job_id).place.name == "RUNNING":
                running.add(job_id)
    if running:
        confirm(f"requeue {counted(len(running), 'running job')}, which may then run twice at once?")
    return running
