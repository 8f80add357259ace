"""`holdfast migrate`: bring a store on a server up to date, or show the SQL that does."""

import click

from ..output import emit, say
from ..session import Session, settings


@click.command()
@click.option("--sql", is_flag=True, help="Only show the SQL of all versions, for somebody else to run.")
@settings()
@click.pass_obj
def migrate(session: Session, /, *, sql: bool) -> None:
    """Bring the schema of a PostgreSQL store up to date.

    An empty schema is made by whoever comes first; this is for after an upgrade. Stop all processes of the
    older version before.
    """
    from ...queue.connect import migrate as bring_up

    made = bring_up(session.store, show=sql)
    if isinstance(made, str):
        say(made.rstrip())
    elif session.as_json:
        emit({"versions": made})
    else:
        say(f"made version {', '.join(map(str, made))}" if made else "it is up to date")
