"""Limits, pauses and the retention. They may change at any time, and take effect from the next claim on."""

import msgspec

from ...core import commands as c
from ...core.bounds import DEFAULT_RETENTION_MS, DOMAIN_BYTES
from ...core.checks import check_key, check_name
from ...core.commands import SetRetention
from ...core.errors import BadInput, TooLarge
from ...core.jump import Overdue
from ...core.kinds import LIMIT, PATTERNS, PAUSE, SETTING, name_of
from ...core.limits import check_limit, is_pattern
from ...core.queries import GetRetention
from ...store.contract import ReadTxn
from ..batch.batch import Batch
from ..records import Patterns, read_patterns
from . import chores

# All patterns of a tenant are searched for each domain that a claim finds for the first time.
MAX_PATTERNS = 1_000
RETENTION, OVERDUE = "retention_ms", "overdue"


def set_limit(batch: Batch, command: c.SetLimit) -> None:
    """Set the limit of a domain, or of all that match a pattern; see `SetLimit`."""
    check_key("domain", command.domain, DOMAIN_BYTES)
    check_name("tenant", command.tenant, empty=True)
    if command.limit is not None:
        check_limit(command.limit)
    if is_pattern(command.domain):
        _set_pattern(batch, command)
        chores.touch_domains(batch, command.tenant, after=b"")
        return
    key = (command.tenant, command.domain)
    raw = None if command.limit is None else msgspec.json.encode(command.limit)
    batch.rows[LIMIT, name_of(*key)] = raw
    batch.domains.refresh([key])


def _set_pattern(batch: Batch, command: c.SetLimit) -> None:
    name = name_of(command.tenant)
    raw = batch.rows_of(PATTERNS, [name]).get(name)
    patterns = dict(read_patterns(raw).limits) if raw else {}
    if command.limit is None:
        patterns.pop(command.domain, None)
    else:
        patterns[command.domain] = command.limit
    if len(patterns) > MAX_PATTERNS:
        raise TooLarge("patterns", len(patterns), needed=f"at most {MAX_PATTERNS:,} of a tenant")
    record = Patterns(limits=tuple(sorted(patterns.items(), key=lambda item: item[0])))
    batch.rows[PATTERNS, name] = msgspec.json.encode(record) if patterns else None


def pause(batch: Batch, command: c.Pause) -> None:
    """Pause or resume a tenant, task or domain; see `Pause`."""
    if command.task is None and command.domain is None and command.tenant is None:
        raise BadInput("pause", None, needed="a task, a tenant or a domain")
    if command.task is not None and command.domain is not None:
        raise BadInput("pause", command.task, needed="a task or a domain, not both")
    if command.task is not None:
        check_name("task", command.task)
    if command.tenant is not None:
        check_name("tenant", command.tenant, empty=True)
    # A domain belongs to a tenant; any other pause without one is for all of them.
    tenant = command.tenant if command.domain is None else command.tenant or ""
    batch.rows[PAUSE, name_of(tenant, command.task, command.domain)] = b"{}" if command.on else None
    if tenant is None and not command.on:
        # A client that named no tenant may have paused jobs without one, or those of all tenants.
        batch.rows[PAUSE, name_of("", command.task, command.domain)] = None
    batch.forget_pauses()
    # Lifting a pause lets waiting claims look again.
    batch.woke = batch.woke or not command.on
    if command.domain is not None:
        check_key("domain", command.domain, DOMAIN_BYTES)
        batch.domains.refresh([(tenant or "", command.domain)])


def set_retention(batch: Batch, command: SetRetention) -> None:
    """Keep another retention; see `SetRetention`. Other processes read it within seconds."""
    put_retention(batch, command.retention_ms)
    batch.set_retention(command.retention_ms)
    batch.woke = batch.wants_upkeep = True


def put_retention(batch: Batch, retention_ms: int) -> None:
    """Store a retention. Jobs that are too old for it leave the archive at once."""
    # By `update`, which is not undone if the command that has asked for the retention fails.
    overdue = msgspec.json.encode(Overdue(at_ms=batch.now_ms - retention_ms))
    batch.rows.update({(SETTING, RETENTION): str(retention_ms).encode(), (SETTING, OVERDUE): overdue})


def get_overdue(batch: Batch) -> Overdue | None:
    """When archived jobs were overdue last, if they ever were."""
    raw = batch.rows_of(SETTING, [OVERDUE]).get(OVERDUE)
    return msgspec.json.decode(raw, type=Overdue) if raw else None


def put_overdue(batch: Batch, overdue: Overdue) -> None:
    """Remember that archived jobs were overdue."""
    batch.rows[SETTING, OVERDUE] = msgspec.json.encode(overdue)


def get_retention(txn: ReadTxn, _query: GetRetention | None = None) -> int:
    """The retention that is stored; see `GetRetention`."""
    raw = txn.rows(SETTING, [RETENTION]).get(RETENTION)
    return int(raw) if raw else DEFAULT_RETENTION_MS
