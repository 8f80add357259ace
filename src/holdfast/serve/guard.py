"""Authentication and rate limits for all servers, and what an error tells their clients.

    a secret   ──▶ the token of its name, read at most once a second ──▶ Grant, or Unauthenticated
    no secret  ──▶ the server listens on loopback only ──▶ everything; else Unauthenticated
    too many requests in a second, of one token or address ──▶ RateLimited
    too many wrong secrets in a minute, from one address   ──▶ RateLimited

While the store is unreachable, a token that was read in the last `GRACE_S` is still valid.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import TypeVar
from urllib.parse import unquote

import msgspec

from ..core import errors as e
from ..core.access import EVERYTHING, Grant
from ..core.errors import RateLimited, StoreError, Unauthenticated, Unavailable
from ..core.queries import FindToken, GetTime
from ..core.token import FRESH_S, Token, grant_of, name_in
from ..engine.connection import OWN_THREADS, Connection
from ..store.common.clock import monotonic_s
from . import asking

log = logging.getLogger("holdfast.serve")
E = TypeVar("E", bound=BaseException)

GRACE_S = 30.0
# How long a client whose token was valid waits for the store to say that it still is.
LOOKUP_S = 1.0
# Wrong secrets that an address may send in a minute. A client whose token is known is served all the same.
WRONG_SECRETS, WRONG_SECRETS_S = 20, 60.0
# Names that are remembered, known or not; and clients whose rate is.
REMEMBERED = 10_000
# How many tokens are looked up at once. Of many requests with the same token, the first look it up for all.
LOOKUPS = OWN_THREADS[FindToken]
# The same words for a wrong secret, an unknown name and a token that has expired: who guesses learns nothing.
REFUSED = "the token is unknown, revoked or expired"
MISSING = "a token is needed; `holdfast token create` makes one"

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
        no_code: str = "",
        rate: float = 0.0,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._connection, self._clock = connection, clock
        # Whether clients over loopback need a token too.
        self.always = always
        # Why clients of other machines may upload no handlers that are code; "": they may.
        self.no_code = no_code
        self._rates = Rates(rate) if rate > 0 else None
        self._wrong = Rates(WRONG_SECRETS / WRONG_SECRETS_S, burst_s=WRONG_SECRETS_S)
        self._known: dict[str, Known] = {}
        self._lookups = asyncio.Semaphore(LOOKUPS)
        # By name the lookup that is under way.
        self._reading: dict[str, asyncio.Future[Known]] = {}

    async def admit(self, secret: str | None, *, loopback: bool, peer: str = "") -> Grant:
        """What a client may do; raises `Unauthenticated` or `RateLimited`.

        `loopback`: the server listens on loopback only. `peer` is the address of the client.
        """
        grant = await self.grant(secret, loopback=loopback, peer=peer)
        self.spend(grant, loopback=loopback, peer=peer)
        return grant

    async def grant(self, secret: str | None, *, loopback: bool, peer: str = "") -> Grant:
        """What a client may do now, without counting a request.

        Raises `Unauthenticated`, or `RateLimited` after many wrong secrets from the address `peer`.
        """
        if not secret:
            if loopback and not self.always:
                return EVERYTHING
            raise Unauthenticated(MISSING)
        name = name_in(secret)
        if name is not None:
            if peer and name not in self._known:
                # The store is not asked about every guess.
                self._wrong.check(_network_of(peer), self._clock())
            token, now_ms = await self.find_token(name)
            if (grant := grant_of(token, secret, now_ms=now_ms)) is not None:
                return self.restrict(grant, loopback=loopback)
        if peer:
            self._wrong.spend(_network_of(peer), self._clock())
            log.warning("refused a wrong token from %s, of the name %s", peer, name or "(none)")
        raise Unauthenticated(REFUSED)

    def restrict(self, grant: Grant, *, loopback: bool) -> Grant:
        """The same grant, without code where clients of other machines may not upload any."""
        is_local = loopback and not self.always
        return grant if is_local or not self.no_code else msgspec.structs.replace(grant, no_code=self.no_code)

    async def find_token(self, name: str) -> tuple[Token | None, int]:
        """The token of a name, or None, as of at most `FRESH_S` ago; and the time by the store's clock."""
        known = self._known.get(name)
        if known is None or self._clock() - known.read_s >= FRESH_S:
            known = await self._renew(name, known)
        return known.token, known.now_ms + int((self._clock() - known.read_s) * 1000)

    def spend(self, grant: Grant, *, loopback: bool, peer: str) -> None:
        """Count a request of a client; raises `RateLimited`."""
        if self._rates is not None and (grant.name or not loopback):
            self._rates.spend(grant.name or _network_of(peer), self._clock())

    async def _renew(self, name: str, known: Known | None) -> Known:
        """The token of a name as it is; as it was, if the store does not answer soon and that still holds."""
        reading = self._reading.get(name)
        if reading is None:
            reading = self._reading[name] = asyncio.ensure_future(self._read(name))
            reading.add_done_callback(lambda done: self._end_reading(name, done))
        has_grace = known is not None and self._clock() - known.read_s < GRACE_S
        await asyncio.wait((reading,), timeout=LOOKUP_S if has_grace else asking.ANSWER_S)
        if reading.done():
            return reading.result()
        if known is None or not has_grace:
            raise Unavailable(f"the store has not answered for {asking.ANSWER_S:g} s")
        return known

    def _end_reading(self, name: str, done: "asyncio.Future[Known]") -> None:
        self._reading.pop(name, None)
        if not done.cancelled():
            # Its clients may have gone on without it.
            done.exception()

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
                    raise
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
    """A rate limit for each client: events per second, with a burst of `burst_s` seconds."""

    def __init__(self, per_s: float, *, burst_s: float = 1.0) -> None:
        self._per_s, self._burst_s = per_s, max(burst_s, 1 / per_s)
        # When a client's events so far would be over at that rate.
        self._until_s: dict[str, float] = {}

    def check(self, client: str, now_s: float) -> float:
        """Raise `RateLimited` if one more would be too many; until when all would last at the rate."""
        until_s = max(self._until_s.get(client, 0.0), now_s) + 1 / self._per_s
        if (over_s := until_s - now_s - self._burst_s) > 1e-9:
            raise RateLimited(over_s)
        return until_s

    def spend(self, client: str, now_s: float) -> None:
        """Count one; raises `RateLimited`."""
        until_s = self.check(client, now_s)
        if len(self._until_s) >= REMEMBERED:
            self._until_s = {who: at for who, at in self._until_s.items() if at > now_s}
        self._until_s[client] = until_s


