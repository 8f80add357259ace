"""Tokens in the store: kept by name, without their secrets. See `core.token`."""

import re

import msgspec
from msgspec.structs import replace

from ...core import commands as c
from ...core import queries as q
from ...core.bounds import MAX_DURATION_MS, TOKEN_NAME_BYTES, TOKENS
from ...core.checks import check_name, check_whole
from ...core.errors import BadInput, NotFound, TooLarge
from ...core.kinds import TOKEN
from ...core.token import Scope, Token, is_token_name
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import check_page

_HASH = re.compile(r"[0-9a-f]{64}")
_decode = msgspec.json.Decoder(Token).decode


def create(batch: Batch, command: c.CreateToken) -> Token:
    """Write a new token; see `CreateToken`. Repeating the command changes nothing."""
    token = command.token
    _check(token)
    check_whole("expires_in_ms", command.expires_in_ms, 0, MAX_DURATION_MS)
    known = batch.rows_of(TOKEN)
    if token.name in known:
        before = _decode(known[token.name])
        if before.hash == token.hash:
            return replace(before, hash="")
        raise BadInput("token", token.name, needed="a name that no token has; revoke that one first")
    if len(known) >= TOKENS:
        raise TooLarge("tokens", len(known) + 1, needed=f"at most {TOKENS:,}")
    if command.expires_in_ms:
        token = replace(token, expires_at=batch.now_ms + command.expires_in_ms)
    token = replace(token, created_at=batch.now_ms)
    batch.rows[TOKEN, token.name] = msgspec.json.encode(token)
    return replace(token, hash="")


def _check(token: Token) -> None:
    """Raise `BadInput` for a token that could not be used."""
    if not is_token_name(token.name):
        needed = f"at most {TOKEN_NAME_BYTES} letters, digits, dots and dashes, first a letter or a digit"
        raise BadInput("token", token.name, needed=needed)
    if not token.scopes or len(set(token.scopes)) < len(token.scopes):
        raise BadInput("scopes", token.scopes, needed=f"some of {', '.join(Scope)}, each once")
    if token.tenant is not None:
        check_name("tenant", token.tenant, empty=True)
    if not _HASH.fullmatch(token.hash):
        raise BadInput("hash", token.hash, needed="a SHA-256 in hexadecimal digits")


def revoke(batch: Batch, command: c.RevokeToken) -> None:
    """Remove a token; see `RevokeToken`."""
    if command.name not in batch.rows_of(TOKEN, [command.name]):
        raise NotFound("token", command.name)
    batch.rows[TOKEN, command.name] = None


def list_tokens(txn: ReadTxn, query: q.ListTokens) -> list[Token]:
    """A page of tokens by name; see `ListTokens`."""
    check_page(query)
    rows = txn.scan(TOKEN, after=query.after_name, limit=query.limit)
    return [replace(_decode(raw), hash="") for _, raw in rows]


def find(txn: ReadTxn, query: q.FindToken) -> Token | None:
    """A token with its hash; see `FindToken`."""
    raw = txn.rows(TOKEN, [query.name]).get(query.name) if is_token_name(query.name) else None
    return None if raw is None else _decode(raw)
