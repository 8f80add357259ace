"""What people did through the dashboard: a log in the store that only the server writes, and log lines."""

import logging
from typing import Any

import msgspec

from ...core import commands as c
from ...core import queries as q
from ...core.access import AUDIT_LOG, OPERATORS_LOG
from ...core.indexed import LogItem
from ...core.job import Record
from .view import View

log = logging.getLogger("holdfast.audit")

KEPT, SHOWN = 10_000, 50
# Actions between two trims of the log.
TRIM_EVERY = 100


class Action(Record, frozen=True, kw_only=True):
    """One action: when, by which token, from where, what, and the fields of the command."""

    at: int
    who: str
    peer: str = ""
    action: str
    fields: dict[str, Any] = {}


async def record(view: View, action: str, **fields: Any) -> None:
    """Write down an action that was done."""
    peer = view.request.client.host if view.request.client else ""
    done = Action(at=view.now_ms, who=view.grant.name or "loopback", peer=peer, action=action, fields=fields)
    raw = msgspec.json.encode(done).decode()
    log.info("%s", raw)
    name = OPERATORS_LOG if view.grant.tenant is None else AUDIT_LOG
    tenant, connection = view.grant.tenant or "", view.exchange.connection
    asked = c.Append(log=name, tenant=tenant, items=(LogItem(data=raw),))
    ((at, _),) = await connection.ask_async(asked)
    if at % TRIM_EVERY == 0 and at > KEPT:
        await connection.ask_async(c.TrimLog(log=name, tenant=tenant, up_to=at - KEPT))


async def latest(view: View) -> list[Action]:
    """The last actions, newest first; those of operators only where all tenants are shown."""
    names = (AUDIT_LOG,) if view.tenant is not None else (OPERATORS_LOG, AUDIT_LOG)
    found = [action for name in names for action in await _latest_of(view, name)]
    return sorted(found, key=lambda action: action.at, reverse=True)[:SHOWN]


async def _latest_of(view: View, name: str) -> list[Action]:
    ends: q.LogPage = await view.ask(q.ReadLog(log=name, tenant=view.one_tenant))
    after = max(ends.ends.head - SHOWN, ends.ends.trimmed)
    page: q.LogPage = await view.ask(q.ReadLog(log=name, tenant=view.one_tenant, after=after, limit=SHOWN))
    return [msgspec.json.decode(row.body, type=Action) for row in reversed(page.items)]
