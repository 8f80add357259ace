"""Settings: tokens, retention, the store, and who did what."""

from typing import Any

from ....core import queries as q
from ....core.access import Scope
from ....core.bounds import DAY_MS, HOUR_MS
from ....core.errors import Forbidden
from ....core.queries import GetRetention
from .. import audit, parts
from ..layout import form
from ..markup import Markup, el, hidden, join, user_text
from ..view import Page, View


async def settings(view: View) -> Page:
    """Settings, as far as the client may see them."""
    body = join(
        parts.heading("Settings"),
        await _tokens(view),
        await _retention(view),
        await _audit(view),
        await _store(view),
    )
    return Page(title="Settings", body=body, section="settings", live=None)


async def _tokens(view: View) -> Markup | None:
    try:
        found, following = await parts.page(view, q.ListTokens(after_name=view.param("after")))
    except Forbidden:
        return parts.card(
            "Tokens", el("p", "Tokens are managed by clients with a token for all tenants.", class_="note")
        )
    listed = [
        (
            user_text(one.name),
            "all" if one.tenant is None else user_text(one.tenant or "(none)"),
            ", ".join(one.scopes),
            parts.moment(one.created_at, view.now_ms),
            parts.moment(one.expires_at, view.now_ms) if one.expires_at else "never",
            _revoke(view, one.name),
        )
        for one in found
    ]
    table = (
        parts.table(("Name", "Tenant", "Scopes", "Created", "Expires", ""), listed, caption="Tokens")
        if listed
        else parts.empty("No tokens", "Without one, only clients on this machine may connect.")
    )
    return parts.card(
        "Tokens", table, parts.turn(view, "/settings", following, after="after_name"), _create(view)
    )


def _revoke(view: View, name: str) -> Markup:
    gone = parts.button("Revoke", kind="small danger", said=f"Revoke {name}")
    asked = f"Revoke token {name}?"
    return form(view, "/settings/tokens/revoke", hidden(name=name), gone, data_confirm=asked)


def _create(view: View) -> Markup:
    is_refused = "expires" in view.form
    ticked = view.form.get("scope", []) if is_refused else list(Scope)
    boxes = [
        el(
            "label",
            el("input", type="checkbox", name="scope", value=scope.value, checked=scope in ticked),
            scope.value,
        )
        for scope in Scope
        if view.allows(scope)
    ]
    return el(
        "details",
        el("summary", "Create a token"),
        form(
            view,
            "/settings/tokens/create",
            el("label", "Name", for_="token-name"),
            _field(view, "name", maxlength="64", required=True),
            el("label", "Tenant; empty for all", for_="token-tenant"),
            _field(view, "tenant", maxlength="255"),
            el("fieldset", el("legend", "Scopes"), boxes),
            el("label", "Expires in, such as 90d; empty for never", for_="token-expires"),
            _field(view, "expires", maxlength="32"),
            parts.button("Create token", kind="primary"),
            class_="fields",
        ),
        open=is_refused,
    )


def _field(view: View, name: str, **attributes: Any) -> Markup:
    """A field of the form that creates a token."""
    value = view.typed(name, None)
    return el("input", id=f"token-{name}", name=name, value=value, autocomplete="off", **attributes)


def created(view: View, name: str, secret: str) -> Page:
    """The page that shows a new secret, once."""
    body = join(
        parts.heading("Token created", lead=user_text(name)),
        parts.card(
            "The secret",
            el("p", "Copy it now. It is not shown again; the store keeps only its hash."),
            el("pre", secret, class_="mono copy", tabindex="0", data_copy=secret),
            el("p", el("a", "Back to settings", href=view.url("/settings"))),
        ),
    )
    return Page(title="Token created", body=body, section="settings", live=None)


async def _retention(view: View) -> Markup:
    kept_ms: int = await view.ask(GetRetention())
    keeps = form(
        view,
        "/settings/retention",
        el("label", "Keep ended jobs for, such as 7d; 0: not at all", for_="retention"),
        _duration_field("retention", view.typed("retention", _text_of(kept_ms))),
        parts.button("Set retention", kind="primary"),
        class_="fields",
        data_confirm="Change how long ended jobs are kept, for all tenants?",
    )
    purge = form(
        view,
        "/settings/purge",
        el("label", "Delete finished and cancelled jobs that ended more than this ago", for_="older"),
        _duration_field("older", view.typed("older", None), placeholder="12h"),
        parts.button("Delete", kind="danger"),
        class_="fields",
        data_confirm="Delete old jobs?",
    )
    return parts.card(
        "Retention",
        el("p", f"Jobs that finished or were cancelled are kept for {parts.span(kept_ms)}."),
        el("p", "Failed jobs are kept until they are retried, cancelled or deleted."),
        keeps if view.can_manage and view.grant.tenant is None else None,
        purge if view.can_manage else None,
    )


def _duration_field(name: str, value: Any, **more: str) -> Markup:
    return el("input", id=name, name=name, required=True, value=value, maxlength="32", **more)


def _text_of(ms: int) -> str:
    """A duration as people write it in a form."""
    for size, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (1000, "s")):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


async def _audit(view: View) -> Markup:
    found = await audit.latest(view)
    if not found:
        return parts.card("Audit log", parts.empty("No actions yet", "What people do here is written down."))
    listed = [
        (parts.moment(one.at, view.now_ms), user_text(one.who), one.action, user_text(_said(one.fields)))
        for one in found
    ]
    return parts.card(
        "Audit log", parts.table(("When", "Who", "Action", "What"), listed, caption="Audit log")
    )


def _said(fields: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in fields.items()) if isinstance(fields, dict) else ""


async def _store(view: View) -> Markup | None:
    if view.param("report") != "yes":
        # It reads much of the store, so only when a reader asks for it.
        link = el("a", "Check the store", href=view.url("/settings", report="yes"))
        return parts.card("Store", el("p", link)) if view.grant.tenant is None else None
    try:
        facts, complaints = await view.ask(q.GetReport())
    except Forbidden:
        return None
    warnings = [el("p", user_text(one), class_="problem") for one in complaints]
    return parts.card(
        "Store", warnings, parts.facts((name, user_text(value)) for name, value in facts.items())
    )
