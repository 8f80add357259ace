"""`holdfast sync`, `migrate`, `restored`, `completion` and `version`: what is no verb of a queue."""

import platform
import sys
from typing import TYPE_CHECKING

import click

from ...core.errors import BadInput, HoldfastError, Unquoted
from ...core.units import counted
from ..output import answer, note, progress, say
from ..session import COMPLETE, Session, settings

if TYPE_CHECKING:
    from ...queue.aio import AsyncQueue
    from ...queue.base import BaseQueue


HOWTO = {
    "bash": 'eval "$(holdfast completion bash)"       in ~/.bashrc',
    "zsh": 'eval "$(holdfast completion zsh)"        in ~/.zshrc',
    "fish": "holdfast completion fish | source         in ~/.config/fish/config.fish",
}


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
        return
    text = f"made version {', '.join(map(str, made))}" if made else "it is up to date"
    answer({"versions": made}, text, as_json=session.as_json)


@click.command()
@click.argument("url", metavar="[URL]", required=False)
@settings()
@click.pass_obj
def restored(session: Session, /, *, url: str | None) -> None:
    """Make a store that was restored from a backup fit for use.

    Run this after the restore, before any process uses the store. Claim numbers and ids go on above all that
    were used before the restore. Running it again does no harm. See docs/backup.md.
    """
    from ...engine.commands.sysids import MarkRestored
    from ...engine.store_connection import StoreConnection

    session.store = url or session.store
    with session.existing() as queue, progress("raising claims", unit="pages") as advance:
        if not isinstance(queue.connection, StoreConnection):
            needed = "the address of the store itself, not that of a server"
            raise BadInput("store", session.store, needed=needed)
        alive = len(queue.workers())
        after: int | None = 0
        while after is not None:
            after = queue.connection.ask(MarkRestored(after=after))
            advance(1)
    text = "claim numbers and ids go on above all that were used before"
    answer({"restored": True}, text, as_json=session.as_json)
    if alive:
        are = counted(alive, "worker is", "workers are")
        note(f"{are} alive here: stop all processes, restore the backup, and run this again")


@click.command(epilog="\b\n" + "\n".join(HOWTO.values()))
@click.argument("shell", metavar="SHELL", type=click.Choice(tuple(HOWTO)))
@settings()
@click.pass_context
def completion(ctx: click.Context, /, *, shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options, tasks and schedules.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "holdfast", COMPLETE)
    # Not `source`: that would start the shell to get its version, but the script is the same for all
    # versions.
    click.echo(script.source_template % script.source_vars())


@click.command()
@settings()
@click.pass_obj
def version(session: Session) -> None:
    """Show the version."""
    # Not imported from `holdfast`: that would load the whole public API.
    number = sys.modules["holdfast"].__version__
    answer(
        {"holdfast": number, "python": platform.python_version()},
        f"holdfast {number}",
        as_json=session.as_json,
    )


@click.command()
@click.argument("names", metavar="MODULE:QUEUE...", nargs=-1, required=True)
@settings()
@click.pass_obj
def sync(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Write the schedules and limits that modules declare.

    Also the defaults of their tasks. Workers do so when they start. Run this in a deployment before them, or
    where there are none.
    """
    import asyncio

    from ...queue.aio import AsyncQueue
    from ...queue.queue import Queue

    if session.said & {"store", "tenant"}:
        raise BadInput("store", session.store, needed="absent: a queue has its own store and tenant")
    counts = {"task": 0, "schedule": 0, "limit": 0}
    for name in names:
        queue = imported_queue(name)
        if isinstance(queue, Queue):
            with queue:
                queue.sync()
        elif isinstance(queue, AsyncQueue):
            asyncio.run(_sync(queue))
        counts["task"] += len(queue.tasks)
        for kind, *_ in queue.declared:
            counts[kind] += 1
    text = ", ".join(counted(count, word) for word, count in counts.items())
    answer({f"{word}s": count for word, count in counts.items()}, text, as_json=session.as_json)


def imported_queue(name: str) -> "BaseQueue":
    """The queue of a module, given as MODULE:QUEUE."""
    from ...work.executor.executor import find_queue

    try:
        return find_queue(name)
    except HoldfastError:
        raise
    except Exception as error:
        found = Unquoted(f"broken ({type(error).__name__}: {error})")
        raise BadInput(name, found, needed="MODULE:QUEUE that can be imported") from error


async def _sync(queue: "AsyncQueue") -> None:
    async with queue:
        await queue.sync()