def _network_of(peer: str) -> str:
    """The address of a client, as a rate counts it: of IPv6 the /64, which one client has to itself."""
    try:
        address = ip_address(unquote(peer.removeprefix("ipv4:").removeprefix("ipv6:")).strip("[]"))
    except ValueError:
        return peer
    return str(int(address) >> 64) if isinstance(address, IPv6Address) else str(address)


# What a client gets for an error of the store, whose own text has the address. The first that fits.
_STORE_TEXTS: tuple[tuple[type[StoreError], str], ...] = (
    (e.Unsettled, "the store did not answer in a commit: the command may have been committed"),
    (e.Contended, "the store was too busy to commit this; nothing was written; try again"),
    (Unavailable, "the store is unavailable; try again"),
    (e.StoreFull, "the store is full"),
    (e.StoreCorrupt, "a record in the store is damaged"),
    (StoreError, "the store cannot be used"),
)
# How long an error with the same text is the same incident: an outage is not logged with every request.
INCIDENT_S = 60.0


class Incidents:
    """Errors of the store that clients got: each has a number, by which the log tells the rest."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        # By text: the number, and when it was logged.
        self._logged: dict[str, tuple[str, float]] = {}

    def report(self, error: E) -> E | e.HoldfastError:
        """Log an error of the store; what clients may see of it: its kind, and the number.

        Other errors are returned as they are.
        """
        if not isinstance(error, StoreError):
            return error
        text = next(text for kind, text in _STORE_TEXTS if isinstance(error, kind))
        return e.error_of(error.code, f"{text} (incident {self._number_of(error)})")

    def _number_of(self, error: StoreError) -> str:
        number, logged_s = self._logged.get(str(error), ("", 0.0))
        if not number or self._clock() - logged_s >= INCIDENT_S:
            number = secrets.token_hex(4)
            if len(self._logged) >= REMEMBERED:
                self._logged.clear()
            self._logged[str(error)] = number, self._clock()
            log.error("incident %s: %s: %s", number, type(error).__name__, error)
        return number


incidents = Incidents()
