"""The renewer: one thread that extends the leases of claimed jobs, at a third of their length.

It holds jobs weakly: one that was dropped without an answer is renewed no more, and comes back by
itself. A handler that holds the interpreter lock starves this thread, which is why workers renew
from a process of their own.
"""

import heapq
import threading
import weakref

from ..core.errors import HoldfastError, LeaseLost, NotFound
from ..engine.connection import Connection
from ..engine.ticket import Ticket
from ..store.common.clock import monotonic_s
from .lease import Lease


class Renewer:
    """Extends leases until they are let go of."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._due: list[tuple[float, int, weakref.ref[Lease]]] = []
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def watch(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._push(lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="holdfast-renewer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Renew nothing any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _push(self, lease: Lease) -> None:
        self._count += 1
        heapq.heappush(self._due, (monotonic_s() + lease.lease_ms / 3000, self._count, weakref.ref(lease)))

    def _loop(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                sleep = self._due[0][0] - monotonic_s() if self._due else None
                if sleep is None or sleep > 0:
                    self._changed.wait(sleep)
                    continue
                leases = self._take_due()
            self._extend(leases)
            # Kept here while waiting, a dropped one would live on and be renewed for ever.
            del leases

    def _take_due(self) -> list[Lease]:
        leases = []
        while self._due and self._due[0][0] <= monotonic_s():
            lease = heapq.heappop(self._due)[2]()
            if lease is not None and lease.is_open:
                leases.append(lease)
        return leases

    def _extend(self, leases: list[Lease]) -> None:
        """All that are due in one transaction."""
        tickets = [Ticket(lease.extension()) for lease in leases]
        try:
            for ticket in tickets:
                self._line.submit(ticket)
            replies = [ticket.take() for ticket in tickets]
        except HoldfastError as error:
            replies = [error] * len(tickets)
        for lease, reply in zip(leases, replies, strict=True):
            if isinstance(reply, LeaseLost | NotFound):
                lease.lose(reply)
                continue
            if not isinstance(reply, BaseException):
                lease.renewed(reply)
            # A store that could not be reached now may be reached before the lease ends.
            with self._changed:
                self._push(lease)
