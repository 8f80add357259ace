"""How jobs ended, with their results."""

from collections.abc import Collection

from ..core import commands as c
from ..core import queries as q
from ..core.job import Job, marked
from ..core.redaction import redact_body
from ..store.contract import ReadTxn


def find_ended(txn: ReadTxn, job_ids: Collection[int]) -> tuple[dict[int, Job], dict[int, c.Ended]]:
    """These jobs, live or archived, and how those of them ended that have."""
    live = txn.load(job_ids)
    jobs = {**live, **txn.archived([id for id in job_ids if id not in live])}
    # A store may load parents too.
    over = {id: job for id in job_ids if (job := jobs.get(id)) is not None and job.ended is not None}
    wanted = [id for id, job in over.items() if job.has_result]
    results = txn.bodies(wanted, result=True) if wanted else {}
    ended = {
        id: c.Ended(job=job, result=marked(results.get(id)) if job.has_result else None)
        for id, job in over.items()
    }
    return jobs, ended


def shown_ended(ended: c.Ended, *, redacted: bool) -> c.Ended:
    """How a job ended, without the secrets in its result if that is asked."""
    return c.Ended(job=ended.job, result=redact_body(ended.result)) if redacted else ended


def load_ended(txn: ReadTxn, query: q.LoadEnded) -> list[c.Ended]:
    """See `LoadEnded`."""
    _, ended = find_ended(txn, query.job_ids)
    return [
        shown_ended(one, redacted=query.redacted)
        for one in ended.values()
        if query.tenant in (None, one.job.tenant)
    ]


def find_awaited(txn: ReadTxn, asked: Collection[c.Await]) -> list[c.Ended | str | None]:
    """For each job: how it ended, None if it has not, or "gone", also if it is another tenant's."""
    jobs, ended = find_ended(txn, [one.job_id for one in asked])
    found: list[c.Ended | str | None] = []
    for one in asked:
        job = jobs.get(one.job_id)
        if job is None or one.tenant not in (None, job.tenant):
            found.append("gone")
        else:
            over = ended.get(one.job_id)
            found.append(over and shown_ended(over, redacted=one.redacted))
    return found
