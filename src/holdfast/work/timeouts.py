"""When the run of a job exceeds its `timeout`, and what it is answered with then."""

from ..core import commands as c
from ..core.errors import NotFound, Refused
from ..core.job import Code, Job
from ..engine import joblog
from ..queue.claimed import Holding

MAX_EARLY_MS = 500


def limit_s(job: Job) -> float:
    """How long the run of a job may take before it is answered with an error.

    A little less than its limit, at which its lease ends for good: that would be a loss and no attempt.
    """
    return (job.timeout_ms - min(job.timeout_ms // 10, MAX_EARLY_MS)) / 1000


def limit_error(job: Job) -> str:
    """The error of a run that has not ended by then."""
    return f"still running after its limit of {job.timeout_ms / 1000:g} s"


async def answer_late(job: Holding) -> None:
    """Answer for a job of this process that runs past its limit, and tell its handler to stop."""
    try:
        ask = job._answer(Code.ERROR, error=limit_error(job.record))
        assert isinstance(ask.asked, c.Answer)
        joblog.ended(job.record, ask.asked, duration_ms=job.record.timeout_ms, trace_id=job.trace_id)
        ask.read(await job._queue.session.connection.ask_async(ask.asked))
    except (Refused, NotFound):
        return  # its handler has answered meanwhile, or the claim was lost
    job._lease.stop()
