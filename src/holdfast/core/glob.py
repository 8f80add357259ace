"""Name patterns with the syntax of SQLite's GLOB: case-sensitive, and the whole name must match.

    *        any characters, or none            [abc]  [a-z]   one of these
    ?        one character                      [^abc]         one character that is none of these

A pattern with an unclosed `[` matches nothing. Matching takes at most the length of the pattern times that of
the name.
"""

from functools import lru_cache
from typing import NamedTuple

from .bounds import GLOB_BYTES
from .errors import BadInput, TooLarge

WILD = frozenset("*?[")
_STAR = None


class _CharSet(NamedTuple):
    """A set of characters: those in `ranges`, or, if inverted, all others."""

    ranges: tuple[tuple[str, str], ...]
    inverted: bool = False

    def contains(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) is not self.inverted


_ANY, _NOTHING = _CharSet((), inverted=True), _CharSet(())


def check_glob(pattern: str) -> None:
    """Refuse a value that is not a pattern or is too long."""
    if not isinstance(pattern, str) or not pattern:
        raise BadInput("glob", pattern, needed="a pattern of at least one character")
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        raise BadInput("glob", "text with lone surrogates", needed="text that is UTF-8") from None
    if size > GLOB_BYTES:
        raise TooLarge("glob", f"{size:,} bytes", needed=f"at most {GLOB_BYTES:,} bytes")


def is_wild(pattern: str) -> bool:
    """Whether a pattern can match more than the name equal to it."""
    return not WILD.isdisjoint(pattern)


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern."""
    steps = _parse(pattern)
    if steps is None:
        return False
    at = step = 0
    # Where to continue if the part after the last * does not match: only the last * needs backtracking.
    star = after = -1
    while at < len(name):
        wanted = steps[step] if step < len(steps) else _NOTHING
        if wanted is _STAR:
            star, after, step = step, at, step + 1
        elif wanted.contains(name[at]):
            at, step = at + 1, step + 1
        elif star >= 0:
            after += 1
            at, step = after, star + 1
        else:
            return False
    return all(left is _STAR for left in steps[step:])


def span(pattern: str) -> tuple[str, str | None]:
    """The range of names that may match: its first name, and the first one above it; None: unbounded."""
    end = next((at for at, char in enumerate(pattern) if char in WILD), len(pattern))
    return pattern[:end], first_above(pattern[:end])


def first_above(prefix: str) -> str | None:
    """The first text above all texts that begin with a prefix; None: there is none.

    By code points, which is also the order of UTF-8 bytes.
    """
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] != "\U0010ffff":
            following = ord(prefix[at]) + 1
            # Surrogates are not characters.
            return prefix[:at] + chr(0xE000 if following == 0xD800 else following)
    return None


def as_regex(pattern: str) -> str | None:
    """The pattern as a regular expression for PostgreSQL or Python; None: it matches nothing."""
    steps = _parse(pattern)
    parts = [".*" if step is _STAR else _class_of(step) for step in steps or ()]
    return None if steps is None or None in parts else f"^{''.join(map(str, parts))}$"


def _class_of(one: _CharSet) -> str | None:
    """A set of characters as a regular expression; None: it is empty."""
    ranges = "".join(f"\\U{ord(low):08x}-\\U{ord(high):08x}" for low, high in one.ranges if low <= high)
    if not ranges:
        return "." if one.inverted else None
    return f"[{'^' if one.inverted else ''}{ranges}]"


@lru_cache(maxsize=1024)
def _parse(pattern: str) -> tuple[_CharSet | None, ...] | None:
    """The parsed pattern; None: it matches nothing."""
    steps: list[_CharSet | None] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "[":
            found = _parse_set(pattern, at)
            if found is None:
                return None
            one, at = found
            steps.append(one)
        elif char != "*":
            steps.append(_ANY if char == "?" else _CharSet(((char, char),)))
        elif not steps or steps[-1] is not _STAR:
            steps.append(_STAR)
    return tuple(steps)


def _parse_set(pattern: str, at: int) -> tuple[_CharSet, int] | None:
    """The set between [ and ], and the position after it; None: it is not closed."""
    inverted = pattern[at : at + 1] == "^"
    at += inverted
    ranges: list[tuple[str, str]] = []
    if pattern[at : at + 1] == "]":  # a ] that comes first is a member of the set
        ranges.append(("]", "]"))
        at += 1
    begun = ""
    while at < len(pattern) and pattern[at] != "]":
        char = pattern[at]
        following = pattern[at + 1 : at + 2]
        if char == "-" and begun and following not in ("", "]"):
            ranges.append((begun, following))
            begun = ""
            at += 2
        else:
            ranges.append((char, char))
            begun = char
            at += 1
    return (_CharSet(tuple(ranges), inverted), at + 1) if at < len(pattern) else None
