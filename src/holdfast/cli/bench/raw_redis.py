"""The raw limit of Redis: the bare driver pushing, moving and removing the same job.

One list of jobs and one of those in process, as plain queues on Redis have them; one job or 1,000 in a round
trip, packed and parsed by hiredis. The server is the one that was named, with the durability that it has.
"""

import re
import secrets
import select
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...core.errors import BadInput
from ...store.common.clock import monotonic_s
from ...store.redis.connection import Server, server_of
from ...store.redis.keys import Keys
from ...store.redis.open import look
from ...store.redis.report import kept
from ...store.redis.url import Address, parse

# So many keys are looked for, and removed, at once.
SWEPT = 1_000
# Whose command a line of MONITOR tells of; those of scripts are nobody's.
WHOSE = re.compile(rb"\[\d+ (\S+:\d+)\]")


class RedisRaw:
    """Two lists."""

    def __init__(self, server: Server, base: bytes) -> None:
        self._server = server
        self._waiting, self._running = base + b"waiting", base + b"running"

    def insert(self, first: int, count: int, by: int, data: str) -> None:
        """Push jobs, so many in a round trip."""
        for start in range(first, first + count, by):
            jobs = [b"%d %s" % (n, data.encode()) for n in range(start, start + by)]
            self._server.call_many([(b"LPUSH", self._waiting, job) for job in jobs])

    def drain(self, by: int) -> int:
        """Move all jobs to those in process and remove them, two round trips for each batch; how many."""
        total = 0
        while True:
            moved = self._server.call_many([(b"RPOPLPUSH", self._waiting, self._running)] * by)
            jobs = [job for job in moved if job is not None]
            if not jobs:
                return total
            self._server.call_many([(b"LREM", self._running, -1, job) for job in jobs])
            total += len(jobs)


class RedisSide:
    """Stores under prefixes of their own, on the server that was named."""

    def __init__(self, url: str | None) -> None:
        if url is None:
            raise BadInput("store", url, needed="the address of a Redis server")
        self._url = url
        self._address = parse(url)

    def settings(self) -> str:
        """The server, and what it was told."""
        with self._server(self._address) as (server, keys):
            info = look(server, keys)
        return f"{info.named}, log: {kept(info)}, archive on, 100 bytes of data"

    @contextmanager
    def store(self) -> Iterator[str]:
        """A store under a prefix of its own."""
        prefix = f"bench-{secrets.token_hex(6)}"
        bare, _, query = self._url.partition("?")
        others = [part for part in query.split("&") if part and not part.startswith("prefix=")]
        url = f"{bare}?{'&'.join([f'prefix={prefix}', *others])}"
        try:
            yield url
        finally:
            with self._server(parse(url)) as (server, keys):
                _swept(server, keys.base)

    @contextmanager
    def raw(self) -> Iterator[RedisRaw]:
        """Bare lists beside it."""
        address = self._address._replace(prefix=f"bench-raw-{secrets.token_hex(6)}")
        with self._server(address) as (server, keys):
            try:
                yield RedisRaw(server, keys.base)
            finally:
                _swept(server, keys.base)

    def slow(self) -> AbstractContextManager[None] | None:
        """Nobody stands between a server and its disk."""
        return None

    def written(self, url: str) -> object:
        """The number of its last commit."""
        with self._server(parse(url)) as (server, keys):
            return server.call(b"GET", keys.tick)

    def questions(self, url: str, seconds: float) -> int:
        """How many commands the users of a store send in a while: whoever names one of its keys meanwhile."""
        until_s, lines = monotonic_s() + seconds, []
        with self._server(parse(url)) as (server, keys):
            connection = server.open()
            try:
                connection.exchange([(b"MONITOR",)])
                while (left_s := until_s - monotonic_s()) > 0:
                    if select.select([connection.socket], [], [], left_s)[0]:
                        lines += connection.read_pushed()
            finally:
                connection.close()
        told = [(found[1], line) for line in lines if (found := WHOSE.search(line))]
        users = {whose for whose, line in told if keys.base in line}
        return sum(whose in users for whose, _ in told)

    @contextmanager
    def _server(self, address: Address) -> Iterator[tuple[Server, Keys]]:
        keys = Keys(address.prefix)
        server = server_of(address, keys.base)
        try:
            yield server, keys
        finally:
            server.close()


def _swept(server: Server, base: bytes) -> None:
    """Remove all keys that begin so."""
    cursor: Any = b"0"
    while True:
        cursor, found = server.call(b"SCAN", cursor, b"MATCH", base + b"*", b"COUNT", SWEPT)
        if found:
            server.call_many([(b"UNLINK", key) for key in found])
        if cursor == b"0":
            return
