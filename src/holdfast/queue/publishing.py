"""Makes the defaults of tasks known in the store; see docs/decisions/0014.

Said by every process that claims, before its first claim and when its tasks have changed. What the store has
already is only read. A store, or a shard, that is away does not hold up the claim: it is told later.
"""

from math import inf

from ..core import commands as c
from ..core import queries as q
from ..core.defaults import NO_DEFAULTS, Defaults, TaskKey
from ..core.errors import Unavailable
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s

# How long after a shard or store was away it is told again.
AGAIN_S = 5.0
Tasks = dict[TaskKey, Defaults]
# Whose jobs, None: everybody's; the task; and its defaults.
Said = tuple[str | None, str, Defaults]


class Publisher:
    """What one process has published in one store, of several shards perhaps."""

    def __init__(self) -> None:
        self._said: Tasks = {}
        # When it is to be said again to all, because not all could be told.
        self._again_s = inf

    def wants(self, tasks: Tasks) -> bool:
        """Whether there is anything to publish."""
        return tasks != self._said or monotonic_s() >= self._again_s

    def publish(self, line: Connection, tasks: Tasks) -> None:
        """Publish those of these defaults that the store has otherwise."""
        try:
            if changed := self._changed(tasks, line.ask(q.ListDefaults())):
                line.ask(c.Publish(tasks=changed))
            self._told(tasks, everywhere=True)
        except Unavailable:
            self._told(tasks, everywhere=False)

    async def publish_async(self, line: Connection, tasks: Tasks) -> None:
        """The same, awaited."""
        try:
            if changed := self._changed(tasks, await line.ask_async(q.ListDefaults())):
                await line.ask_async(c.Publish(tasks=changed))
            self._told(tasks, everywhere=True)
        except Unavailable:
            self._told(tasks, everywhere=False)

    def _changed(self, tasks: Tasks, published: list[Said]) -> tuple[Said, ...]:
        # A shard that was away may have others than those that were read.
        known = {(tenant, task): said for tenant, task, said in published} if self._again_s == inf else None
        return tuple(
            (tenant, task, said)
            for (tenant, task), said in tasks.items()
            if known is None or said != known.get((tenant, task), NO_DEFAULTS)
        )

    def _told(self, tasks: Tasks, *, everywhere: bool) -> None:
        self._said = dict(tasks)
        self._again_s = inf if everywhere else monotonic_s() + AGAIN_S
