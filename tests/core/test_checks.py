"""Checks of bodies from other processes."""

import random

import msgspec
import pytest

from holdfast.core.checks import INT_DIGITS, check_numbers
from holdfast.core.errors import BadInput

PARTS = (
    *('"', '\\"', "\\\\", ",", "[", "]", " ", "-", "0", ".5", "e5", "e-9", "1e400", "1e30", "1e3000"),
    *("9" * 310, "9" * INT_DIGITS),
)


def test_numbers_are_refused_that_cannot_be_read():
    """Of JSON made of strings, escapes and numbers at random: just what a reader refuses."""
    rng = random.Random(1)
    seen = {True: 0, False: 0}
    while min(seen.values()) < 300:
        text = "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 8)))
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except msgspec.DecodeError:
            continue
        try:
            msgspec.json.decode(text)
            can_be_read = True
        except msgspec.ValidationError:
            can_be_read = False
        seen[can_be_read] += 1

        if can_be_read:
            check_numbers("data", text)
        else:
            with pytest.raises(BadInput, match="out of range"):
                check_numbers("data", text)
