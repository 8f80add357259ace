"""`holdfast migrate`: migrates a store on a server, or prints the SQL."""

import click

from ..output import emit, say
from ..session import Session, settings


@click.command()
@click.option("--sql", is_flag=True, help="Print the SQL instead of running it.")
@settings()
@click.pass_obj
def migrate(session: Session, /, *, sql: bool) -> None:
    """Upgrade the layout of a PostgreSQL store.

    Run this after an upgrade of Holdfast. Processes of the older version may be running: those that may not
    write the new layout end with an error. A new store needs no migration: the first process creates it.
    """
    from ...queue.connect import migrate as bring_up

    made = bring_up(session.store, show=sql)
    if isinstance(made, str):
        say(made.rstrip())
    elif session.as_json:
        emit({"versions": made})
    else:
        say(f"made version {', '.join(map(str, made))}" if made else "it is up to date")
