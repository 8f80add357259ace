"""The words of a search, as people and others type them."""

import time

import pytest

from holdfast.core.errors import BadInput
from holdfast.serve.dashboard.search import SEARCH_CHARS, read_search

# Far more than a search takes, and far less than one that tries every way to part its words.
SOON_S = 5.0


def test_names_after_dots_are_a_path_into_the_data():
    """However many there are; a word without a value is a task."""
    found = read_search('data.user.id:42 data.a.b.c:"x y" mail.send.all')

    assert [tuple(one) for one in found.data] == [("user.id", "42"), ("a.b.c", "x y")]
    assert found.words == {"task": "mail.send.all"}


@pytest.mark.parametrize("word", ["a" + ".a" * 1_000, "data." * 1_000 + '"', "a" * 9_000, '"' + "\\" * 9_000])
def test_a_search_of_any_form_is_read_at_once(word):
    """All clients of the server wait for it."""
    began_s = time.monotonic()

    read_search(word)

    assert time.monotonic() - began_s < SOON_S


def test_a_search_has_a_limit():
    """The error says which."""
    read_search("a" * SEARCH_CHARS + "  \n")

    with pytest.raises(BadInput, match=r"search is '10,001 characters', and must be at most 10,000"):
        read_search("a" * (SEARCH_CHARS + 1))
