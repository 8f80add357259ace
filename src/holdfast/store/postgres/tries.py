"""After which errors a call is retried, how often and for how long.

conflict with another batch     at once, up to TRIES times and until the time for retries has passed
a name that does not exist      once, after the layout of the schema was checked: it may have been migrated
there is a pooler               at once, without prepared statements
an unreadable record            once, after it was repaired
the server is down              with pauses, until the time for retries has passed
it is a replica                 likewise, if the store was open before

What became of a plain commit that got no reply is found by looking, and by sending it again.

An id or a version is used once, so of the two commits at most one succeeds, and the second waits for the
first. A job that was only added may have ended meanwhile, and be purged.
"""

from collections.abc import Callable, Mapping

import psycopg
from msgspec.structs import replace
from psycopg import errors as e

from ...core.bounds import DEFAULT_RETENTION_MS, MINUTE_MS
from ...core.damage import UNREADABLE
from ...core.errors import Conflict, Contended
from ..common.outage import RETRIED_IF_OPENED, Outages, RetryPeriod, Unreachable, unsettled
from ..common.records import beyond_repair
from ..contract import TRIES, Changes
from .changes import Parameters, parameters_of, put_counts
from .errors import Pooled, translate, translated
from .pool import Pool
from .reads import PostgresReads
from .url import PostgresAddress

# The names of a layout that is not the one that was opened.
MISSING = (e.UndefinedTable, e.UndefinedFunction, e.UndefinedColumn)
RETRIED = (psycopg.Error, Conflict, Unreachable, *RETRIED_IF_OPENED, *UNREADABLE)


class Tries:
    """The retries of one call. `repair` repairs unreadable records, and returns how many there were."""

    def __init__(
        self,
        address: PostgresAddress,
        pool: Pool,
        outages: Outages,
        patience_s: float,
        repair: Callable[[], int],
    ) -> None:
        self._address, self._pool, self._outages, self._repair = address, pool, outages, repair
        self._patience = RetryPeriod(outages, patience_s)
        self._count = 0
        self._is_repaired = self._is_checked = False

    def again(self, error: BaseException) -> None:
        """Return if the call should be repeated after this error, perhaps after a pause; else raise it."""
        if isinstance(error, UNREADABLE):
            self._repair_once(error)
            return
        if isinstance(error, MISSING) and not self._is_checked:
            self._is_checked, self._pool.was_ready = True, False
            return
        if isinstance(error, psycopg.Error):
            error = translate(error, self._address)
        if isinstance(error, Pooled):
            self._pool.behind_a_pooler()
        elif isinstance(error, Conflict):
            self._count += 1
            if self._count >= TRIES or self._patience.is_over:
                text = f"a batch was done {self._count} times, and each time something had changed ({error})"
                raise Contended(f"{self._address.shown}: {text}") from None
        elif isinstance(error, (Unreachable, *RETRIED_IF_OPENED)):
            if self._pool.is_closed or (isinstance(error, RETRIED_IF_OPENED) and not self._pool.was_ready):
                raise error from None
            self._pool.drop()
            self._patience.sleep(error)
        else:
            raise error from None

    def again_inside(self, error: BaseException) -> None:
        """Like `again`, inside a caller's own transaction, which cannot be restarted."""
        if isinstance(error, UNREADABLE):
            self._repair_once(error)
            return
        if isinstance(error, MISSING) and not self._is_checked:
            self._is_checked, self._pool.was_ready = True, False
            with translated(self._address), self._pool.connection():
                return
        # Another try would fail too: the other transaction waits for a lock that this one keeps, or the
        # snapshot stays old.
        is_hopeless = isinstance(error, e.DeadlockDetected | e.SerializationFailure)
        if isinstance(error, psycopg.Error):
            error = translate(error, self._address)
        if not isinstance(error, Conflict):
            raise error from None
        self._count += 1
        if is_hopeless or self._count >= TRIES or self._patience.is_over:
            raise Contended(
                f"{self._address.shown}: another transaction has changed or locked the same since yours "
                "began; roll it back, and try again"
            ) from None

    def _repair_once(self, error: Exception) -> None:
        if self._is_repaired or not self._repair():
            raise beyond_repair(self._address.shown, error) from error
        self._is_repaired = True

    def succeeded(self) -> None:
        """Note that the call succeeded, and so that an outage is over."""
        self._outages.log_recovery()


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
