"""What became of a plain commit that got no reply: found by looking, and by sending it again.

An id or a version is used once, so of the two commits at most one succeeds, and the second waits for the
first. A job that was only added may have ended meanwhile, and be purged.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ...core.bounds import DEFAULT_RETENTION_MS, MINUTE_MS
from ..common.outage import unsettled
from ..contract import Changes
from .changes import Parameters, parameters_of, put_counts
from .reads import PostgresReads

# An archive that keeps jobs for less than this may have purged one that was added just now.
SHORT_MS = MINUTE_MS


def settle(
    view: PostgresReads,
    changes: Changes,
    send: Callable[[list[Parameters]], bool],
    *,
    for_s: float,
    is_over: bool,
    shown: str,
) -> bool:
    """Whether the changes are written now; `Unsettled` if that is not known.

    `send` sends plain statements, and returns False if they are refused. `for_s`: how long ago the changes
    were sent; `is_over`: their session has ended, so that they do not arrive any more.
    """
    added = {id for group in changes.added for id, _ in group.rows}
    # Only these changes can have added them. The others may be those of an earlier add that is repeated.
    fresh = {id for group in changes.added if group.is_fresh for id, _ in group.rows}
    after = {job.id: job for job in (*changes.swapped, *changes.archived)}
    before = {id: job.version - 1 for id, job in after.items()}
    before |= {job.id: job.version for job in changes.removed}

    def is_done() -> bool:
        if not before and fresh:
            return bool(view.load(fresh) or view.archived(fresh))
        if not before:
            return added <= view.load(added).keys() | view.archived(added).keys()
        there = view.load(after) | view.archived(after)
        return bool(after) and all(there.get(id) == job for id, job in after.items())

    if is_done():
        return True
    if not before:
        kept_ms = int(view.connection.value(view.sql["retention"]) or DEFAULT_RETENTION_MS)
        if kept_ms < for_s * 1000 + SHORT_MS:
            raise unsettled(shown)
    known = [replace(group, is_fresh=False) for group in changes.added]
    statements = parameters_of(replace(changes, added=known))
    put_counts(statements[-1], changes.counts, changes.tallies)
    if send(statements) or is_done():
        return True
    if _are_not_done(view, changes, before) or (is_over and not before):
        # Nothing was written: a batch finds out why.
        return False
    raise unsettled(shown)


def _are_not_done(view: PostgresReads, changes: Changes, before: Mapping[int, int]) -> bool:
    """Whether the changes of these jobs, by the versions before, were not written.

    A job that they had ended would not be live. And one that another commit has changed since, such as one
    whose lease ran out, they cannot end any more.
    """
    ended = {job.id for job in (*changes.archived, *changes.removed)}
    return any(job.version == before[job.id] or job.id in ended for job in view.load(before).values())
