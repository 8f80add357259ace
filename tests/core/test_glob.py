"""Patterns of names: the same as SQLite's GLOB, and never slow."""

import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import GLOB_BYTES
from holdfast.core.checks import check_command
from holdfast.core.commands import Claim
from holdfast.core.errors import BadInput, TooLarge
from holdfast.core.glob import check_glob, is_wild, matches, span

LETTERS = "ab-]^[*?é\U0001f600"


@given(st.text(LETTERS, max_size=8), st.text(LETTERS, max_size=8))
def test_a_pattern_means_what_it_means_to_sqlite(pattern, name):
    """Every corner of it: sets, ranges, what is not closed."""
    with sqlite3.connect(":memory:") as db:
        (expected,) = db.execute("select ? glob ?", (name, pattern)).fetchone()
    db.close()

    assert matches(pattern, name) is bool(expected)


@given(st.text(LETTERS + "\ud7ff\U0010ffff", max_size=5), st.text(LETTERS + "\ue000", max_size=5))
def test_all_that_match_lie_in_the_span(pattern, name):
    """From the first on, below the end."""
    first, above = span(pattern)

    if matches(pattern, name):
        assert first <= name
        assert above is None or name < above


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("www-prod/*", ("www-prod/", "www-prod0")),
        ("*", ("", None)),
        ("a\U0010ffff?", ("a\U0010ffff", "b")),
        ("\U0010ffff*", ("\U0010ffff", None)),
        ("\ud7ff*", ("\ud7ff", "\ue000")),
        ("abc", ("abc", "abd")),
    ],
)
def test_the_span_of_a_pattern_is_that_of_its_beginning(pattern, found):
    """In the order of code points, which is that of UTF-8."""
    assert span(pattern) == found


def test_no_pattern_is_slow():
    """Not even one made to be."""
    started = time.process_time()

    assert not matches("*a" * 6_000 + "b", "a" * 255)

    assert time.process_time() - started < 1


def test_a_pattern_has_a_length_and_no_halves():
    """Bad ones are refused by name."""
    check_glob("x" * GLOB_BYTES)
    with pytest.raises(TooLarge, match="glob"):
        check_glob("x" * (GLOB_BYTES + 1))
    for wrong in ("", "\ud800", 5):
        with pytest.raises(BadInput, match="glob"):
            check_glob(wrong)  # type: ignore[arg-type]
    assert is_wild("a*")
    assert is_wild("[a]")
    assert not is_wild("a]b")


@pytest.mark.parametrize("more", [{"picks": (("", "a", 1),)}, {"tenants": ("t",)}])
def test_a_claim_goes_by_a_pattern_or_by_choice(more):
    """Both at once would mean something else in every store."""
    with pytest.raises(BadInput, match="glob"):
        check_command(Claim(glob="*", **more))
