"""Documents name files that exist, and link to pages that do."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
# Where a file that a document names may be.
FOLDERS = ("", "src/holdfast", "tests")
FILE = re.compile(r"`((?:\w+/)+\w+\.(?:py|sql|lua|proto))`")
LINK = re.compile(r"\]\((?!\w+:)([^)#:\s]+)[^)]*\)")


def missing_in(page: Path) -> list[str]:
    """What a page names that is not there. `STORE` stands for any store."""
    text = page.read_text()
    files = [name.replace("STORE", "memory") for name in FILE.findall(text)]
    lost = [name for name in files if not any((ROOT / folder / name).exists() for folder in FOLDERS)]
    return lost + [link for link in LINK.findall(text) if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    """A file that was moved or removed is not looked for in vain."""
    assert missing_in(page) == []


def test_what_is_not_there_is_found(tmp_path):
    """Files and links alike."""
    page = tmp_path / "page.md"
    page.write_text("See `core/nowhere.py`, `core/rules.py` and [that](gone.md), not `python -m x`.")

    assert missing_in(page) == ["core/nowhere.py", "gone.md"]
