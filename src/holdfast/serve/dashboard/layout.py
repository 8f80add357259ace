"""The frame of every page: navigation, theme, and the headers that keep a browser to the page's own files."""

import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.responses import Response

from . import tenants
from .markup import Markup, el, hidden, join, user_text
from .parts import icon
from .view import Page, View

STATIC = Path(__file__).with_name("static")
TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

# Nothing but the page's own files: no inline script or style, no frame, no form to elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

SECTIONS = (
    ("overview", "/", "Overview"),
    ("jobs", "/jobs", "Jobs"),
    ("tasks", "/tasks", "Tasks"),
    ("schedules", "/schedules", "Schedules"),
    ("limits", "/limits", "Limits"),
    ("workers", "/workers", "Workers"),
    ("handlers", "/handlers", "Stored handlers"),
    ("consumers", "/consumers", "Consumers"),
    ("journal", "/journal", "Journal"),
    ("settings", "/settings", "Settings"),
)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file of the page, and a mark of its content, by which browsers keep it."""
    raw = (STATIC / name).read_bytes()
    return raw, sha256(raw).hexdigest()[:12]


def asset_url(base: str, name: str) -> str:
    """The address of a file of the page."""
    return f"{base}/static/{name}?v={asset(name)[1]}"


def render(view: View, page: Page) -> Response:
    """A page in its frame."""
    body = el(
        "body",
        el("a", "Skip to content", href="#content", class_="skip"),
        _header(view, page),
        el(
            "main",
            el("div", id="notice", role="status", aria_live="polite", class_="toast", hidden=True),
            el("p", "Tenant ", user_text(view.tenant or "none"), class_="tenant")
            if view.tenant is not None
            else None,
            el("div", page.body, id="live"),
            id="content",
            tabindex="-1",
        ),
        _footer(view),
        data_base=view.base,
        data_live=None if page.live is None else page.live or "counts",
        data_tenant=view.tenant,
    )
    title = f"{page.title} · {view.tenant}" if view.tenant else page.title
    return respond(view.base, title, body, page.status)


def respond(base: str, title: str, body: Markup, status: int = 200) -> Response:
    """A document with the headers of all pages."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} · Holdfast"),
        el("link", rel="icon", href=asset_url(base, "icon.svg"), type="image/svg+xml"),
        el("link", rel="stylesheet", href=asset_url(base, "style.css")),
        el("script", src=asset_url(base, "app.js"), defer=True),
    )
    text = join(Markup("<!doctype html>\n"), el("html", head, body, lang="en"))
    return Response(text.encode("utf-8", "replace"), status, dict(HEADERS), "text/html; charset=utf-8")


def _header(view: View, page: Page) -> Markup:
    links = [
        el(
            "a",
            icon(name),
            el("span", label),
            href=view.url(path),
            aria_current="page" if name == page.section else None,
        )
        for name, path, label in SECTIONS
    ]
    return el(
        "header",
        el("a", icon("holdfast"), el("span", "Holdfast"), href=view.url("/"), class_="brand"),
        tenants.switch(view, next((path for name, path, _ in SECTIONS if name == page.section), "/")),
        el("nav", links, aria_label="Pages"),
        el(
            "div",
            el("span", "Live", id="live-state", class_="live", hidden=True),
            el("button", "Pause", id="live-toggle", type="button", class_="quiet", hidden=True),
            el("button", "Times", id="times-toggle", type="button", class_="quiet", hidden=True),
            el("button", "Theme", id="theme-toggle", type="button", class_="quiet", hidden=True),
            class_="tools",
        ),
        class_="side",
    )


def _footer(view: View) -> Markup:
    who = view.grant.name or "this machine"
    out = None
    if view.session is not None:
        out = form(view, "/sign-out", el("button", "Sign out", class_="link"))
    return el(
        "footer",
        el("span", f"Holdfast {sys.modules['holdfast'].__version__}"),
        el("span", view.store, class_="mono") if view.store else None,
        el("span", f"{who} · {tenants.name_of(view.tenant)}"),
        out,
    )


def form(view: View, path: str, *children: object, **attributes: object) -> Markup:
    """A form that does something: with the token that only a page of this session can know.

    A form that another form has led to, as a question does, leads back to where the first one was.
    """
    here = view.request.url.path + ("?" + view.request.url.query if view.request.url.query else "")
    kept = hidden(csrf=view.form_token, back=view.field("back") or here)
    return el("form", kept, *children, method="post", action=view.url(path), **attributes)
