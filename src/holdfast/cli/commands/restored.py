"""`holdfast restored`: makes a store that was restored from a backup fit for use."""

import click

from ...core.errors import BadInput
from ..output import answer, progress
from ..session import Session, settings


@click.command()
@click.argument("url", metavar="[URL]", required=False)
@settings()
@click.pass_obj
def restored(session: Session, /, *, url: str | None) -> None:
    """Make a store that was restored from a backup fit for use.

    Run this after the restore, before any process uses the store. Claim numbers and ids go on above all that
    were used before the restore. Running it again does no harm. See docs/backup.md.
    """
    from ...engine.commands.restoring import MarkRestored
    from ...engine.store_connection import StoreConnection

    session.store = url or session.store
    with session.existing() as queue, progress("raising claims", unit="pages") as advance:
        if not isinstance(queue.connection, StoreConnection):
            needed = "the address of the store itself, not that of a server"
            raise BadInput("store", session.store, needed=needed)
        after: int | None = 0
        while after is not None:
            after = queue.connection.ask(MarkRestored(after=after))
            advance(1)
    text = "claim numbers and ids go on above all that were used before"
    answer({"restored": True}, text, as_json=session.as_json)
