"""What people did through the dashboard: a log in the store that only the server writes, and log lines.

Only what was done is in the store's log; what was refused is in the server's own log alone. An entry stays
for `KEPT_MS`, however many come after it. What bounds the number is `sessions.ActionBudget`: past it a
token's actions are refused, so nothing is done without an entry.
"""

import logging
from typing import Any

import msgspec

from ...core import commands as c
from ...core import queries as q
from ...core.access import AUDIT_LOG, OPERATORS_LOG
from ...core.bounds import DAY_MS, LOG_PAGE_ITEMS, MAX_TIME_MS
from ...core.indexed import LogItem
from ...core.job import Record
from .view import View

log = logging.getLogger("holdfast.audit")

KEPT_MS, SHOWN = 90 * DAY_MS, 50
FOREIGN = "an entry that was not written by the dashboard"


class Action(Record, frozen=True, kw_only=True):
    """One action: when, by which token, from where, what, and the fields of the command."""

    at: int
    who: str
    peer: str = ""
    action: str
    fields: dict[str, Any] = {}


async def record(view: View, action: str, **fields: Any) -> None:
    """Write down an action that was done."""
    raw = msgspec.json.encode(_action(view, action, fields)).decode()
    log.info("%s", raw)
    name = OPERATORS_LOG if view.grant.tenant is None else AUDIT_LOG
    tenant, asking = view.grant.tenant or "", view.exchange.asking
    await asking.ask_async(c.Append(log=name, tenant=tenant, items=(LogItem(data=raw),)))
    if view.budget.wants_trim((tenant, name), now_ms=view.now_ms):
        await _trim(view, name, tenant)


def record_refused(view: View) -> None:
    """Tell the server's log of an action that the client may not do."""
    path = view.request.url.path.removeprefix(view.base)
    log.warning("%s", msgspec.json.encode(_action(view, f"refused: {path}", {})).decode())


def _action(view: View, action: str, fields: dict[str, Any]) -> Action:
    peer = view.request.client.host if view.request.client else ""
    return Action(at=view.now_ms, who=view.grant.name or "loopback", peer=peer, action=action, fields=fields)


async def _trim(view: View, name: str, tenant: str) -> None:
    """Remove the entries that are older than `KEPT_MS`."""
    asking, oldest_ms, up_to = view.exchange.asking, view.now_ms - KEPT_MS, 0
    while True:
        asked = q.ReadLog(log=name, tenant=tenant, after=up_to, limit=LOG_PAGE_ITEMS)
        page: q.LogPage = await asking.ask_async(asked)
        found = [(row.at, _read(row)) for row in page.items]
        fresh = next((at for at, one in found if one is not None and one.at >= oldest_ms), None)
        up_to = fresh - 1 if fresh is not None else found[-1][0] if found else up_to
        if fresh is not None or len(found) < LOG_PAGE_ITEMS:
            break
    if up_to:
        await asking.ask_async(c.TrimLog(log=name, tenant=tenant, up_to=up_to))


async def latest(view: View) -> list[Action]:
    """The last actions, newest first; those of operators only where all tenants are shown."""
    names = (AUDIT_LOG,) if view.tenant is not None else (OPERATORS_LOG, AUDIT_LOG)
    found = [action for name in names for action in await _latest_of(view, name)]
    return sorted(found, key=lambda action: action.at, reverse=True)[:SHOWN]


async def _latest_of(view: View, name: str) -> list[Action]:
    ends: q.LogPage = await view.ask(q.ReadLog(log=name, tenant=view.one_tenant))
    after = max(ends.ends.head - SHOWN, ends.ends.trimmed)
    page: q.LogPage = await view.ask(q.ReadLog(log=name, tenant=view.one_tenant, after=after, limit=SHOWN))
    found, at = list[Action](), 0
    for row in page.items:
        # One without a readable time stands beside the one before it.
        action = _read(row) or Action(at=at, who="?", action=FOREIGN)
        at = action.at
        found.append(action)
    return found[::-1]


def _read(row: q.LogRow) -> Action | None:
    """An entry; None: something else has written it."""
    try:
        action = msgspec.json.decode(row.body, type=Action)
    except (msgspec.DecodeError, RecursionError):
        return None
    return action if 0 <= action.at <= MAX_TIME_MS else None
