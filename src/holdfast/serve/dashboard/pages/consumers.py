"""Indexed consumers: how far each has come, and how much is ahead of it."""

from ....core import queries as q
from ....core.indexed import Mark
from .. import parts, tenants
from ..markup import Markup, el, join, user_text
from ..view import Page, View


async def consumers(view: View) -> Page:
    """All consumers of a tenant."""
    found: dict[str, Mark] = await view.ask(q.ListConsumers(tenant=view.one_tenant))
    body = join(parts.heading("Consumers", lead=_lead(found)), tenants.hint(view), _table(view, found))
    return Page(title="Consumers", body=body, section="consumers")


def _lead(found: dict[str, Mark]) -> str | None:
    behind = sum(mark.lag for mark in found.values())
    return f"{len(found)} consumers, {parts.number(behind)} items behind." if found else None


def _table(view: View, found: dict[str, Mark]) -> Markup:
    if not found:
        hint = el("code", "holdfast.indexed.Progress(queue, name)")
        return parts.empty(
            f"No consumers{tenants.whose(view)}",
            join("A consumer is listed here once it has progress: ", hint),
        )
    rows = [
        (
            user_text(name),
            user_text(mark.log) if mark.log else el("span", "–", class_="none"),
            parts.number(mark.processed),
            parts.number(mark.head),
            parts.number(mark.lag),
            parts.number(mark.in_flight),
            f"{mark.per_s:,.1f}/s",
            parts.moment(mark.moved_ms, view.now_ms),
        )
        for name, mark in found.items()
    ]
    return parts.table(
        ("Consumer", "Log", "Processed", "Head", "Lag", "In flight", "Rate", "Moved"),
        rows,
        caption="Consumers",
        right=("Processed", "Head", "Lag", "In flight", "Rate"),
    )
