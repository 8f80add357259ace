"""`holdfast serve`: opens the doors by which other programs reach a store."""

import asyncio
import sys
import time

import click

from ..session import Session, settings


@click.command()
@settings()
@click.option(
    "--bedrock",
    default="127.0.0.1:8888",
    show_default=True,
    metavar="HOST:PORT",
    help="Where the job commands are served.",
)
@click.option("--bedrock-tenant", default="", metavar="NAME", help="Whose jobs they are about.")
@click.option(
    "--bedrock-timeout",
    metavar="TIME",
    help="When a job that names neither retryAfter nor timeout is handed out again.  [never]",
)
@click.option(
    "--bedrock-guard",
    default="",
    metavar="TEXT",
    help="What keeps strangers away from an address beyond loopback, in your words.",
)
@click.pass_obj
def serve(
    session: Session,
    /,
    *,
    bedrock: str,
    bedrock_tenant: str,
    bedrock_timeout: str | None,
    bedrock_guard: str,
) -> None:
    """Serve a store to other programs, until SIGTERM.

    The job commands (CreateJob, GetJob, FinishJob …) are described in docs/job-commands.md.
    """
    from ...core.checks import check_name
    from ...core.durations import duration_ms
    from ...core.errors import StoreError

    try:
        # The port's `Query` needs it, perhaps hours later.
        import apsw  # noqa: F401

        from ...serve.app import App, Options
        from ...serve.door import read_address
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "apsw":
            raise
        raise StoreError("holdfast serve needs apsw: pip install 'holdfast[server]'") from None
    check_name("bedrock-tenant", bedrock_tenant, empty=True)
    lease_ms = duration_ms(bedrock_timeout, name="bedrock-timeout") if bedrock_timeout else None
    options = Options(
        store=session.store,
        bedrock=read_address("bedrock", bedrock),
        bedrock_tenant=bedrock_tenant or session.tenant,
        bedrock_lease_ms=lease_ms or None,
        bedrock_guard=bedrock_guard,
    )
    app = App(options, _log)
    asyncio.run(app.run(_ready))
    _log("done")


def _ready(addresses: list[str]) -> None:
    click.echo(f"ready: {', '.join(addresses)}")
    sys.stdout.flush()


def _log(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} serve {text}", err=True)
    sys.stderr.flush()
