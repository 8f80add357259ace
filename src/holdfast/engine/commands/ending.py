"""Runs that went well and from whose end nothing follows: most of them do, and they come by the thousand.

Such a job does not pass through the working set of its batch. What it becomes is known from what its holder
has, which a store refuses where it is no longer so; then the batch is done again, and looks.
"""

from collections.abc import Sequence

from ...core import commands as c
from ...core import plain
from ...core.job import Code, Job
from ...core.outcome import outcome
from ..batch.batch import Batch
from .adding import is_free


def plain_ends(commands: Sequence[c.Command]) -> dict[int, c.Answer]:
    """The answers of a batch that end a job plainly, by where they stand in it.

    Empty where something else in the batch may be about one of these jobs.
    """
    ends: dict[int, c.Answer] = {}
    named: list[int] = []
    for at, command in enumerate(commands):
        if isinstance(command, c.Answer):
            named.append(command.hold.job_id)
            if _is_plain(command):
                ends[at] = command
        elif isinstance(command, c.Release | c.Extend):
            named.append(command.hold.job_id)
        elif isinstance(command, c.Add):
            if command.hold is not None or not all(map(is_free, command.jobs)):
                return {}
        elif not isinstance(command, c.Claim | c.Upkeep):
            return {}
    return ends if len(set(named)) == len(named) else {}


def _is_plain(command: c.Answer) -> bool:
    job, hold = command.held, command.hold
    return not (
        job is None
        or command.code is not Code.OK
        or command.data is not None
        or command.lines
        or command.traceback
        or job.id != hold.job_id
        or job.claim != hold.claim
        or job.owner != hold.owner
        or (hold.tenant is not None and hold.tenant != job.tenant)
        or not plain.ends_plainly(job)
    )


def end(batch: Batch, command: c.Answer) -> Job:
    """Let a job be over; as it is then."""
    job, result, now_ms = command.held, command.result, batch.now_ms
    assert job is not None
    how = outcome(Code.OK, now_ms=now_ms, exit_code=command.exit_code, error=command.error)
    after = plain.finish_plainly(
        job, now_ms=now_ms, end=how, has_result=result is not None, ran_ms=command.ran_ms
    )
    batch.over.append((job, after, result))
    return after
