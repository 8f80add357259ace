"""Limits of domains: what is allowed, used and held back."""

from ....core import queries as q
from ....core.errors import BadInput
from ....core.limits import Limit, is_pattern, limit_text
from ....core.units import counted
from .. import parts, tenants
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View

PAUSES_SHOWN = 100


async def limits(view: View) -> Page:
    """A page of the limits of a tenant, or that of one domain; and the pauses."""
    name = view.param("domain")
    asked = q.ListLimits(
        tenant=view.one_tenant,
        domain=name.encode(errors="replace") if name else None,
        after_domain=_read_domain(view.param("after")),
    )
    found, following = await parts.page(view, asked)
    pauses: list[q.Paused] = await view.ask(q.ListPauses(tenant=view.tenant))
    body = join(
        parts.heading("Limits", lead=_lead(found) if found and parts.is_whole(view, following) else None),
        tenants.hint(view),
        _find(view, name),
        _table(view, found, name),
        parts.turn(view, "/limits", following, after="after_domain"),
        _pauses(pauses),
        _edit(view, await find_limit(view, view.param("edit"))) if view.can_manage else None,
    )
    return Page(title="Limits", body=body, section="limits", live="limits")


def _lead(found: list[q.LimitLoad]) -> str:
    held = sum(one.held for one in found)
    return f"{counted(len(found), 'limit')}, {counted(held, 'job')} held back."


def _read_domain(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadInput("after", text, needed="the domain that a page of limits ends with") from None


def _find(view: View, name: str) -> Markup:
    box = {"id": "find-domain", "name": "domain", "value": name, "placeholder": "api.example.com"}
    return parts.search_form(view, "/limits", "Find", "Limit of a domain", **box)


def _table(view: View, found: list[q.LimitLoad], name: str) -> Markup:
    if not found and name:
        return parts.empty("No limit", join(user_text(name), " has none, and no pattern matches it."))
    if not found:
        hint = el("code", "holdfast limit api.example.com --rate 10/s --concurrency 4")
        return parts.empty(f"No limits{tenants.whose(view)}", join("Set one: ", hint))
    listed = []
    for one in found:
        name = one.domain.decode(errors="replace")
        search = view.url("/jobs", q=f"state:held {parts.qualifier('domain', name)}")
        more = "+" if one.is_partial else ""
        number = join(parts.number(one.held), more)
        # Jobs are not found by patterns.
        held = (
            el("a", number, href=search)
            if one.held and not is_pattern(one.domain)
            else el("span", number, class_=None if one.held else "none")
        )
        listed.append(
            (
                user_text(name),
                limit_text(one.limit),
                _used(one),
                held,
                el("div", _edit_link(view, name), _lift(view, name), class_="actions")
                if view.can_manage
                else None,
            )
        )
    return parts.table(
        ("Domain", "Limit", "Running", "Held back", ""), listed, caption="Limits", right=("Held back",)
    )


def _used(one: q.LimitLoad) -> Markup:
    most = one.limit.concurrency
    if not most or is_pattern(one.domain):
        # Each domain of a pattern may have as many as its limit says.
        return el("span", parts.number(one.running), "+" if one.is_partial else "")
    text = f"{one.running:,} of {most:,}"
    return join(parts.bar(one.running / most, f"{text} run"), el("span", text, class_="note"))


def _lift(view: View, name: str) -> Markup:
    said = f"Lift the limit of {name}"
    gone = parts.button("Lift", kind="small danger", said=said)
    return form(view, "/limits/lift", hidden(domain=name), gone, data_confirm=f"{said}?")


def _pauses(pauses: list[q.Paused]) -> Markup | None:
    if not pauses:
        return None
    listed = []
    for tenant, task, domain in pauses[:PAUSES_SHOWN]:
        what = f"task {task}" if task is not None else "all tasks"
        if domain is not None:
            what = f"domain {domain.decode(errors='replace')}"
        whose = "all tenants" if tenant is None else f"tenant {tenant}" if tenant else ""
        listed.append((user_text(what), user_text(whose)))
    left = len(pauses) - PAUSES_SHOWN
    more = el("p", f"{left:,} more pauses are not shown.", class_="note") if left > 0 else None
    return parts.card("Paused", parts.table(("What", "Whose"), listed, caption="Pauses"), more)


def _edit_link(view: View, name: str) -> Markup:
    at = view.url("/limits", edit=name) + "#set"
    return el("a", "Edit", href=at, class_="button small", aria_label=f"Edit the limit of {name}")


async def find_limit(view: View, name: str) -> q.LimitLoad | None:
    """The limit that a domain or pattern has of its own."""
    domain = name.encode(errors="replace")
    found: list[q.LimitLoad] = []
    if name:
        found = await view.ask(q.ListLimits(tenant=view.one_tenant, domain=domain))
    return next((one for one in found if one.domain == domain), None)


def _edit(view: View, edited: q.LimitLoad | None) -> Markup:
    """The form that sets a limit; of one that is edited it has the values."""
    name = "" if edited is None else edited.domain.decode(errors="replace")
    limit = Limit() if edited is None else edited.limit
    rate = "" if limit.rate is None else f"{limit.rate:.17g}"
    numbers = (limit.burst if edited else "", "" if limit.concurrency is None else limit.concurrency)
    return parts.card(
        f"Edit the limit of {name}" if name else "Set a limit",
        form(
            view,
            "/limits/set",
            hidden(edits=view.typed("edits", name)),
            el("label", "Domain, or a pattern such as *.example.com", for_="domain"),
            _field(view, "domain", name, required=True, maxlength="1024"),
            el("label", "Starts a second, such as 10 or 0.5", for_="rate"),
            _field(view, "rate", rate, inputmode="decimal"),
            el("label", "Burst", for_="burst"),
            _field(view, "burst", numbers[0], type="number", min="1"),
            el("label", "Running at once", for_="concurrency"),
            _field(view, "concurrency", numbers[1], type="number", min="0"),
            parts.button("Set limit", kind="primary"),
            class_="fields",
        ),
        id="set",
    )


def _field(view: View, name: str, value: object, **attributes: object) -> Markup:
    return el("input", id=name, name=name, value=view.typed(name, value), **attributes)
