"""What becomes of an ask whose reply was lost. See docs/decisions/0017.

Queries, adds under ids known beforehand, claims and what sets a value are asked again. What a holder said is
asked again too; where that is refused, the job tells whether it was done the first time.
"""

from typing import Any

from msgspec.structs import replace

from ..core import commands as c
from ..core import handler as h
from ..core.commands import RunSchedule
from ..core.errors import (
    Closed,
    Forbidden,
    HoldfastError,
    LeaseLost,
    NotFound,
    StoreError,
    Unauthenticated,
    Unsettled,
)
from ..core.job import Job, Place, State
from ..core.queries import GetJob, Query

# To do these twice is not the same as once.
ONCE = (
    c.Requeue,
    c.RequeueAll,
    RunSchedule,
    c.Delete,
    c.WriteLog,
    c.CreateToken,
    c.RevokeToken,
    h.RollBackHandler,
    h.DeleteHandler,
)
# These change nothing, or what they claimed for a session that is lost is released.
HARMLESS = (c.Claim, c.Await, c.ReserveIds)
# Errors that tell nothing about an earlier try. A server that has started meanwhile does not know the ids
# that were reserved for a token of one tenant, and refuses them.
SILENT = (StoreError, Closed, Unauthenticated, Forbidden)
# Under a claim that their first try has ended, these are refused the second time.
ENDING = (c.Answer, c.Release)


def may_ask_again(asked: c.Command | Query) -> bool:
    """Whether a command that may have been done can be asked for once more."""
    if isinstance(asked, c.Append):
        return all(item.key is not None for item in asked.items)
    if isinstance(asked, c.SendSignal):
        return bool(asked.key)
    if isinstance(asked, c.Add):
        return bool(asked.ids) or all(new.id for new in asked.jobs)
    return not isinstance(asked, ONCE)


def is_change(asked: c.Command | Query) -> bool:
    """Whether it matters if a command was done."""
    return isinstance(asked, c.Command) and not isinstance(asked, HARMLESS)


def may_be_done(asked: c.Command | Query, reply: Any) -> bool:
    """Whether an ask that was asked again, and met an error, may have been done the first time."""
    return is_change(asked) and isinstance(reply, SILENT)


def unsettled(asked: c.Command | Query, where: object) -> Unsettled:
    """What the caller of an ask hears that cannot be asked again."""
    name = type(asked).__name__
    return Unsettled(f"the connection to {where} was lost: {name} may have been done, or not")


def question(asked: c.Command | Query, reply: Any) -> GetJob | None:
    """What to look up before a refusal is believed that an ask met when it was asked again."""
    if isinstance(asked, ENDING) and isinstance(reply, LeaseLost | NotFound) and asked.hold.claim is not None:
        return GetJob(job_id=asked.hold.job_id, tenant=asked.hold.tenant)
    return None


def settle(asked: c.Command | Query, refusal: HoldfastError, found: Any) -> Any:
    """The reply to an ask that was refused the second time; `found` is its job as it is now."""
    assert isinstance(asked, ENDING)
    if isinstance(found, Job):
        if isinstance(asked, c.Release):
            # Another worker has it, or it waits: either way it was given back.
            return found
        return found if _was_answered(found, asked) else refusal
    if isinstance(found, NotFound) and isinstance(asked, c.Answer) and asked.held is not None:
        # A claimed job cannot be deleted, so it has ended, and was purged at once.
        return replace(asked.held, place=Place.DONE, ended=State.FINISHED, owner=0)
    return refusal


def _was_answered(job: Job, answer: c.Answer) -> bool:
    """Whether the last run of a job ended under that claim, as the answer says."""
    end = job.outcome
    if end is None or job.claim != answer.hold.claim or job.owner:
        return False
    return end.code is answer.code and 0 < job.started_at <= end.at
