"""Sign-in: a signed cookie instead of the token's secret, and the token of forms (CSRF). See decision 21.

    sign-in        name~expires~mac, the mac of name, expires and the token's hash under the server's key
    each request   the token of that name is read again: a revoked, replaced or expired one is refused
    each form      the mac of the session, which a page of another site cannot know

The key is made by each server process, unless it is configured: then servers share their sessions.
"""

import hmac
import secrets
from hashlib import sha256

import msgspec

from ...core.bounds import HOUR_MS
from ...core.token import is_token_name

COOKIE = "holdfast_session"
SESSION_MS = 12 * HOUR_MS
# The form token of clients that need no session: on loopback, or with a token in the header.
NO_SESSION = "-"


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

    def open(self, name: str, token_hash: str, *, now_ms: int) -> SignIn:
        """A session for the token of that name."""
        expires_ms = now_ms + SESSION_MS
        return SignIn(name, expires_ms, self._mac("session", name, str(expires_ms), token_hash))

    def holds(self, session: SignIn, token_hash: str, *, now_ms: int) -> bool:
        """Whether a session is ours, of the token as it is now, and not over."""
        mac = self._mac("session", session.name, str(session.expires_ms), token_hash)
        said = session.mac.encode(errors="replace")
        return hmac.compare_digest(mac.encode(), said) and now_ms < session.expires_ms

    def form_token(self, session: SignIn | None, grant_name: str) -> str:
        """What each form of a session must contain."""
        return self._mac("form", NO_SESSION if session is None else session.value, grant_name)

    def is_form_token(self, said: str, session: SignIn | None, grant_name: str) -> bool:
        """Whether a form was made for this session."""
        wanted = self.form_token(session, grant_name)
        return hmac.compare_digest(said.encode(errors="replace"), wanted.encode())

    def _mac(self, *parts: str) -> str:
        return hmac.new(self._key, msgspec.json.encode(parts), sha256).hexdigest()


def read_session(value: str | None) -> SignIn | None:
    """The session that a cookie tells of; None: there is none."""
    parts = (value or "").split("~")
    if len(parts) != 3 or not is_token_name(parts[0]):
        return None
    if not parts[1].isascii() or not parts[1].isdigit() or len(parts[1]) > 15:
        return None
    return SignIn(parts[0], int(parts[1]), parts[2])
