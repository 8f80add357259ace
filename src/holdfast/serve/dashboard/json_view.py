"""Data and results as people read them: JSON that folds, with secrets left out.

The values of keys such as `password` are not sent to the browser, unless a client that may manage jobs asks
for them. What is large is cut, with a link to all of it.
"""

import asyncio
from typing import Any

import msgspec

from ...core.job import Body
from ...core.redaction import HIDDEN, redact
from ...core.redaction import redact_named as redact_named
from ...core.units import counted
from .markup import Markup, el, join, user_text
from .parts import number

# What is shown of a value before a reader asks for all of it.
SHOWN_CHARS = 20_000
# A body that is larger is read in a thread.
LARGE_CHARS = 100_000
# Deeper values, and longer lists, are shown as text.
DEPTH, ITEMS = 12, 200
# A browser lays out only those blocks of a very long text that are seen; each begins a line.
BLOCK_CHARS = 20_000


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A body as it is shown: HTML, its text for copying, what was hidden and what was cut."""

    markup: Markup
    text: str
    hidden: int = 0
    cut: int = 0


async def show(body: Body | None, *, reveal: bool = False, whole: bool = False) -> Shown:
    """A body as people read it."""
    if body is None or len(body) <= LARGE_CHARS:
        return _show(body, reveal=reveal, whole=whole)
    # In a thread: other requests must not wait for megabytes of data.
    return await asyncio.to_thread(_show, body, reveal=reveal, whole=whole)


def _show(body: Body | None, *, reveal: bool, whole: bool) -> Shown:
    if body is None:
        return Shown(markup=el("p", "None was kept.", class_="none"), text="")
    if isinstance(body, bytes):
        text = body.hex(" ")
        lead = el("p", f"{number(len(body))} bytes, in hexadecimal:", class_="note")
        return _plain(text, whole=whole, lead=lead)
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        # As of a number that is too large: no secret can be found, so all of it counts as one.
        return _plain(body, whole=whole) if reveal else Shown(markup=user_text(HIDDEN), text="", hidden=1)
    hidden = 0
    if not reveal:
        value, hidden = redact(value)
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if len(text) > SHOWN_CHARS:
        shown = _plain(text, whole=whole)
        return Shown(markup=shown.markup, text=shown.text, hidden=hidden, cut=shown.cut)
    return Shown(markup=el("div", _tree(value, 0), class_="json", dir="ltr"), text=text, hidden=hidden)


def _plain(text: str, *, whole: bool, lead: Markup | None = None) -> Shown:
    cut = 0 if whole else max(len(text) - SHOWN_CHARS, 0)
    shown = text[:SHOWN_CHARS] if cut else text
    blocks = [shown[at : at + BLOCK_CHARS] for at in range(0, len(shown), BLOCK_CHARS)]
    inside = user_text(shown) if len(blocks) < 2 else [user_text(one, class_="block") for one in blocks]
    return Shown(markup=join(lead, el("pre", inside, tabindex="0")), text=shown, cut=cut)


def _tree(value: Any, depth: int, name: str | None = None, comma: bool = False) -> Markup:
    key = (
        join(user_text(msgspec.json.encode(name).decode(), class_="key"), ": ") if name is not None else None
    )
    end = "," if comma else ""
    if not isinstance(value, dict | list) or not value:
        return el("div", key, _leaf(value), end)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    size = f" {counted(len(value), 'field' if isinstance(value, dict) else 'item')} "
    items = list(value.items()) if isinstance(value, dict) else [(None, one) for one in value]
    if depth >= DEPTH or len(items) > ITEMS:
        return el("div", key, user_text(msgspec.json.encode(value).decode()), end)
    inside = [_tree(one, depth + 1, label, at < len(items) - 1) for at, (label, one) in enumerate(items)]
    return el(
        "details",
        el("summary", key, opening, el("span", f"{size}{closing}{end}", class_="folded")),
        el("div", inside, class_="inner"),
        el("div", closing, end),
        open=depth < 3 or None,
    )


def _leaf(value: Any) -> Markup:
    kind = (
        "text"
        if isinstance(value, str)
        else "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else "word"
    )
    if value == HIDDEN:
        kind = "hidden"
    text = msgspec.json.encode(value).decode() if value != HIDDEN else HIDDEN
    return user_text(text, class_=f"value {kind}")
