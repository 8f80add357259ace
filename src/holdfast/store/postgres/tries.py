"""Which errors make a call be tried again, how often and for how long.

another batch was faster        at once, up to TRIES times
a pooler stands between         at once, with nothing prepared
a record cannot be read         once, after it was mended
the server went away            after a nap, until the caller's patience is over
"""

from collections.abc import Callable

import psycopg

from ...core.damage import UNREADABLE
from ...core.errors import Conflict, Contended, StoreCorrupt
from ..common.outage import Lost, Outages, RetryPeriod, UnknownHost
from .errors import Pooled, translate
from .pool import Pool
from .url import Address

# How often a batch is done again when what it expected has changed.
TRIES = 100
RETRIED = (psycopg.Error, Conflict, Lost, UnknownHost, *UNREADABLE)


class Tries:
    """The tries of one call. `repair` makes records readable again, and returns how many it changed."""

    def __init__(
        self, address: Address, pool: Pool, outages: Outages, patience_s: float, repair: Callable[[], int]
    ) -> None:
        self._address, self._pool, self._outages, self._repair = address, pool, outages, repair
        self._patience = RetryPeriod(outages, patience_s)
        self._count = 0
        self._is_mended = False

    def again(self, error: BaseException) -> None:
        """Return when the call should be made again after this error; raise what the caller is to know."""
        if isinstance(error, UNREADABLE):
            self._mend_once(error)
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
        elif isinstance(error, Lost | UnknownHost):
            if self._pool.is_closed or (isinstance(error, UnknownHost) and not self._pool.was_ready):
                raise error from None
            self._pool.drop()
            self._patience.sleep(error)
        else:
            raise error from None

    def again_inside(self, error: BaseException) -> None:
        """The same inside a caller's own transaction, which cannot be begun anew."""
        if isinstance(error, UNREADABLE):
            self._mend_once(error)
            return
        if isinstance(error, psycopg.Error):
            error = translate(error, self._address)
        if not isinstance(error, Conflict):
            raise error from None
        self._count += 1
        if self._count >= TRIES:
            raise Contended(
                f"{self._address.shown}: another transaction has changed the same since yours began; "
                "roll it back, and try again"
            ) from None

    def _mend_once(self, error: BaseException) -> None:
        if self._is_mended or not self._repair():
            raise StoreCorrupt(
                f"{self._address.shown} is damaged: a record that is not a job's cannot be read "
                f"({type(error).__name__}); restore a backup"
            ) from error
        self._is_mended = True

    def over(self) -> None:
        """The call was made after all."""
        self._outages.log_recovery()
