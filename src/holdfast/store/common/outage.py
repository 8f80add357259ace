"""Waiting for a server that is away: how often it is tried, for how long, and one log line about it.

Lost           the server is down, starts, or has no connection left: the call is tried again
UnknownHost    no server has that name: tried again only if the store was open before
"""

import logging
from time import sleep

from ...core.errors import StoreError, Unavailable
from .clock import monotonic_s

FIRST_NAP_S, LONGEST_NAP_S = 0.02, 0.5
# What the resolver says of a name that does not exist. "Temporary failure" is not among them.
UNKNOWN_HOST = ("Name or service not known", "nodename nor servname", "No address associated")

log = logging.getLogger("holdfast")


class Lost(Unavailable):
    """The connection, or the server behind it, is gone. The caller may try again on another."""


class UnknownHost(StoreError):
    """The host name of the address does not exist."""


class Outages:
    """The outages of one server; each is logged once, however many threads wait."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._is_told = False

    def tell(self, error: StoreError, patience_s: float) -> None:
        """Log that calls wait, unless that was said of this outage."""
        if not self._is_told:
            self._is_told = True
            log.warning("%s; trying again for %g s", error, patience_s)

    def over(self) -> None:
        """Log that the server answers again, if it was said to be away."""
        if self._is_told:
            self._is_told = False
            log.warning("%s answers again", self._shown)


class Patience:
    """How long one call is tried again."""

    def __init__(self, outages: Outages, patience_s: float) -> None:
        self._outages, self._patience_s = outages, patience_s
        self._until_s = monotonic_s() + patience_s
        self._nap_s = FIRST_NAP_S

    @property
    def is_over(self) -> bool:
        """Whether it was tried for long enough."""
        return monotonic_s() >= self._until_s

    def nap(self, error: StoreError) -> None:
        """Sleep until the next try; raise the error when there is none."""
        if monotonic_s() + self._nap_s >= self._until_s:
            raise Lost(str(error)) from None
        if self._nap_s >= LONGEST_NAP_S:
            # Not of a connection that was cut: the next try succeeds.
            self._outages.tell(error, self._patience_s)
        sleep(self._nap_s)
        self._nap_s = min(self._nap_s * 2, LONGEST_NAP_S)
