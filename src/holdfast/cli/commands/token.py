"""`holdfast token`: creates, lists and revokes the tokens for clients of `holdfast serve`."""

import secrets
from typing import TYPE_CHECKING

import click

from ..output import answer, emit, say, table
from ..session import Session, settings

if TYPE_CHECKING:
    from ...core.token import Token

SCOPES = ("add", "work", "read", "manage", "handlers", "data")
COLUMNS = ("NAME", "TENANT", "SCOPES", "EXPIRES")


@click.group()
def token() -> None:
    """Create, list or revoke tokens of `holdfast serve`.

    A client that shows a token may do what its scopes say, with the jobs of its tenant. docs/security.md
    tells what each scope allows.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it allows; say it again for more.  [all]",
)
@click.option("--all-tenants", is_flag=True, help="For the jobs of all tenants, not of --tenant alone.")
@click.option("--expires", metavar="TIME", help="Holds so long: 90d.  [until it is revoked]")
@settings()
@click.pass_obj
def create(
    session: Session, /, *, name: str, scopes: tuple[str, ...], all_tenants: bool, expires: str | None
) -> None:
    """Create a token and print its secret, which is shown only this once."""
    from ...core.commands import CreateToken
    from ...core.durations import duration_ms
    from ...core.token import RANDOM_BYTES, Scope, Token, hash_of, secret_of

    if all_tenants and session.tenant:
        raise click.UsageError("say --tenant or --all-tenants, not both")
    secret = secret_of(name, secrets.token_bytes(RANDOM_BYTES))
    made = Token(
        name=name,
        scopes=tuple(Scope(one) for one in dict.fromkeys(scopes or SCOPES)),
        tenant=None if all_tenants else session.tenant,
        hash=hash_of(secret),
    )
    expires_in_ms = duration_ms(expires, name="expires") if expires else 0
    with session.open() as queue:
        kept: Token = queue.connection.ask(CreateToken(token=made, expires_in_ms=expires_in_ms))
    answer(_record(kept) | {"secret": secret}, secret, as_json=session.as_json)


@token.command("list")
@settings(create=True)
@click.pass_obj
def list_tokens(session: Session) -> None:
    """List tokens, without their secrets."""
    from ...core.queries import ListTokens, ask_all

    with session.existing() as queue:
        found: list[Token] = ask_all(queue.connection.ask, ListTokens())
    if session.as_json:
        for one in found:
            emit(_record(one))
    elif not found:
        say("no tokens")
    else:
        table(COLUMNS, [_row(one) for one in found])


@token.command()
@click.argument("name")
@settings()
@click.pass_obj
def revoke(session: Session, /, *, name: str) -> None:
    """Revoke a token: servers refuse it from then on."""
    from ...core.commands import RevokeToken

    with session.existing() as queue:
        queue.connection.ask(RevokeToken(name=name))
    answer({"revoked": name}, f"revoked {name}", as_json=session.as_json)


def _record(one: "Token") -> dict[str, object]:
    from ..records import moment

    return {
        "name": one.name,
        "tenant": one.tenant,
        "scopes": [str(scope) for scope in one.scopes],
        "expires_at": moment(one.expires_at),
        "created_at": moment(one.created_at),
    }


def _row(one: "Token") -> tuple[str, ...]:
    from ..records import moment

    tenant = "all" if one.tenant is None else one.tenant or '""'
    return one.name, tenant, " ".join(one.scopes), str(moment(one.expires_at) or "never")
