"""Sign-in: a signed cookie instead of the token's secret, and the token of forms (CSRF). See decision 21.

    sign-in        name~expires~mac, the mac of name, expires and the token's hash under the server's key
    each request   the token of that name is read again: a revoked, replaced or expired one is refused
    each form      the mac of the session, which a page of another site cannot know
    sign-out       a log in the store has the session until it would expire: a copied cookie is refused

The key is made by each server process, unless it is configured: then servers share their sessions.
"""

import hmac
import secrets
from hashlib import sha256

import msgspec

from ...core import commands as c
from ...core import queries as q
from ...core.access import SESSIONS_LOG
from ...core.bounds import HOUR_MS, LOG_PAGE_ITEMS
from ...core.errors import StoreError
from ...core.indexed import LogItem
from ...core.token import FRESH_S, is_token_name
from ...store.common.clock import monotonic_s
from ..asking import Asking
from ..http.problems import Refusal

COOKIE = "holdfast_session"
SESSION_MS = 12 * HOUR_MS
# The most actions of a token in the time that a session lasts. Programs use /v1, which has no such limit.
MOST_ACTIONS = 1_000
# Old entries of the audit log are looked for with the first action of an hour.
TRIM_EVERY_MS = HOUR_MS
# The form token of clients that need no session: on loopback, or with a token in the header.
NO_SESSION = "-"
# Half of the mac of a form: 128 bits.
FORM_BYTES = 16


class SignIn(msgspec.Struct, frozen=True):
    """A session as its cookie says; it holds only if `Sessions.holds`."""

    name: str
    expires_ms: int
    mac: str

    @property
    def value(self) -> str:
        """The value of the cookie."""
        return f"{self.name}~{self.expires_ms}~{self.mac}"


class Sessions:
    """Makes and checks cookies and form tokens."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._last_ms = 0

    def open(self, name: str, token_hash: str, *, now_ms: int) -> SignIn:
        """A session for the token of that name."""
        # No two end in the same millisecond: a sign-out must end one session, not two.
        self._last_ms = expires_ms = max(now_ms + SESSION_MS, self._last_ms + 1)
        return SignIn(name, expires_ms, self._mac("session", name, str(expires_ms), token_hash))

    def holds(self, session: SignIn, token_hash: str, *, now_ms: int) -> bool:
        """Whether a session is ours, of the token as it is now, and not over."""
        mac = self._mac("session", session.name, str(session.expires_ms), token_hash)
        said = session.mac.encode(errors="replace")
        return hmac.compare_digest(mac.encode(), said) and now_ms < session.expires_ms

    def form_token(self, session: SignIn | None, grant_name: str) -> str:
        """What each form of a session must contain: a random mask, and what is wanted under that mask.

        It differs from page to page, so that the length of compressed pages tells nothing about it.
        """
        mask = secrets.token_bytes(FORM_BYTES)
        return (mask + _masked(mask, self._form_mac(session, grant_name))).hex()

    def is_form_token(self, said: str, session: SignIn | None, grant_name: str) -> bool:
        """Whether a form was made for this session."""
        try:
            raw = bytes.fromhex(said)
        except ValueError:
            return False
        mask, masked = raw[:FORM_BYTES], raw[FORM_BYTES:]
        if len(raw) != 2 * FORM_BYTES:
            return False
        return hmac.compare_digest(_masked(mask, masked), self._form_mac(session, grant_name))

    def _form_mac(self, session: SignIn | None, grant_name: str) -> bytes:
        mac = self._mac("form", NO_SESSION if session is None else session.value, grant_name)
        return bytes.fromhex(mac)[:FORM_BYTES]

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._key, msgspec.json.encode(parts), sha256).hexdigest()


def _masked(mask: bytes, raw: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(mask, raw, strict=True))


def read_session(value: str | None) -> SignIn | None:
    """The session that a cookie tells of; None: there is none."""
    parts = (value or "").split("~")
    if len(parts) != 3 or not is_token_name(parts[0]):
        return None
    if not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 15:
        return None
    return SignIn(parts[0], int(parts[1]), parts[2])


class EndedSessions:
    """The sessions that a sign-out has ended before their time, on any server of the store."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        # By index in the log: when a session expires, and the hash of its cookie.
        self._ended: dict[int, tuple[int, str]] = {}
        self._hashes: set[str] = set()
        self._read_to, self._read_s = 0, -FRESH_S

    async def end(self, session: SignIn, *, now_ms: int) -> None:
        """End a session on all servers, and forget those that have expired."""
        entry = (session.expires_ms, _hash_of(session))
        self._hashes.add(entry[1])
        item = LogItem(data=msgspec.json.encode(entry).decode())
        await self._asking.ask_async(c.Append(log=SESSIONS_LOG, items=(item,)))
        await self._read()
        expired = 0
        for at, (expires_ms, hashed) in list(self._ended.items()):
            if expires_ms > now_ms:
                break
            expired = at
            self._hashes.discard(hashed)
            del self._ended[at]
        if expired:
            await self._asking.ask_async(c.TrimLog(log=SESSIONS_LOG, up_to=expired))

    async def has(self, session: SignIn) -> bool:
        """Whether a session was ended, as of at most `FRESH_S` ago; as of before while the store is away."""
        if monotonic_s() - self._read_s >= FRESH_S:
            try:
                await self._read()
            except StoreError:
                pass
        return _hash_of(session) in self._hashes

    async def _read(self) -> None:
        self._read_s = monotonic_s()
        while True:
            asked = q.ReadLog(log=SESSIONS_LOG, after=self._read_to, limit=LOG_PAGE_ITEMS)
            page: q.LogPage = await self._asking.ask_async(asked)
            for row in page.items:
                self._ended[row.at] = entry = msgspec.json.decode(row.body, type=tuple[int, str])
                self._hashes.add(entry[1])
                self._read_to = row.at
            self._read_to = max(self._read_to, page.ends.trimmed)
            if self._read_to >= page.ends.head:
                return


class ActionBudget:
    """How many actions each token has left, as one server counts them."""

    def __init__(self) -> None:
        self._window, self._spent = 0, dict[str, int]()
        self._trimmed_ms = dict[tuple[str, str], int]()

    def __len__(self) -> int:
        return len(self._spent)

    def spend(self, name: str, *, now_ms: int) -> None:
        """Count an action; raise if the token has no more."""
        if now_ms // SESSION_MS != self._window:
            self._window = now_ms // SESSION_MS
            self._spent.clear()
            self._trimmed_ms.clear()
        if self._spent.get(name, 0) >= MOST_ACTIONS:
            most = f"{MOST_ACTIONS:,} actions in {SESSION_MS // HOUR_MS} hours"
            raise Refusal(429, "TOO_MANY_ACTIONS", f"{most} are the most by hand; use the HTTP API")
        self._spent[name] = self._spent.get(name, 0) + 1

    def wants_trim(self, key: tuple[str, str], *, now_ms: int) -> bool:
        """Whether a log was not trimmed in the last hour; from now on it counts as trimmed."""
        if now_ms - self._trimmed_ms.get(key, 0) < TRIM_EVERY_MS:
            return False
        self._trimmed_ms[key] = now_ms
        return True


def _hash_of(session: SignIn) -> str:
    return sha256(session.value.encode(errors="replace")).hexdigest()
