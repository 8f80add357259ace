"""One command for many jobs, given by their ids, or selected and then confirmed.

    ids ─────────────────────────────────┐
                                         ├──▶ 500 at a time, committed together ──▶ the result of each
    a selection ──▶ its ids ──▶ sure? ───┘

If a job is refused, the others continue: the error is printed on stderr, and the first one sets the exit
code.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.counting import counted
from ..core.errors import HoldfastError, StoreError
from .exits import Exit, complain, tell
from .output import confirm, emit, progress, say
from .selection import Selection, find, selecting
from .session import Session, now_ms, settings
from .words import JobId

if TYPE_CHECKING:
    from ..core.job import Job
    from ..queue.aio import AsyncQueue

F = TypeVar("F", bound=Callable[..., Any])
Verb = Callable[["AsyncQueue", int], Awaitable[Any]]

TOGETHER = 500
# This many errors are printed one by one.
TOLD = 20


def choosing(function: F, *, archived: bool = False) -> F:
    """Give a command ids, a selection, --all and --yes."""
    ids = click.argument("ids", metavar="[ID]...", nargs=-1, type=JobId())
    everything = click.option("--all", "everything", is_flag=True, help="All jobs, or all jobs that match.")
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return ids(selecting(archived=archived)(everything(yes(settings()(function)))))


def confirm_change(question: str) -> None:
    """Ask, and exit if the answer is no."""
    if not confirm(question):
        complain("holdfast: nothing was changed")
        raise click.exceptions.Exit(Exit.ERROR)


class Many:
    """The jobs that a command line selects, and what is done with them."""

    def __init__(self, session: Session, verb: str, past: Callable[[Any], str]) -> None:
        """`past` is the text for a reply: "cancelled {}"."""
        self._session = session
        self._verb, self._past = verb, past
        self._done: Counter[str] = Counter()
        self._refused = 0
        self._code = Exit.OK

    def choose(
        self,
        ids: Sequence[int],
        options: dict[str, Any],
        *,
        default: Callable[["Job"], bool] = lambda _job: True,
    ) -> list[int]:
        """The ids. A selection without a state takes only the jobs that `default` accepts."""
        everything, yes = options.pop("everything"), options.pop("yes")
        wanted = Selection(**options)
        if ids:
            if everything or not wanted.is_empty:
                raise click.UsageError("give ids or options such as --state, not both")
            return list(dict.fromkeys(ids))
        if wanted.is_empty and not everything:
            raise click.UsageError(f"choose the jobs to {self._verb}: ids, options such as --state, or --all")
        found = self._find(wanted, default)
        if found and not yes:
            confirm_change(f"{self._verb} {counted(len(found), 'job')}?")
        return found

    def _find(self, wanted: Selection, default: Callable[["Job"], bool]) -> list[int]:
        with self._session.existing() as queue, progress("looking") as advance:
            found = []
            for job in find(queue, wanted, now=now_ms(queue), archive=self._verb == "delete"):
                advance(1)
                if wanted.state or default(job):
                    found.append(job.id)
        # Children are younger than their parents, and come first.
        return found[::-1]

    def run(self, ids: Sequence[int], verb: Verb) -> None:
        """Send the command for each job, print the results, and exit with the code of the first error."""
        if ids:
            asyncio.run(self._run(ids, verb))
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

    async def _run(self, ids: Sequence[int], verb: Verb) -> None:
        queue = self._session.many()
        try:
            with progress(self._verb, len(ids)) as advance:
                for start in range(0, len(ids), TOGETHER):
                    batch = ids[start : start + TOGETHER]
                    replies = await asyncio.gather(*(verb(queue, id) for id in batch), return_exceptions=True)
                    for job_id, reply in zip(batch, replies, strict=True):
                        self._tell(job_id, reply)
                    advance(len(batch))
        finally:
            await queue.close()

    def _tell(self, job_id: int, reply: Any) -> None:
        as_json = self._session.as_json
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
