"""Sizes as users write them: 500MB, 1.5 GB, 512MiB, or a number of bytes."""

import re

from .errors import BadInput

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
# Longer numbers are refused unparsed.
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([a-z]{0,3})")
MAX_SIZE = 2**50


def size_bytes(text: str, *, name: str, least: int = 1) -> int:
    """A size in bytes. `name` is for the error."""
    match = _SIZE.fullmatch(text.strip().lower())
    unit = _UNITS.get(match[2]) if match else None
    found = int(float(match[1]) * unit) if match and unit else 0
    if not least <= found <= MAX_SIZE:
        bound = f", at least {size_text(least)}" if least > 1 else ""
        raise BadInput(name, text, needed=f"a size such as 500MB, 1.5GB or 512MiB{bound}")
    return found


def size_text(count: int) -> str:
    """A size for display."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count} B"
