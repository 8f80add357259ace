"""Documents are in plain words and about the project alone, their links work, and changes are logged."""

import ast
import io
import os
import re
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import click
import pytest

from holdfast.cli.app import app
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
    "the mark of a merge": re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)", re.MULTILINE),
}

# Words and phrases that engineers of this field do not use, and what to write instead. A sentence names its
# subject (the process, thread, worker or caller) and uses the words that people search for.
DIALECT = {
    "one who|those who|who waits|who comes|whoever|whomever": "the process, worker or caller that …",
    "somebody|anybody": "a user, another process",
    "nobody": "no process, no worker",
    "one that waits|who listens": "a waiting process",
    "without more ado": "on the fast path",
    "in vain": "it failed permanently",
    "words of ends": "completions",
    "lay to rest|lays to rest|laid to rest": "cancel, or mark as failed",
    "has a say|have a say": "matters, applies",
    "their business": "allowed",
    "so many|so much|so seldom|so often": "the number, or `N`",
    "goes along|all goes on": "moves, continues",
    "is told|are told|was told|were told": "is notified, gets an error",
    "last word|own word|leaves word|leave word|no word": "notification, answer",
    "a look|looks after|look after": "poll, check, read",
    "made up for": "run later",
    "not well": "unhealthy",
    "mend|mends|mended|put right": "fix, repair",
    "anew": "again",
    "hand out|hands out|handed out|hand-out|hand-outs": "claim",
    "innocent|poisonous": "a job that succeeds, a job that kills its process",
    "errand|errands": "a command that takes several steps",
    "gifts": "prefetched jobs",
    "door|doors": "port, server, interface",
    "whose turn": "which tenant or task is next",
    "what is due|what runs|what waits|what follows": "due jobs, running jobs, waiting jobs, follow-up jobs",
    "be said|said again|unless said|say the same": "repeat the command, by default",
    "in as few|as may be": "batches",
    "the way of": "the path of",
    "lets them go|let them go|let loose": "queues them",
    "stands still|stand still|stood still": "does not change, waits",
    "signpost|before your eyes|beyond help": "the plain fact",
}
PHRASES = {
    re.compile(rf"(?<![\w-])(?:{phrases})(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE): instead
    for phrases, instead in DIALECT.items()
}
# Any of them in a whole file, also over the line ends of comments: most files have none, and are not parsed.
PERHAPS = re.compile(rf"(?<![\w-])(?:{'|'.join(DIALECT)})(?![\w-])".replace(" ", r"[\s#-]+"), re.IGNORECASE)
PAGES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"),
    *("docs/*.md", "docs/decisions/*.md", "docs/howto/*.md", "docs/reference/*.md"),
)
# Names of files and code, which have their own rules.
SPAN = re.compile(r"`[^`\n]+`")

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
        text = path.read_text("utf-8", errors="replace")
        # Most files have none: lines are looked at one by one only where there is one.
        found = {what: pattern for what, pattern in FORBIDDEN.items() if pattern.search(text)}
        for number, line in enumerate(text.splitlines() if found else [], start=1):
            for what, pattern in found.items():
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


def dialect(text: str) -> list[str]:
    """The words of a text that are not plain, as complaints with their lines."""
    plain = SPAN.sub("`…`", text)
    found = [(match, instead) for phrase, instead in PHRASES.items() for match in phrase.finditer(plain)]
    return [
        f"{plain.count(chr(10), 0, match.start()) + 1}: '{match[0]}'; write: {instead}"
        for match, instead in sorted(found, key=lambda one: one[0].start())
    ]


def dialect_pages(root: Path) -> list[str]:
    """The words of the documents for users that are not plain, as complaints."""
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    names = {path.relative_to(root).as_posix(): path for path in pages}
    return [
        f"{name}:{complaint}"
        for name, path in names.items()
        for complaint in dialect(path.read_text("utf-8"))
    ]


