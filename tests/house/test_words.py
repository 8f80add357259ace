"""What is written speaks of the project alone, its links lead somewhere, and changes are told."""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.house.source import ROOT, plant

# Folders that tools make.
NOT_OURS = {".git", ".venv", ".cache", ".hypothesis", "__pycache__", "build", "dist", "node_modules"}

# Put together here, so that this file may be searched too.
REGISTRIES = ["pypi" + ".org", "python" + "hosted", "npm" + "js", "debian" + ".org", "ubuntu" + ".com"]
REGISTRIES += ["crates" + ".io", "ruby" + "gems", "conda" + ".org", "docker" + ".io"]
HOMES = ["work", "root", r"home/\w+", r"Users/\w+"]

FORBIDDEN = {
    "a package registry's host": re.compile("|".join(map(re.escape, REGISTRIES)), re.IGNORECASE),
    # Not after a word or a dot: src/holdfast/work/ and ../work/ are folders of ours.
    "a path of one machine": re.compile(r"(?<![\w.~*}])/(?:" + "|".join(HOMES) + r")/"),
    "the mark of a merge": re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)"),
}

CODE = re.compile(r"^ *(`{3,}).*?^ *\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|^\[[^\]]+\]: *(\S+)", re.MULTILINE)


def files(root: Path, pattern: str = "*") -> Iterator[Path]:
    """All files below a folder but those that tools make."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(set(below) - NOT_OURS)
        yield from (Path(folder, name) for name in sorted(set(names) - NOT_OURS) if fnmatch(name, pattern))


def strangers(root: Path) -> list[str]:
    """Words that bind a file to one machine or one registry, as complaints."""
    complaints = []
    for path in files(root):
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), start=1):
            for what, pattern in FORBIDDEN.items():
                if pattern.search(line):
                    complaints.append(f"{path.relative_to(root)}:{number} names {what}: {line.strip()}")
    return complaints


def dead_links(root: Path) -> list[str]:
    """Links of Markdown files to files that do not exist, as complaints."""
    complaints = []
    for path in files(root, "*.md"):
        for match in LINK.finditer(CODE.sub("", path.read_text("utf-8"))):
            target = match[1] or match[2]
            place = target.partition("#")[0]
            if not re.match(r"[a-z]+:", target) and place and not (path.parent / place).exists():
                complaints.append(f"{path.relative_to(root)} links to {target}, which is not there")
    return complaints


def test_the_project_speaks_of_itself_alone():
    """No registry's host, no path of somebody's machine, in any file."""
    assert strangers(ROOT) == []


def test_links_lead_somewhere():
    """Relative links, in every Markdown file."""
    assert dead_links(ROOT) == []


def test_the_change_log_has_room_for_the_next_change():
    """Whoever changes something finds where to say so."""
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize(
    "line",
    [
        "pip install --index-url https://" + "PyPI" + ".org/simple",
        '"resolved": "https://registry.' + "npm" + 'js.org/x"',
        "deb http://deb." + "debian" + ".org stable",
        "cd /" + "work/main",
        'open("/' + 'root/x")',
        "PATH=/home" + "/kim/bin",
        "<" * 7 + " HEAD",
    ],
)
def test_a_stranger_is_found(tmp_path, line):
    """In files of every kind and folder, hidden ones too; not in what tools make."""
    plant(tmp_path, {".ci/run": f"one\n{line}\n", ".venv/x.cfg": line, "src/__pycache__/x": line})

    found = strangers(tmp_path)

    assert len(found) == 1
    assert found[0].startswith(".ci/run:2 names ")


def test_our_own_folders_are_no_strangers(tmp_path):
    """A room is called `work`, and paths lead there."""
    plant(tmp_path, {"a.md": "src/holdfast/work/worker.py, ../work/x, {room}/work/y, /usr/bin/env"})

    assert strangers(tmp_path) == []


def test_a_dead_link_is_found(tmp_path):
    """In text and in reference lists; not in code, elsewhere in the web or inside the page."""
    text = """[a](docs/there.md#part) [b](docs/gone.md "title")
[c](https://example.com/x) [d](#here) `[e](no.md)`

```python
f = links[0](no.md)
```

[g]: ./gone.md
"""
    plant(tmp_path, {"README.md": text, "docs/there.md": "[up](../README.md) [down](down.md)"})

    assert dead_links(tmp_path) == [
        "README.md links to docs/gone.md, which is not there",
        "README.md links to ./gone.md, which is not there",
        "docs/there.md links to down.md, which is not there",
    ]
