"""Connections to PostgreSQL: made when needed, kept for the next, left behind by a fork.

A connection must not live through a fork: parent and child would speak into one socket. The child leaves
what it finds where it is, without a word to the server, and makes its own.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ..core.errors import Closed, Unavailable
from .clock import monotonic_s
from .postgres_link import PsycopgLink
from .postgres_url import Address

# What a forked child found: kept, because the end of such a connection would be told to the server.
_left_behind: list[object] = []


class Pool:
    """At most so many connections; who finds none free waits for one."""

    def __init__(self, address: Address, prepare: Callable[[PsycopgLink], None], patience_s: float) -> None:
        self._address, self._prepare, self._patience_s = address, prepare, patience_s
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._free: list[PsycopgLink] = []
        self._used = 0
        self._returned = threading.Condition()
        self._ready = False
        self._readying = threading.Lock()
        self.prepares = self._address.prepare

    @contextmanager
    def link(self) -> Iterator[PsycopgLink]:
        """A connection for a while, in no transaction; one that is left in any other state is closed."""
        link = self._take()
        try:
            yield link
        finally:
            self._give(link)

    def connect(self) -> PsycopgLink:
        """A connection that is nobody else's, for as long as its owner likes."""
        connection = psycopg.connect(
            **self._address.parameters,
            autocommit=True,
            client_encoding="UTF8",
            prepare_threshold=5 if self.prepares else None,
        )
        return PsycopgLink(connection)

    def no_more_prepared(self) -> None:
        """A pooler stands between: what is prepared on one connection may be asked for on another."""
        self.prepares = False
        self.drop()

    def drop(self) -> None:
        """Close what is free: after a restart of the server all of it is dead."""
        with self._returned:
            links, self._free = self._free, []
        for link in links:
            link.close()

    def close(self) -> None:
        """Close what is free now, and the rest when it comes back."""
        self._closed = True
        if self._pid == os.getpid():
            self.drop()
            with self._returned:
                self._returned.notify_all()

    def _take(self) -> PsycopgLink:
        if self._pid != os.getpid():
            _left_behind.append(self._free)
            self._begin()
        self._wait_for_room()
        try:
            with self._returned:
                while self._free:
                    link = self._free.pop()
                    if link.is_open:
                        return link
            link = self.connect()
            try:
                self._make_ready(link)
            except BaseException:
                link.close()
                raise
            return link
        except BaseException:
            self._leave()
            raise

    def _wait_for_room(self) -> None:
        until_s = monotonic_s() + self._patience_s
        with self._returned:
            while self._used >= self._address.pool and not self._closed:
                if not self._returned.wait(max(until_s - monotonic_s(), 0.0)) and monotonic_s() >= until_s:
                    text = f"all {self._address.pool} connections of this process are in use"
                    raise Unavailable(
                        f"{self._address.shown}: {text}; try again, or allow more with ?pool=NUMBER"
                    )
            if self._closed:
                raise Closed(f"the store {self._address.shown} was closed; open it again")
            self._used += 1

    def _make_ready(self, link: PsycopgLink) -> None:
        if self._ready:
            return
        with self._readying:
            if not self._ready:
                self._prepare(link)
                self._ready = True

    def _leave(self) -> None:
        with self._returned:
            self._used -= 1
            self._returned.notify()

    def _give(self, link: PsycopgLink) -> None:
        if self._pid != os.getpid():
            _left_behind.append(link)
            return
        keep = link.is_open and not link.in_transaction and not self._closed
        if keep and (link.connection.prepare_threshold is not None) == self.prepares:
            with self._returned:
                self._free.append(link)
        else:
            link.close()
        self._leave()