def comments_of(text: str) -> Iterator[tuple[int, str]]:
    """The blocks of comments and the docstrings of a Python file, each with its first line."""
    lines = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    block: list[tuple[int, str]] = []
    for line, comment in [*lines, (0, "")]:
        if block and line != block[-1][0] + 1:
            yield block[0][0], "\n".join(one for _, one in block).replace("\n# ", "\n")
            block = []
        block.append((line, comment))
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (docstring := ast.get_docstring(node, clean=False)) is not None:
            yield node.body[0].lineno, docstring


def comments_of_statements(text: str) -> Iterator[tuple[int, str]]:
    """The comment lines of an SQL or Lua file as one text, so that phrases over line ends are found."""
    yield 1, "\n".join(re.sub(r"^\s*-- ?", "", line) if "--" in line else "" for line in text.splitlines())


def dialect_source(folder: Path) -> list[str]:
    """The words in comments and docstrings below a folder that are not plain, as complaints."""
    readers = {".py": comments_of, ".sql": comments_of_statements, ".lua": comments_of_statements}
    return [
        f"{path.relative_to(folder)}: near line {line}: {complaint}"
        for path in files(folder)
        if path.suffix in readers and PERHAPS.search(whole := path.read_text("utf-8"))
        for line, text in readers[path.suffix](whole)
        for complaint in dialect(text)
    ]


def help_texts(command: click.Command, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of all commands below it, each with its name."""
    # click keeps the help option of a command, with the names that it had first.
    names = app.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=command.name, parent=parent, max_content_width=10_000, help_option_names=names
    )
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from help_texts(below, context)


def test_documents_are_in_plain_words():
    """An engineer who has never seen the project knows every word."""
    assert dialect_pages(ROOT) == []


def test_source_is_in_plain_words():
    """Its comments and docstrings."""
    assert dialect_source(ROOT / "src/holdfast") == []


def test_dialect_is_found_in_source(tmp_path):
    """In docstrings and in comments of several lines, not in code."""
    text = 'def f(door):\n    """Whoever asks."""\n    # for one\n    # who waits\n    return "nobody"\n'
    plant(tmp_path, {"a/b.py": text, "a/c.sql": "-- Those\n-- who ask.\nSELECT nobody"})

    found = dialect_source(tmp_path)

    assert [one.partition(";")[0].replace("\n", " ") for one in found] == [
        "a/b.py: near line 3: 1: 'one who'",
        "a/b.py: near line 2: 1: 'Whoever'",
        "a/c.sql: near line 1: 1: 'Those who'",
    ]


def test_help_is_in_plain_words():
    """Of every command."""
    texts = dict(help_texts(app))

    assert len(texts) > 20
    assert [f"{name}: {complaint}" for name, text in texts.items() for complaint in dialect(text)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a\nA worker wakes one who waits.", "2: 'one who'"),
        ("Whoever comes first commits.", "1: 'Whoever'"),
        ("Jobs are over without\nmore ado.", "1: 'without\nmore ado'"),
        ("```python\n# it ended in vain\n```", "2: 'in vain'"),
        ("What is due, what runs.", "1: 'What is due'"),
    ],
)
def test_dialect_is_found(tmp_path, text, complaint):
    """In sentences and in the comments of code, over line ends too."""
    plant(tmp_path, {"README.md": "Plain.", "docs/a.md": text, "docs/images/b.md": text})

    found = dialect_pages(tmp_path)

    assert found[0].startswith(f"docs/a.md:{complaint}; write: ")
    assert all(one.startswith("docs/a.md:") for one in found)


def test_dialect_is_found_in_help():
    """In the text of a command below a group and in that of its options."""

    @click.group()
    def outer(): ...

    @outer.command(help="Handed out to one who waits.")
    @click.option("--x", help="Whoever asks.")
    def inner(x): ...

    found = {name: dialect(text) for name, text in help_texts(outer)}

    assert found["outer"] != []  # the list of commands has the first sentence
    assert len(found["outer inner"]) == 3


def test_plain_words_are_left_alone(tmp_path):
    """Names of code and files, and longer words that contain one of the list."""
    plant(tmp_path, {"docs/a.md": "See `serve/door.py`. Outdoors, recommended, the worker that waits."})

    assert dialect_pages(tmp_path) == []


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
