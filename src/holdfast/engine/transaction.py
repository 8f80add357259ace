"""What one batch does in its transaction: loads its jobs, decides its verbs, claims, and notes the result."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..core import commands as c
from ..core import kinds, rank
from ..core.defaults import Defaults
from ..core.errors import Conflict, HoldfastError
from ..core.handler import Handler
from ..core.indexed import LogMark, Mark
from ..core.job import Job, Place
from ..core.kinds import DOMAIN
from ..core.layout import ROW_RECORDS
from ..core.limits import Domain, Limit
from ..core.notes import JobLog, StepResult
from ..core.token import Token
from ..core.unique import Unique
from ..core.worker import Worker
from ..store.contract import Changes
from .batch.batch import Batch
from .commands.chores import Chore
from .commands.claims import claim
from .commands.handlers import HandlerHead
from .commands.requests import RequestNote
from .commands.schedules import Kept
from .commands.verbs import VERBS, JobRef
from .records import Patterns
from .ticket import Done

# Of the rows of these tables, a process of an older version keeps the fields that it does not know.
ROW_RECORDS.update(
    {
        kinds.UNIQUE: Unique,
        kinds.DOMAIN: Domain,
        kinds.LIMIT: Limit,
        kinds.PATTERNS: Patterns,
        kinds.SCHEDULE: Kept,
        kinds.WORKER: Worker,
        kinds.TOKEN: Token,
        kinds.REQUEST: RequestNote,
        kinds.TASK: Defaults,
        kinds.HANDLER: HandlerHead,
        kinds.HANDLER_VERSION: Handler,
        kinds.STEPS: StepResult,
        kinds.JOB_LOG: JobLog,
        kinds.CHORE: Chore,
        kinds.PROGRESS: Mark,
        kinds.LOG: LogMark,
    }
)


def decide(batch: Batch, commands: Sequence[c.Command], *, trust: bool) -> list[Any]:
    """The replies of the verbs, in order; None for claims, which come later.

    `trust`: the records that holders send are taken for current.
    """
    replies: list[Any] = [None] * len(commands)
    new_jobs, undo = batch.new_jobs, batch.undo
    for at, command in enumerate(commands):
        if type(command) is c.AnswerAll:
            # Each answer by itself, as if it were a command.
            replies[at] = decide(batch, command.answers, trust=trust)
            batch.parts.append(replies[at])
            continue
        verb = VERBS[type(command)]
        if verb is None:
            continue
        try:
            replies[at] = verb(batch, command)
        except Conflict:
            raise
        except HoldfastError as error:
            if trust and isinstance(command, c.Answer | c.Step):
                # The record may be out of date.
                raise Conflict("read again") from None
            batch.drop()
            replies[at] = error
        # What it has left, after an error nothing, stays: `batch.keep`, inlined to save a call.
        new_jobs.kept = new_jobs.size
        if undo:
            undo.clear()
    return replies


def preload(batch: Batch, commands: Sequence[c.Command], *, trust: bool) -> None:
    """Load the jobs that the batch needs in one read."""
    wanted: set[int] = set()
    brought: dict[int, Job] = {}
    for command in commands:
        kind = type(command)
        if kind is c.Answer or kind is c.Step:
            held = command.held  # type: ignore[attr-defined]
            if trust and held is not None and not held.parent_id:
                brought[held.id] = held
            else:
                wanted.add(command.hold.job_id)  # type: ignore[attr-defined]
        elif kind is c.AnswerAll:
            own = [held for held in command.held if trust and not held.parent_id]  # type: ignore[attr-defined]
            brought |= {held.id: held for held in own}
            if len(own) < len(command.answers):  # type: ignore[attr-defined]
                wanted |= {one.hold.job_id for one in command.answers} - brought.keys()  # type: ignore[attr-defined]
        elif kind is c.Add:
            for new in command.jobs:  # type: ignore[attr-defined]
                if new.parent_id:
                    wanted.add(new.parent_id)
        elif hold := getattr(command, "hold", None):
            wanted.add(hold.job_id)
        elif job_id := getattr(command, "job_id", 0):
            wanted.add(job_id)
    if brought:
        batch.bring_all(brought)
    if wanted:
        batch.load(wanted)


def claim_all(batch: Batch, commands: Sequence[c.Command], replies: list[Any]) -> None:
    """Reply to all claims. Hundreds may wait for the same: once one got nothing, none after it will."""
    without_jobs: set[c.Claim] = set()
    for at, command in enumerate(commands):
        if isinstance(command, c.Claim):
            # What another claim has put back, or its domain's spent allowance, counts for this one.
            batch.settle()
            batch.flush()
            is_known_empty = bool(without_jobs) and _wanted(command) in without_jobs
            replies[at] = [] if is_known_empty else claim(batch, command)
            if not replies[at]:
                without_jobs.add(_wanted(command))


def _wanted(command: c.Claim) -> c.Claim:
    """A claim without what does not decide whether a job is found."""
    return replace(command, limit=1, lease_ms=None, owner=0)


def next_due_ms(batch: Batch, changes: Changes, next_upkeep_ms: int | None) -> int | None:
    """When something next becomes true by itself: by what is stored, and by what is about to be."""
    moments = [batch.txn.moments().first, next_upkeep_ms]
    moments += [due_ms for (table, _), due_ms in changes.dues.items() if table == DOMAIN]
    for job in (*changes.swapped, *(new.template for new in changes.added)):
        if job.place in (Place.SCHEDULED, Place.RUNNING) and job.rank < rank.LAST:
            moments.append(job.rank)
        if job.expires_at and job.place is not Place.RUNNING:
            moments.append(job.expires_at)
    return min([moment for moment in moments if moment is not None], default=None)


def fill(done: Done, batch: Batch, replies: list[Any]) -> None:
    """Note what a transaction leaves. A reply that is a `JobRef` is the job as the transaction leaves it."""
    jobs, finals = batch.jobs, batch.finals
    for some in (replies, *batch.parts) if jobs else ():
        for at, reply in enumerate(some):
            if type(reply) is JobRef:
                job = jobs[reply] if reply in jobs else None  # noqa: SIM401 - a call less
                some[at] = finals[reply] if job is None and reply in finals else job
            elif finals and type(reply) is list and reply and type(reply[0]) is c.Claimed:
                # What the rules changed in a leased job is written after it was replied, with a version more.
                some[at] = [replace(one, job=jobs.get(one.job.id) or one.job) for one in reply]
    done.replies, done.now_ms, done.retention_ms = replies, batch.now_ms, batch.known_retention_ms
    done.woke, done.ended, done.news = batch.woke, batch.ended, batch.news
    done.published, done.unreported = batch.published, batch.unreported
