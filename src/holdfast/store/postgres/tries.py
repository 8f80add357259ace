"""After which errors a call is retried, how often and for how long.

conflict with another batch     at once, up to TRIES times and until the time for retries has passed
a name that does not exist      once, after the layout of the schema was checked: it may have been migrated
there is a pooler               at once, without prepared statements
an unreadable record            once, after it was repaired
the server is down              with pauses, until the time for retries has passed
it is a replica                 likewise, if the store was open before
"""

from collections.abc import Callable

import psycopg
from psycopg import errors as e

from ...core.damage import UNREADABLE
from ...core.errors import Conflict, Contended
from ..common.outage import RETRIED_IF_OPENED, Outages, RetryPeriod, Unreachable
from ..common.repair import beyond_repair
from ..contract import TRIES
from .errors import Pooled, translate, translated
from .pool import Pool
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
