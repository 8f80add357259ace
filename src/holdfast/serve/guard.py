"""Authentication and rate limits for all servers.

    a secret   ──▶ the token of its name, read at most once a second ──▶ Grant, or Unauthenticated
    no secret  ──▶ the server listens on loopback only ──▶ everything; else Unauthenticated
    too many requests in a second, of one token or address ──▶ RateLimited

While the store is unreachable, a token that was read in the last `GRACE_S` is still valid.
"""

import asyncio
from collections.abc import Callable

import msgspec

from ..core.access import EVERYTHING, Grant
from ..core.errors import RateLimited, StoreError, Unauthenticated, Unavailable
from ..core.queries import FindToken, GetTime
from ..core.token import FRESH_S, Token, grant_of, name_in
from ..engine.connection import OWN_THREADS, Connection
from ..store.common.clock import monotonic_s

GRACE_S = 30.0
# Names that are remembered, known or not; and clients whose rate is.
REMEMBERED = 10_000
# How many tokens are looked up at once. Of many requests with the same token, the first look it up for all.
LOOKUPS = OWN_THREADS[FindToken]
# The same words for a wrong secret, an unknown name and a token that has expired: who guesses learns nothing.
REFUSED = "the token is unknown, revoked or expired"
MISSING = "a token is needed; `holdfast token create` makes one"
# Not why: the client may be anyone, and the error of a store has its address.
UNREADABLE = "the tokens cannot be read, because the store cannot be used now"


LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]", "::1"}


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine: a web page that a browser shows has another host."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() in LOOPBACK_NAMES


class Known(msgspec.Struct, frozen=True):
    """What was read of a token's name, and when, by the store's clock and by ours."""

    token: Token | None
    now_ms: int
    read_s: float


class Guard:
    """Knows the clients of one server. `rate` is how many requests a client may make in a second; 0: any."""

    def __init__(
        self,
        connection: Connection,
        *,
        always: bool = False,
        rate: float = 0.0,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._connection, self._clock = connection, clock
        # Whether clients over loopback need a token too.
        self.always = always
        self._rates = Rates(rate) if rate > 0 else None
        self._known: dict[str, Known] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def admit(self, secret: str | None, *, loopback: bool, peer: str = "") -> Grant:
        """What a client may do; raises `Unauthenticated` or `RateLimited`.

        `loopback`: the server listens on loopback only. `peer` is the address of the client.
        """
        grant = await self.grant(secret, loopback=loopback)
        self.spend(grant, loopback=loopback, peer=peer)
        return grant

    async def grant(self, secret: str | None, *, loopback: bool) -> Grant:
        """What a client may do now, without counting a request; raises `Unauthenticated`."""
        if not secret:
            if loopback and not self.always:
                return EVERYTHING
            raise Unauthenticated(MISSING)
        name = name_in(secret)
        if name is None:
            raise Unauthenticated(REFUSED)
        token, now_ms = await self.find_token(name)
        grant = grant_of(token, secret, now_ms=now_ms)
        if grant is None:
            raise Unauthenticated(REFUSED)
        return grant

    async def find_token(self, name: str) -> tuple[Token | None, int]:
        """The token of a name, or None, as of at most `FRESH_S` ago; and the time by the store's clock."""
        known = self._known.get(name)
        if known is None or self._clock() - known.read_s >= FRESH_S:
            known = await self._read(name)
        return known.token, known.now_ms + int((self._clock() - known.read_s) * 1000)

    def spend(self, grant: Grant, *, loopback: bool, peer: str) -> None:
        """Count a request of a client; raises `RateLimited`."""
        if self._rates is not None and (grant.name or not loopback):
            self._rates.spend(grant.name or peer, self._clock())

    async def _read(self, name: str) -> Known:
        async with self._lookups:
            known = self._known.get(name)
            if known is not None and self._clock() - known.read_s < FRESH_S:
                # Another request has read it meanwhile.
                return known
            try:
                found = await self._look_up(name)
            except StoreError:
                if known is None or self._clock() - known.read_s >= GRACE_S:
                    raise Unavailable(UNREADABLE) from None
                return known
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[name] = found
        return found

    async def _look_up(self, name: str) -> Known:
        read_s = self._clock()
        token: Token | None = await self._connection.ask_async(FindToken(name=name))
        return Known(token, await self._connection.ask_async(GetTime()), read_s)


class Rates:
    """A rate limit for each client: requests per second, with a burst of one second."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        # When a client's requests so far would be over at that rate.
        self._until_s: dict[str, float] = {}

    def spend(self, client: str, now_s: float) -> None:
        """Count one request; raises `RateLimited`."""
        until_s = max(self._until_s.get(client, 0.0), now_s) + 1 / self._per_s
        over_s = until_s - now_s - max(1.0, 1 / self._per_s)
        if over_s > 1e-9:
            raise RateLimited(over_s)
        if len(self._until_s) >= REMEMBERED:
            self._until_s = {who: at for who, at in self._until_s.items() if at > now_s}
        self._until_s[client] = until_s
