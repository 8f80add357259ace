"""`holdfast serve`: starts the servers through which other programs use a store."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..session import Session, settings

if TYPE_CHECKING:
    from ...serve.config import Options, Tls
    from ...serve.service import ListenAddress

HTTP, GRPC, BEDROCK = "127.0.0.1:8080", "127.0.0.1:9090", "127.0.0.1:8888"


def _option(name: str, **how: Any) -> Callable[..., Any]:
    """An option that may also be an environment variable, or a line of the file of --config."""
    return click.option(name, envvar=f"HOLDFAST_{name[2:].upper().replace('-', '_')}", **how)


def _door(name: str, address: str, what: str) -> Callable[..., Any]:
    how = {"is_flag": False, "flag_value": address, "metavar": "[HOST:PORT]"}
    return _option(name, **how, help=f"Serve {what} there.  [{address}]")


def _read_config(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """Use the file after the command line and the environment."""
    if path:
        from ...serve.config import read_file

        found = {name.replace("-", "_"): value for name, value in read_file(path).items()}
        if "store" in found and "store" not in ctx.ensure_object(Session).said:
            ctx.ensure_object(Session).store = found["store"]
        ctx.default_map = found | {"store": None}


@click.command()
@click.option(
    "--config",
    envvar="HOLDFAST_CONFIG",
    metavar="FILE",
    callback=_read_config,
    expose_value=False,
    help="Options from a TOML file, by the same names.",
)
@settings()
@_door("--http", HTTP, "HTTP")
@_door("--grpc", GRPC, "gRPC")
@_door("--bedrock", BEDROCK, "job commands")
@_option("--bedrock-tenant", default="", metavar="NAME", help="Whose jobs the job commands are about.")
@_option(
    "--bedrock-timeout",
    metavar="TIME",
    help="Time limit of a claim of a job without retryAfter and timeout.  [never]",
)
@_option("--journal", metavar="DIR", help="Keep new jobs there until the store has them.")
@_option("--worker", multiple=True, metavar="MODULE:QUEUE", help="Run its jobs too; repeatable.")
@_option("--no-handlers", is_flag=True, help="Do not run stored handlers, as --http does.")
@_option("--runners", metavar="FILE", help="Settings of the runners of stored handlers, a TOML file.")
@_option(
    "--handler-slots", type=click.IntRange(1, 256), help="Jobs of stored handlers that run at once.  [8]"
)
@_option("--trust-uploads", is_flag=True, help="Let other machines upload handlers without bubblewrap too.")
@_option("--token-always", is_flag=True, help="Clients on loopback need a token as well.")
@_option("--tls-cert", metavar="FILE", help="The certificate of HTTP and gRPC, a PEM file.")
@_option("--tls-key", metavar="FILE", help="Its key.  [in the file of --tls-cert]")
@_option("--tls-client-ca", metavar="FILE", help="Only clients with a certificate of this authority.")
@_option(
    "--rate", type=click.FloatRange(0), default=0.0, help="Requests of a client in a second.  [any number]"
)
@_option("--max-body", metavar="SIZE", help="The largest HTTP request.  [64MB]")
@_option("--max-connections", type=click.IntRange(1), help="HTTP connections at once.  [20000]")
@_option(
    "--session-key", default="", metavar="SECRET", help="Share the dashboard's sessions between servers."
)
@_option(
    "--hidden-words",
    default="",
    metavar="WORDS",
    help='Words of keys whose values are hidden too; with a minus, shown: "pin, -session".',
)
@click.option("-v", "--verbose", count=True, help="Log finished jobs; -vv logs added and started jobs too.")
@_option(
    "--log-format",
    type=click.Choice(("text", "json")),
    help="Format of log lines.  [text, or json unless stderr is a terminal]",
)
@click.pass_obj
def serve(session: Session, /, **said: Any) -> None:
    """Serve a store to other programs, until SIGTERM.

    With none of --http, --grpc and --bedrock all of them are served, on loopback. An address that other
    machines can reach needs a token in the store: see `holdfast token`. Each option may be an environment
    variable as well (HOLDFAST_HTTP), or a line of the file of --config (http = "127.0.0.1:8080").
    """
    log = _configure_log(said.pop("verbose"), said.pop("log_format"))
    run(lambda: _options(session, said), log)


def _configure_log(verbosity: int, log_format: str | None) -> Callable[[str], None]:
    """Log events of jobs, here and in workers; returns the function that logs messages of the server."""
    import logging

    from ...queue.running import JobLogFilter
    from ...work.logs import JSON, LogOptions, configure, default_format

    options = LogOptions(log_format or default_format(), min(verbosity, 2))
    os.environ |= options.variables()
    configure(options, JobLogFilter())
    logging.getLogger("holdfast.serve").setLevel(logging.INFO)
    return logging.getLogger("holdfast.serve").info if options.format == JSON else log_text


def show_ready(addresses: list[str]) -> None:
    """Print that the servers have started, and where."""
    click.echo(f"ready: {', '.join(addresses)}")
    sys.stdout.flush()


def run(
    options: "Callable[[], Options]",
    log: Callable[[str], None] | None = None,
    ready: Callable[[list[str]], None] = show_ready,
) -> None:
    """Serve until SIGTERM."""
    log = log or log_text
    try:
        # `Query` of the job-command port needs it, perhaps hours later: fail now if it is missing.
        import apsw  # noqa: F401

        from ...serve.app import ServerApp

        asyncio.run(ServerApp(options(), log).run(ready))
    except ImportError as error:
        raise _lacks(error) from None
    log("done")


def _lacks(error: ImportError) -> Exception:
    """The error for a library that is not installed."""
    from ...core.errors import StoreError

    library = (error.name or "").partition(".")[0]
    if library not in (
        "apsw",
        "grpc",
        "google",
        "grpc_health",
        "grpc_reflection",
        "starlette",
        "uvicorn",
        "httptools",
    ):
        return error
    command = click.get_current_context().command_path
    return StoreError(f"{command} needs {library}: pip install 'holdfast-queue[server]'")


def _options(session: Session, said: dict[str, Any]) -> "Options":
    from ...core.checks import check_name
    from ...core.units import duration_ms, size_bytes
    from ...serve.config import Options

    check_name("bedrock-tenant", said["bedrock_tenant"], empty=True)
    timeout = said["bedrock_timeout"]
    lease_ms = duration_ms(timeout, name="bedrock-timeout") if timeout else None
    http, grpc, bedrock = said["http"], said["grpc"], said["bedrock"]
    if http is None and grpc is None and bedrock is None:
        http, grpc, bedrock = HTTP, GRPC, BEDROCK
    limits: dict[str, Any] = {}
    if said["max_body"]:
        limits["max_body_bytes"] = size_bytes(said["max_body"], name="max-body")
    if said["max_connections"]:
        limits["max_connections"] = said["max_connections"]
    return Options(
        store=session.store,
        journal=said["journal"] or "",
        http=read_door("http", http),
        grpc=read_door("grpc", grpc),
        bedrock=read_door("bedrock", bedrock),
        bedrock_tenant=said["bedrock_tenant"] or session.tenant,
        bedrock_lease_ms=lease_ms or None,
        workers=tuple(said["worker"]),
        handlers=http is not None and not said["no_handlers"],
        runners=said["runners"] or "",
        handler_slots=said["handler_slots"] or 0,
        trust_uploads=said["trust_uploads"],
        token_always=said["token_always"],
        tls=_tls(said),
        rate=said["rate"],
        session_key=_session_key(said["session_key"]),
        hidden_words=said["hidden_words"],
        **limits,
    )


def _session_key(text: str) -> str:
    from ...core.errors import BadInput
    from ...serve.config import SESSION_KEY_CHARS

    if text and len(text) < SESSION_KEY_CHARS:
        # Only its length: the rest is a secret.
        raise BadInput("session-key", f"{len(text)} characters", needed=f"at least {SESSION_KEY_CHARS}")
    return text


def read_door(name: str, text: str | None) -> "ListenAddress | None":
    """The address of a server; None: it is not started."""
    from ...serve.service import read_address

    return None if text is None else read_address(name, text)


def _tls(said: dict[str, Any]) -> "Tls | None":
    from ...core.errors import BadInput
    from ...serve.config import Tls

    cert = said["tls_cert"]
    if not cert:
        if named := [name for name in ("tls_key", "tls_client_ca") if said[name]]:
            raise BadInput(named[0].replace("_", "-"), said[named[0]], needed="together with --tls-cert")
        return None
    return Tls(cert, said["tls_key"] or cert, said["tls_client_ca"] or "")


def log_text(text: str) -> None:
    """Print a message of the server."""
    click.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} serve {text}", err=True)
    sys.stderr.flush()


@click.command()
@click.option("--http", default=HTTP, metavar="HOST:PORT", show_default=True, help="Listen there.")
@click.option("--token-always", is_flag=True, help="Clients on loopback need a token as well.")
@settings()
@click.pass_obj
def dashboard(session: Session, /, *, http: str, token_always: bool) -> None:
    """Open the dashboard over a store, until SIGTERM.

    It is also at / of `holdfast serve`, which has more options.
    """
    from ...serve.config import Options

    with session.existing() as queue:
        # The first call raises an error if there is no store: an empty page would hide a wrong name.
        queue.counts()
    options = Options(store=session.store, http=read_door("http", http), token_always=token_always)
    run(lambda: options, ready=_show_links)


def _show_links(addresses: list[str]) -> None:
    """The addresses to open in a browser."""
    show_ready([address.replace(" on ", "://") + "/" for address in addresses])
