"""Makes the defaults of tasks known in the store; see docs/decisions/0014.

Said by every process that claims, before its first claim and when its tasks have changed. What the store has
already is only read.
"""

import asyncio

from ..core import commands as c
from ..core.defaults import Defaults, TaskKey
from ..engine.asking import Committing
from ..engine.task_defaults import unpublished


def publish(line: Committing, tasks: dict[TaskKey, Defaults]) -> None:
    """Publish those of these defaults that the store has otherwise."""
    changed = line.engine.read(lambda txn: unpublished(txn, tasks))
    if changed:
        line.ask(_command(changed))


async def publish_async(line: Committing, tasks: dict[TaskKey, Defaults]) -> None:
    """The same, awaited."""
    changed = await asyncio.to_thread(line.engine.read, lambda txn: unpublished(txn, tasks))
    if changed:
        await line.ask_async(_command(changed))


def _command(changed: dict[TaskKey, Defaults]) -> c.Publish:
    return c.Publish(tasks=tuple((tenant, task, said) for (tenant, task), said in changed.items()))
