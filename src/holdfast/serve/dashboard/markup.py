"""HTML: `el("a", text, href=url)`. Only `Markup` goes into a page as it is; all other text is escaped.

Control characters are shown as pictures (␀), since HTML cannot contain them. Text of users is isolated
(`bdi`), so that right-to-left characters in it cannot reorder the text around it.
"""

from collections.abc import Iterable
from html import escape
from typing import Any

# Newlines and tabs stay; each other control character has a picture, or is replaced.
_PICTURES = {code: 0x2400 + code for code in range(32) if code not in (9, 10)}
_PICTURES |= {13: 0x240D, 127: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_PICTURES |= dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_EMPTY = {"input", "br", "hr", "meta", "link", "img"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def clean(value: object) -> str:
    """Text without characters that a page cannot contain."""
    return str(value).translate(_PICTURES)


def html(child: Any) -> str:
    """A child of an element as HTML: nothing for None and False, all of a list, escaped text."""
    if isinstance(child, Markup):
        return child
    if child is None or child is False:
        return ""
    if isinstance(child, str):
        return escape(clean(child))
    if isinstance(child, Iterable):
        return "".join(map(html, child))
    return escape(clean(child))


def join(*children: Any) -> Markup:
    """Children one after the other."""
    return Markup("".join(map(html, children)))


def el(tag: str, *children: Any, **attributes: Any) -> Markup:
    """An element: `class_` is `class`, `data_id` is `data-id`; True is a bare attribute, None is none."""
    words = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        written = name.removesuffix("_").replace("_", "-")
        words.append(written if value is True else f'{written}="{escape(clean(value))}"')
    opening = " ".join(words)
    if tag in _EMPTY:
        return Markup(f"<{opening}>")
    return Markup(f"<{opening}>{''.join(map(html, children))}</{tag}>")


def hidden(**fields: Any) -> Markup:
    """Fields of a form that are not shown; `from_` is `from`, None is none."""
    said = {name.removesuffix("_"): value for name, value in fields.items() if value is not None}
    return join([el("input", type="hidden", name=name, value=value) for name, value in said.items()])


def user_text(value: object, **attributes: Any) -> Markup:
    """Text that came from users, kept apart from the direction of the text around it."""
    return el("bdi", str(value), **attributes)
