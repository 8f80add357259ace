"""Telling others that something changed, beside the commits: nobody's reply waits for it.

    commit ─▶ reply          a transaction that tells by itself would hold a lock of the whole server until
       └──▶ teller ─▶ NOTIFY     its commit is on the disk, and all who tell would commit one after the other

It is a hint. Many in a row become one, and the last of them is told before the store is closed.
"""

import os
import threading

from ..core.errors import Conflict, HoldfastError
from .postgres_faults import faults
from .postgres_pool import Pool
from .postgres_sql import channel
from .postgres_url import Address

# Nothing of it is to be kept: neither who tells waits for the disk, nor those who tell after him.
# What a word ends in that says only that something has ended, or a log has moved.
END = "."
_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
# Who was told a moment ago is at it: so long nobody is told again, for each that wanted it since the last
# time, and at most. Who adds now and then is heard at once, who does nothing else a hundred times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.01


class Teller:
    """One store's voice."""

    def __init__(self, address: Address, pool: Pool, name: str) -> None:
        self._address, self._pool = address, pool
        # By which its own listener knows it.
        self._name = name
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._wanted = threading.Event()
        # How often since the last time, about; and whether any of it may be something to claim.
        self._times = 0
        self._brings = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, *, ends: bool = False) -> None:
        """Have others told soon; `ends`: only those that heed ends."""
        if self._pid != os.getpid():
            # A fork's child has no thread.
            self._begin()
        self._times += 1
        if not ends:
            self._brings.set()
        if self._wanted.is_set() or self._closed.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None and not self._closed.is_set():
                    self._thread = threading.Thread(target=self._loop, name="holdfast-teller", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Tell what is left to tell, and end."""
        with self._lock:
            self._closed.set()
        if self._pid == os.getpid() and self._thread is not None:
            left = self._wanted.is_set()
            self._wanted.set()
            self._thread.join()
            if left:
                self._say()

    def _loop(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            times, self._times = self._times, 0
            self._say()
            self._closed.wait(min(PAUSE_S * times, LONGEST_PAUSE_S))

    def _say(self) -> None:
        try:
            word = self._name + END
            if self._brings.is_set():
                # Not otherwise: what comes just now would be taken away untold.
                self._brings.clear()
                word = self._name
            with faults(self._address), self._pool.link() as link:
                link.value(_NOTIFY, (channel(self._address.schema), word))
        except (HoldfastError, Conflict):
            # A hint that is lost; they look by themselves.
            pass
