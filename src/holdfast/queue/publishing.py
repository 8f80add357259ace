"""Publishes in the store what a program has declared: the defaults of its tasks, schedules and limits.

Every process that claims does so, before its first claim and when it has declared more (docs/decisions/0014).
A limit that an operator has changed is set back by this, and a line in the log says so.
Defaults that the store has already are only read. An unavailable store or shard does not delay the claim: it
is retried later.
"""

import logging
from collections.abc import Generator, Mapping
from math import inf
from typing import Any

from ..core import commands as c
from ..core import queries as q
from ..core.defaults import NO_DEFAULTS, Defaults, TaskKey
from ..core.errors import Unavailable
from ..core.limits import limit_text
from ..engine.connection import Connection
from ..store.common.clock import monotonic_s

log = logging.getLogger("holdfast.worker")
# How long after a store or shard was unavailable everything is published again.
RETRY_S = 5.0
Tasks = Mapping[TaskKey, Defaults]
# Schedules and limits, by what tells them apart.
Declared = Mapping[Any, c.SetSchedule | c.SetLimit]
# Tenant (None: all tenants), task, and its defaults.
TaskDefaults = tuple[str | None, str, Defaults]


def declared_name(command: c.SetSchedule | c.SetLimit) -> tuple[str, str, str | bytes]:
    """What tells a declared schedule or limit from others."""
    if isinstance(command, c.SetLimit):
        return "limit", command.tenant, command.domain
    return "schedule", command.schedule.tenant, command.schedule.name


def _log_change(command: c.SetLimit, found: list[q.LimitLoad]) -> None:
    """Log that a limit becomes another than that which is in force."""
    old = found[0].limit if found else None
    if old is not None and old != command.limit:
        new = "none" if command.limit is None else limit_text(command.limit)
        domain = command.domain.decode(errors="replace")
        log.info("the limit of %s is %s, as declared; it was %s", domain, new, limit_text(old))


class Publisher:
    """Remembers what one process has published in one store."""

    def __init__(self) -> None:
        self._published: tuple[Tasks, Declared] = ({}, {})
        # When to publish everything again, because a shard was unavailable.
        self._retry_s = inf

    def has_changes(self, tasks: Tasks, declared: Declared) -> bool:
        """Whether any of these must be published."""
        return (tasks, declared) != self._published or monotonic_s() >= self._retry_s

    def publish(self, connection: Connection, tasks: Tasks, declared: Declared) -> None:
        """Publish what differs from what was published."""
        steps, reply = self._steps(tasks, declared), None
        try:
            while True:
                reply = connection.ask(steps.send(reply))
        except StopIteration:
            self._note(tasks, declared, to_all_shards=True)
        except Unavailable:
            self._note(tasks, declared, to_all_shards=False)

    async def publish_async(self, connection: Connection, tasks: Tasks, declared: Declared) -> None:
        """The same for asyncio callers."""
        steps, reply = self._steps(tasks, declared), None
        try:
            while True:
                reply = await connection.ask_async(steps.send(reply))
        except StopIteration:
            self._note(tasks, declared, to_all_shards=True)
        except Unavailable:
            self._note(tasks, declared, to_all_shards=False)

    def _steps(self, tasks: Tasks, declared: Declared) -> Generator[Any, Any, None]:
        """Yield each query and command, and take its reply."""
        published, written = self._published
        if self._retry_s < inf:
            # The shard that was unavailable may have other defaults than those that were read.
            written = {}
            yield c.Publish(tasks=tuple((*key, tasks[key]) for key in tasks))
        elif tasks != published:
            known = {(tenant, task): defaults for tenant, task, defaults in (yield q.ListDefaults())}
            changed = [
                (*key, defaults) for key, defaults in tasks.items() if defaults != known.get(key, NO_DEFAULTS)
            ]
            if changed:
                yield c.Publish(tasks=tuple(changed))
        for name, command in declared.items():
            if written.get(name) == command:
                continue
            # Not while a shard is unavailable, which would keep the limits of the others from being written.
            if isinstance(command, c.SetLimit) and self._retry_s == inf:
                _log_change(command, (yield q.ListLimits(tenant=command.tenant, domain=command.domain)))
            yield command

    def _note(self, tasks: Tasks, declared: Declared, *, to_all_shards: bool) -> None:
        self._published = dict(tasks), dict(declared)
        self._retry_s = inf if to_all_shards else monotonic_s() + RETRY_S
