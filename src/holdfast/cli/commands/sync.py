"""`holdfast sync`: writes what a program has declared, without a worker."""

import asyncio
from typing import TYPE_CHECKING

import click

from ...core.errors import BadInput, HoldfastError, Unquoted
from ...core.units import counted
from ..output import answer
from ..session import Session, settings

if TYPE_CHECKING:
    from ...queue.aio import AsyncQueue
    from ...queue.base import BaseQueue


@click.command()
@click.argument("names", metavar="MODULE:QUEUE...", nargs=-1, required=True)
@settings()
@click.pass_obj
def sync(session: Session, /, *, names: tuple[str, ...]) -> None:
    """Write the schedules and limits that modules declare.

    Also the defaults of their tasks. Workers do so when they start. Run this in a deployment before them, or
    where there are none.
    """
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
