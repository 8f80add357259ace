"""Tokens: how a server knows its clients. A client shows a secret; the store keeps only its hash.

    hf_<name>_<random>      the secret: the name tells which row to look at, the rest is 192 random bits

A plain SHA-256 is enough for a random secret: there is no dictionary to try.
"""

import re
from enum import StrEnum

from .bounds import TOKEN_NAME_BYTES
from .job import Record

PREFIX = "hf"
RANDOM_BYTES = 24
# How long a server goes by what it has read of a token: so much later it notices a revocation.
FRESH_S = 1.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class Scope(StrEnum):
    """What a token is for. See `core.access` for what each allows."""

    ADD = "add"
    WORK = "work"
    READ = "read"
    MANAGE = "manage"
    HANDLERS = "handlers"


class Token(Record, frozen=True, kw_only=True):
    """What is kept of a token. `tenant` None: all tenants. `hash` is "" where a token is only shown."""

    name: str
    scopes: tuple[Scope, ...]
    tenant: str | None = None
    hash: str = ""
    # 0: it does not expire.
    expires_at: int = 0
    created_at: int = 0


class Grant(Record, frozen=True, kw_only=True):
    """What a client may do, and whose jobs it may see. `tenant` None: everybody's."""

    tenant: str | None = None
    scopes: tuple[Scope, ...] = tuple(Scope)
    # The name of its token; "": it has none, and comes over loopback.
    name: str = ""


def is_token_name(name: str) -> bool:
    """Whether a token may be called so: the name is part of its secret."""
    return len(name) <= TOKEN_NAME_BYTES and _NAME.fullmatch(name) is not None


def secret_of(name: str, random: bytes) -> str:
    """The secret of a new token, to be shown once."""
    return f"{PREFIX}_{name}_{random.hex()}"


def hash_of(secret: str) -> str:
    """What is kept of a secret."""
    # Imported here: hashlib is slow to load, and a program that only adds jobs does not need it.
    from hashlib import sha256

    return sha256(secret.encode()).hexdigest()


def name_in(secret: str) -> str | None:
    """The name that a secret carries; None: it is no secret of ours."""
    parts = secret.split("_")
    return parts[1] if len(parts) == 3 and parts[0] == PREFIX and is_token_name(parts[1]) else None


def grant_of(token: Token | None, secret: str, *, now_ms: int) -> Grant | None:
    """What a secret allows by the token of its name; None: nothing."""
    from hmac import compare_digest

    if token is None or not compare_digest(token.hash, hash_of(secret)):
        return None
    if token.expires_at and now_ms >= token.expires_at:
        return None
    return Grant(tenant=token.tenant, scopes=token.scopes, name=token.name)
