"""Indexed consumers: how far each has come, and how much is ahead of it."""

from ....core import queries as q
from ....core.indexed import Mark
from .. import parts, tenants
from ..markup import Markup, el, join, user_text
from ..view import Page, View


async def consumers(view: View) -> Page:
    """A page of the consumers of a tenant."""
    asked = q.ListConsumers(tenant=view.one_tenant, after_name=view.param("after"))
    found, following = await parts.page(view, asked)
    body = join(
        parts.heading("Consumers"),
        tenants.hint(view),
        _table(view, found),
        parts.turn(view, "/consumers", following, after="after_name"),
    )
    return Page(title="Consumers", body=body, section="consumers")


def _table(view: View, found: dict[str, Mark]) -> Markup:
    if not found:
        hint = el("code", "holdfast.indexed.Progress(queue, name)")
        return parts.empty(
            f"No consumers{tenants.whose(view)}",
            join("A consumer is listed here once it has progress: ", hint),
        )
    listed = [
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
        listed,
        caption="Consumers",
        right=("Processed", "Head", "Lag", "In flight", "Rate"),
    )
