"""Retries while a server is unavailable: how often, for how long, and one log line per outage.

Unreachable    the server is down, starting or out of connections: the call is retried
UnknownHost    the host name does not exist: retried only if the store was open before
ReadOnly       the server is a replica: likewise, as another server may be about to take over
"""

import logging
from math import inf
from time import sleep

from ...core.errors import StoreError, Unavailable, Unsettled
from .clock import monotonic_s

FIRST_NAP_S, LONGEST_NAP_S = 0.02, 0.5
# How long calls are retried when their store will be closed.
CLOSING_S = 3.0
# Resolver messages for a name that does not exist. "Temporary failure" is not one of them.
UNKNOWN_HOST = ("Name or service not known", "nodename nor servname", "No address associated")
# TLS that no other try makes right: a certificate that is refused, and a server without TLS.
TLS_FAULTS = (
    "CERTIFICATE_VERIFY_FAILED",
    "certificate verify failed",
    "WRONG_VERSION_NUMBER",
    "does not support SSL",
)

log = logging.getLogger("holdfast")


class Unreachable(Unavailable):
    """The connection was lost, or the server is down. The caller may retry on another connection."""


class UnknownHost(StoreError):
    """The host name of the address does not exist."""


class ReadOnly(StoreError):
    """The server cannot be written: it is a replica, or has become one."""


# Retried only if the store was open before.
RETRIED_IF_OPENED = (UnknownHost, ReadOnly)


class Outages:
    """Logs each outage of one server once, however many threads wait."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._is_logged = False
        # When all calls give up because the store will be closed.
        self.until_s = inf

    def end_soon(self) -> None:
        """Let all calls give up in a few seconds."""
        self.until_s = monotonic_s() + CLOSING_S

    def log_outage(self, error: Exception, patience_s: float) -> None:
        """Log that calls are retried, once per outage."""
        if not self._is_logged:
            self._is_logged = True
            log.warning("trying again for %g s: %s", patience_s, error)

    def log_recovery(self) -> None:
        """Log that the server answers again, if an outage was logged."""
        if self._is_logged:
            self._is_logged = False
            log.warning("%s answers again", self._shown)


class RetryPeriod:
    """How long one call is retried."""

    def __init__(self, outages: Outages, patience_s: float) -> None:
        self._outages, self._patience_s = outages, patience_s
        self._until_s = monotonic_s() + patience_s
        self._nap_s = FIRST_NAP_S

    @property
    def is_over(self) -> bool:
        """Whether the time for retries has passed."""
        return monotonic_s() >= self._end_s

    @property
    def _end_s(self) -> float:
        return min(self._until_s, self._outages.until_s)

    def sleep(self, error: Exception) -> None:
        """Sleep until the next retry; raise the error if the time for retries has passed."""
        if not self.sleep_if_time_is_left(error):
            raise Unreachable(str(error)) from None

    def sleep_if_time_is_left(self, error: Exception) -> bool:
        """Sleep until the next retry; return False at once if the time for retries has passed."""
        if monotonic_s() + self._nap_s >= self._end_s:
            return False
        if self._nap_s >= LONGEST_NAP_S:
            # Not before: after a mere disconnect the next retry succeeds.
            self._outages.log_outage(error, self._patience_s)
        sleep(self._nap_s)
        self._nap_s = min(self._nap_s * 2, LONGEST_NAP_S)
        return True


def unsettled(shown: str) -> Unsettled:
    """The error of a batch whose commit got no answer from a server that then stayed away."""
    return Unsettled(
        f"{shown} went away during a commit, and cannot be asked what became of it: "
        "what was asked for may have been done, or not; look before you ask again"
    )
