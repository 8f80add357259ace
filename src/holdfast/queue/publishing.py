"""Publishes the defaults of tasks in the store; see docs/decisions/0014.

Every process that claims does so, before its first claim and when its tasks have changed. Defaults that the
store has already are only read. An unavailable store or shard does not delay the claim: it is retried later.
"""

from math import inf

from ..core import commands as c
from ..core import queries as q
from ..core.defaults import NO_DEFAULTS, Defaults, TaskKey
from ..core.errors import Unavailable
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s

# How long after a store or shard was unavailable the defaults are published again.
RETRY_S = 5.0
Tasks = dict[TaskKey, Defaults]
# Tenant (None: all tenants), task, and its defaults.
TaskDefaults = tuple[str | None, str, Defaults]


class Publisher:
    """Remembers what one process has published in one store."""

    def __init__(self) -> None:
        self._published: Tasks = {}
        # When to publish everything again, because a shard was unavailable.
        self._retry_s = inf

    def has_changes(self, tasks: Tasks) -> bool:
        """Whether these defaults must be published."""
        return tasks != self._published or monotonic_s() >= self._retry_s

    def publish(self, connection: Connection, tasks: Tasks) -> None:
        """Publish the defaults that differ from those in the store."""
        try:
            if changed := self._changed(tasks, connection.ask(q.ListDefaults())):
                connection.ask(c.Publish(tasks=changed))
            self._set_published(tasks, to_all_shards=True)
        except Unavailable:
            self._set_published(tasks, to_all_shards=False)

    async def publish_async(self, connection: Connection, tasks: Tasks) -> None:
        """The same for asyncio callers."""
        try:
            if changed := self._changed(tasks, await connection.ask_async(q.ListDefaults())):
                await connection.ask_async(c.Publish(tasks=changed))
            self._set_published(tasks, to_all_shards=True)
        except Unavailable:
            self._set_published(tasks, to_all_shards=False)

    def _changed(self, tasks: Tasks, published: list[TaskDefaults]) -> tuple[TaskDefaults, ...]:
        # A shard that was unavailable may have other defaults than those that were read.
        known = (
            {(tenant, task): defaults for tenant, task, defaults in published}
            if self._retry_s == inf
            else None
        )
        return tuple(
            (tenant, task, defaults)
            for (tenant, task), defaults in tasks.items()
            if known is None or defaults != known.get((tenant, task), NO_DEFAULTS)
        )

    def _set_published(self, tasks: Tasks, *, to_all_shards: bool) -> None:
        self._published = dict(tasks)
        self._retry_s = inf if to_all_shards else monotonic_s() + RETRY_S
