"""Tenants: which there are, the switch in the navigation, and what pages say about the one that is shown."""

import asyncio
from itertools import islice
from typing import Any

from ...core import queries as q
from ...core.handler import ListHandlers
from ...store.common.clock import monotonic_s
from ..asking import Asking
from .markup import Markup, el, join, user_text
from .view import View

# How many are listed in the navigation; others are typed.
LISTED = 100
# How many tasks are read at a time to find tenants, and a name behind that of every task.
PAGE_TASKS, LAST_NAME = 50, "\U0010ffff"
# All pages share one read of the names in this time.
FRESH_S = 10.0


class TenantNames:
    """The first tenants that have jobs, as one server knows them."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._names: tuple[str, ...] = ()
        self._until_s, self._lock = 0.0, asyncio.Lock()

    async def listed(self) -> tuple[str, ...]:
        """The names, in order, as they were in the last seconds; "" if jobs have none."""
        async with self._lock:
            if monotonic_s() >= self._until_s:
                self._names = await self._read()
                self._until_s = monotonic_s() + FRESH_S
        return self._names

    async def _read(self) -> tuple[str, ...]:
        """The first names, by pages that begin after all tasks of a tenant."""
        names: dict[str, None] = {}
        asked = q.CountJobs(limit=PAGE_TASKS)
        while len(names) <= LISTED + 1 and (counts := await self._asking.ask_async(asked)):
            names |= dict.fromkeys(key.tenant for key, _ in counts)
            asked = q.CountJobs(limit=PAGE_TASKS, after_tenant=counts[-1][0].tenant, after_task=LAST_NAME)
        return tuple(islice(names, LISTED + 2))


async def is_known(view: View) -> bool:
    """Whether the tenant that is shown has anything in the store; always, where all are shown."""
    tenant = view.tenant
    if not tenant or tenant in view.tenants:
        return True
    # What most tenants have comes first: each is a query.
    asked: tuple[Any, ...] = (
        q.CountJobs(tenant=tenant, limit=1),
        q.ListSchedules(tenant=tenant, limit=1),
        q.ListLimits(tenant=tenant, limit=1),
        ListHandlers(tenant=tenant, limit=1),
        q.ListConsumers(tenant=tenant, limit=1),
    )
    for query in asked:
        if await view.ask(query):
            return True
    return any(whose == tenant for whose, *_ in await view.ask(q.ListPauses(tenant=tenant)))


def unknown(view: View) -> Markup:
    """What stands above a page of a tenant that does not exist."""
    name = user_text(view.tenant or "")
    return el("p", "Nothing in this store belongs to tenant ", name, ".", class_="problem", role="status")


def name_of(tenant: str | None) -> str:
    """A tenant in a sentence."""
    return "all tenants" if tenant is None else f"tenant {tenant}" if tenant else "no tenant"


def whose(view: View) -> str:
    """Whose things a page shows that belong to one tenant, after a noun; "": the store has no tenants."""
    if view.one_tenant:
        return f" of tenant {view.one_tenant}"
    return " without a tenant" if view.has_tenants else ""


def hint(view: View) -> Markup | None:
    """That a page shows what belongs to no tenant, where all tenants are chosen and there are some."""
    if view.tenant is not None or not view.has_tenants:
        return None
    return el("p", "Shown is what belongs to no tenant. Choose a tenant to see its own.", class_="note")


def switch(view: View, section: str) -> Markup:
    """The choice of a tenant, in the navigation; `section` is the path of the page's section."""
    label = join("Tenant: ", user_text("all" if view.tenant is None else view.tenant or "none"))
    if view.grant.tenant is not None:
        return el("p", label, class_="tenant")
    path = view.request.url.path.removeprefix(view.base)
    # A job, or the page after a form, belongs to one tenant: the choice leads to the list.
    kept = {name: view.param(name) or None for name in ("q", "span")} if path == section else {}
    choices: list[tuple[str | None, str]] = [(None, "All tenants")]
    choices += [("", "no tenant")] if view.has_tenants or view.tenant is not None else []
    choices += [(name, name) for name in view.tenants if name]
    links = [
        el(
            "li",
            el(
                "a",
                user_text(text) if tenant else text,
                href=view.url(section, **kept, tenant=tenant),
                aria_current="true" if tenant == view.tenant else None,
            ),
        )
        for tenant, text in choices[: LISTED + 1]
    ]
    more = len(choices) > len(links)
    other = el(
        "form",
        el("label", "More: type the name" if more else "Another", for_="tenant-name"),
        el("input", id="tenant-name", name="tenant", required=True, maxlength="255", autocomplete="off"),
        method="get",
        action=f"{view.base}{section}",
    )
    return el("details", el("summary", label), el("ul", links), other, class_="tenant")
