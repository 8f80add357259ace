"""What a page must have so that people can use it by keyboard and screen reader, checked in the browser."""

from typing import Any

from tests.browser.webdriver import Browser

# Roles whose elements must have a name that a screen reader can say.
NAMED = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "checkbox",
    "spinbutton",
    "img",
    "image",
    "region",
    "navigation",
}

# Contrast of all visible text with what is behind it: WCAG AA, 4.5 to 1, and 3 to 1 for large text.
CONTRAST = """
const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
const light = (c) => { const f = part;
  return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const behind = (element) => { for (let e = element; e; e = e.parentElement) {
  const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; }
  return [255, 255, 255]; };
const bad = [];
for (const element of document.querySelectorAll("body *")) {
  const says = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!says || element.closest(".unseen, .skip, svg, [hidden]") || !element.getClientRects().length) continue;
  const style = getComputedStyle(element), a = light(parse(style.color)), b = light(behind(element));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.5 && style.fontWeight >= 700);
  const what = `${element.tagName}.${element.className} ${element.innerText.slice(0, 30)}`;
  if (ratio < (large ? 3 : 4.5)) bad.push(`${what}: contrast ${ratio.toFixed(2)}`);
}
return bad;
"""

STRUCTURE = """
const bad = [];
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
for (const id of new Set(ids)) if (ids.filter((one) => one === id).length > 1) bad.push(`id ${id} twice`);
if (document.querySelectorAll("h1").length !== 1) bad.push("not one h1");
if (document.querySelectorAll("main").length !== 1) bad.push("not one main");
if (!document.documentElement.lang) bad.push("no lang");
if (!document.title) bad.push("no title");
for (const field of document.querySelectorAll("input:not([type=hidden]), textarea, select")) {
  const isNamed = field.labels.length || field.getAttribute("aria-label") || field.closest("[aria-hidden]");
  if (!isNamed) bad.push(`no label: ${field.name}`);
}
for (const named of document.querySelectorAll("button[aria-label], a[aria-label]")) {
  const shown = named.innerText.trim(), name = named.getAttribute("aria-label");
  if (!name.includes(shown)) bad.push(`${name} does not contain what is shown: ${shown}`);
}
for (const head of document.querySelectorAll("th"))
  if (!head.textContent.trim()) bad.push("a column without a name");
for (const link of document.querySelectorAll("main p a, main dd a, main li a, main td a")) {
  const text = [...link.parentElement.childNodes].some((n) => n.nodeType === 3 && n.data.trim().length > 2);
  const isDrawn = getComputedStyle(link).textDecorationLine !== "none" || link.matches(".button");
  if (text && !isDrawn && link.getClientRects().length) bad.push(`a link by colour alone: ${link.innerText}`);
}
for (const box of document.querySelectorAll("main *")) {
  if (box.tabIndex >= 0 || !box.clientHeight || box.scrollHeight <= box.clientHeight + 1) continue;
  const isReached = box.querySelector("a, button, input, [tabindex='0']");
  if (!isReached && /auto|scroll/.test(getComputedStyle(box).overflowY))
    bad.push(`scrolls, and keys do not reach it: ${box.className}`);
}
for (const hidden of document.querySelectorAll("[aria-hidden=true]"))
  if (hidden.matches("a[href], button, input, textarea:not([tabindex='-1'])"))
    bad.push("hidden, but gets the focus");
for (const table of document.querySelectorAll("table"))
  if (!table.caption) bad.push("a table without a caption");
const page = document.documentElement;
if (page.scrollWidth > page.clientWidth + 1) bad.push("wider than the window");
return bad;
"""


# The looks that each page is checked in: the width of the window, and whether the system is dark.
LOOKS = ((1280, False), (390, True))


def findings(browser: Browser) -> list[str]:
    """What is wrong with the page that is open, in any look; the page is loaded once."""
    found = [f"{_value(node, 'role')} without a name" for node in browser.tree() if _is_nameless(node)]
    for width, dark in LOOKS:
        browser.resize(width, 900)
        browser.dark(dark)
        bad = browser.run(f"return (() => {{{STRUCTURE}}})().concat((() => {{{CONTRAST}}})())")
        found += [f"{width} wide, {'dark' if dark else 'light'}: {one}" for one in bad]
    return found


def _is_nameless(node: dict[str, Any]) -> bool:
    return _value(node, "role") in NAMED and not _value(node, "name").strip()


def _value(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))
