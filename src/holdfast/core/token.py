"""Tokens identify the clients of a server. A client sends a secret; the store keeps only its hash.

    hf_<name>_<random>      the secret: the name is the key of the row, the rest is 192 random bits

A plain SHA-256 is enough for a random secret: a dictionary attack is impossible.
"""

import re
from enum import StrEnum

from .bounds import TOKEN_NAME_BYTES
from .job import Record

PREFIX = "hf"
RANDOM_BYTES = 24
# How long a server caches a token: it takes at most this long until it notices a revocation.
FRESH_S = 1.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class Scope(StrEnum):
    """The scopes of tokens. See `core.access` for what each allows."""

    ADD = "add"
    WORK = "work"
    READ = "read"
    MANAGE = "manage"
    HANDLERS = "handlers"
    DATA = "data"
    SIGNAL = "signal"


class Token(Record, frozen=True, kw_only=True):
    """A stored token. `tenant` None: all tenants. `hash` is "" in lists."""

    name: str
    scopes: tuple[Scope, ...]
    tenant: str | None = None
    hash: str = ""
    # 0: never.
    expires_at: int = 0
    created_at: int = 0


class Grant(Record, frozen=True, kw_only=True):
    """What a client may do, and for which tenant. `tenant` None: all tenants."""

    tenant: str | None = None
    scopes: tuple[Scope, ...] = tuple(Scope)
    # The name of its token; "": a client over loopback without a token.
    name: str = ""
    # Why it may upload no handlers that are code; "": it may, given the scope.
    no_code: str = ""


def is_token_name(name: str) -> bool:
    """Whether a name is valid for a token, whose secret contains it."""
    return len(name) <= TOKEN_NAME_BYTES and _NAME.fullmatch(name) is not None


def secret_of(name: str, random: bytes) -> str:
    """The secret of a new token, which is shown once."""
    return f"{PREFIX}_{name}_{random.hex()}"


def hash_of(secret: str) -> str:
    """The hash of a secret, which is stored."""
    # Imported here: hashlib is slow to load, and a program that only adds jobs does not need it.
    from hashlib import sha256

    return sha256(secret.encode()).hexdigest()


def name_in(secret: str) -> str | None:
    """The name in a secret; None: it is not a secret of Holdfast."""
    parts = secret.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX and is_token_name(parts[1]) else None


def grant_of(token: Token | None, secret: str, *, now_ms: int) -> Grant | None:
    """The grant of a secret, given the token of its name; None: it is not valid."""
    from hmac import compare_digest

    if token is None or not compare_digest(token.hash, hash_of(secret)):
        return None
    if token.expires_at and now_ms >= token.expires_at:
        return None
    return Grant(tenant=token.tenant, scopes=token.scopes, name=token.name)
