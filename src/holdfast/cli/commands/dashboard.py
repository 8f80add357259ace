"""`holdfast dashboard`: serves only the web pages of a store."""

import click

from ..session import Session, settings
from .serve import HTTP, read_door, run, show_ready


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
