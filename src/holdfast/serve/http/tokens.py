"""Tokens over HTTP: the server makes the secret, and shows it once."""

import secrets
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from ...core import commands as c
from ...core.access import Grant
from ...core.token import RANDOM_BYTES, Scope, Token, hash_of, secret_of
from .exchange import Exchange, decode, respond
from .values import Name, Whole


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token as it is asked for. `tenant` null: all tenants; absent: the tenant ""."""

    name: Annotated[str, Meta(max_length=64)]
    scopes: list[Scope]
    tenant: Name | None = ""
    expires_in_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its secret, which is shown only here."""

    name: str
    scopes: list[Scope]
    tenant: str | None
    secret: str
    expires_at: Whole
    created_at: Whole


async def create_token(exchange: Exchange, request: Request, grant: Grant) -> Response:
    """Create a token."""
    said: NewToken = decode(await exchange.body(request), NewToken)
    secret = secret_of(said.name, secrets.token_bytes(RANDOM_BYTES))
    token = Token(name=said.name, scopes=tuple(said.scopes), tenant=said.tenant, hash=hash_of(secret))
    expires_in_ms = 0 if said.expires_in_ms is UNSET else said.expires_in_ms
    kept: Token = await exchange.ask(grant, c.CreateToken(token=token, expires_in_ms=expires_in_ms))
    made = NewSecret(
        name=kept.name,
        scopes=list(kept.scopes),
        tenant=kept.tenant,
        secret=secret,
        expires_at=kept.expires_at,
        created_at=kept.created_at,
    )
    return respond(made, 201)
