"""What the documents show is true: their code runs, and their commands print what they say."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from holdfast.cli.app import app
from tests.house import run_document
from tests.house.run_document import Block, agrees, blocks, commands, is_run
from tests.house.source import ROOT

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md"))]
# Those with something to run.
DOCUMENTS = [
    str(page.relative_to(ROOT)) for page in PAGES if any(map(is_run, blocks(page.read_text("utf-8"))))
]
CODE = re.compile(r"^ *(`{3,}).*?^ *\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"\bholdfast (?P<name>[a-z][a-z-]*)(?P<rest>(?: [^|;&`\n)]*)?)")


class Ended(NamedTuple):
    """How a document ended, and what it printed."""

    code: int
    text: str


Run = Callable[[Path, Path], Ended]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a document in a folder, with the tools of this environment and nothing of the caller's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment |= {
        # What people see at a terminal.
        "HOLDFAST_LOG_FORMAT": "text",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    output = tmp_path_factory.mktemp("documents") / "output"
    command = [sys.executable, "-P", "-W", "error", run_document.__file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def run(document: Path, folder: Path) -> Ended:
            output.write_bytes(b"")
            request = {"document": str(document), "folder": str(folder), "output": str(output)}
            asked.write(json.dumps(request | {"environment": environment}) + "\n")
            asked.flush()
            return Ended(int(told.readline()), output.read_text())

        yield run


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_runs(run, document, tmp_path):
    """From top to bottom, in an empty folder."""
    done = run(ROOT / document, tmp_path)

    assert done.code == 0, done.text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```", "line 6"),
        ("# A title\n\n```python\njson.dumps({})\n```", "NameError"),
        ("```console\n$ false\n```", "exited with 1"),
        ("```console\n$ echo one\ntwo\n```", "where the document shows"),
        ("```console\n$ echo one; exit 3\none\n```", "exited with 3"),
        ("<!-- exits 3 -->\n```console\n$ true\n```", "exited with 0, not 3"),
        ("<!-- not run: -->\n```console\n$ false\n```", "exited with 1"),
        ("- item\n\n  ```python\n  raise KeyError\n  ```", "KeyError"),
        ("<!-- background -->\n```console\n$ echo one\ntwo\n```", "where the document shows"),
        (
            (
                "<!-- background -->\n```console\n"
                "$ sh -c 'trap \"exit 3\" TERM; echo on; while :; do sleep 0.1; done'\non\n```"
            ),
            "after SIGTERM",
        ),
        ("<!-- file a.py -->\n```python\nx = 1\n```\n```python\nprint(x)\n```", "NameError"),
    ],
)
def test_a_document_that_is_wrong_fails(run, tmp_path, text, complaint):
    """Wrong code, wrong output, wrong exit code; leaving a block out needs a reason."""
    document = tmp_path / "wrong.md"
    document.write_text(text)

    done = run(document, tmp_path)

    assert done.code == 1
    assert complaint in done.text


def unknown(text: str) -> list[str]:
    """The commands and options of Holdfast in the code of a document that do not exist."""
    found = []
    for code in CODE.finditer(text):
        # Also as a list in YAML, and over several lines.
        plain = code[0].replace('", "', " ").replace("\\\n", " ").replace('"', "")
        for line in COMMAND.finditer(plain):
            command = app.get_command(click.Context(app), line["name"])
            known = set() if command is None else options(command)
            used = re.findall(r"(?<= )--[a-z-]+", line["rest"])
            found += [line[0]] if command is None else [one for one in used if one not in known]
    return found


def options(command: click.Command) -> set[str]:
    """Those of a command and of all commands below it."""
    found = {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
    if isinstance(command, click.Group):
        found = found.union(*map(options, command.commands.values()))
    return found


def test_what_documents_type_exists():
    """Commands and options that are not run as well: those of unit files, containers and other machines."""
    found = {page.name: unknown(page.read_text("utf-8")) for page in PAGES}

    assert {name: words for name, words in found.items() if words} == {}


def test_commands_that_do_not_exist_are_found():
    """In console blocks, in lists of YAML and inside sentences; not in prose."""
    text = """Run `holdfast wroker app:queue`, as holdfast runs it.
```yaml
command: ["holdfast", "worker", "--thread", "4"]
```
```console
$ holdfast requeue --task x \\
    --form 3
```
"""

    assert unknown(text) == ["holdfast wroker app:queue", "--thread", "--form"]


def test_a_document_that_is_missing_fails(run, tmp_path):
    """It is not passed over in silence."""
    assert run(tmp_path / "missing.md", tmp_path).code == 1


def test_a_document_is_one_program(run, tmp_path):
    """Blocks share names and a folder; types are found by their names; what is not to run does not."""
    document = tmp_path / "right.md"
    document.write_text(
        """
```python
from __future__ import annotations
import dataclasses, pathlib, typing

@dataclasses.dataclass
class Point:
    x: Number

Number = int
```
```python
assert typing.get_type_hints(Point) == {"x": int}
pathlib.Path("made.txt").write_text("kelp and rock")
```
```console
$ make nothing
$ git clone somewhere
$ cat made.txt
kelp ... rock
$ printf '%s\\n' one \\
    two
one
two
```
<!-- exits 4 -->
```console
$ exit 4
```
<!-- not run: it would not end -->
```python
raise SystemExit(1)
```
```text
$ false
```
"""
    )

    done = run(document, tmp_path)

    assert done.code == 0, done.text


def test_a_command_may_run_beside_the_next_blocks(run, tmp_path):
    """It is started when its block comes, answers those that follow, and is ended with the document."""
    document = tmp_path / "beside.md"
    document.write_text(
        """
<!-- file server.py -->
```python
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("ended").touch(), sys.exit(0)))
print("ready", flush=True)
while True:
    signal.pause()
```
<!-- background -->
```console
$ python server.py
ready
```
```console
$ ls
...server.py
```
"""
    )

    done = run(document, tmp_path)

    assert done.code == 0, done.text
    assert (tmp_path / "ended").exists()


def test_blocks_are_found():
    """With their lines and what stands before them, also inside longer fences and lists."""
    text = "```python\na\n```\n<!-- before -->\n````md\n```python\n````\n\n  ```console\n  $ b\n  ```\n"

    assert list(blocks(text)) == [
        Block("python", 2, "a\n", ""),
        Block("md", 6, "```python\n", "<!-- before -->"),
        Block("console", 10, "$ b\n", ""),
    ]


def test_commands_are_found_with_their_output():
    """A command without any may print what it likes."""
    block = Block("console", 10, "$ a \\\n  b\n$ c\nd\n\ne\n", "")

    assert [(c.line, c.text, c.output) for c in commands(block)] == [
        (10, "a \\\n  b", None),
        (12, "c", "d\n\ne"),
    ]


def test_output_may_be_shown_in_part():
    """Dots are any text; everything else is literal."""
    assert agrees("job 17 (done)  \nnext\n", shown="job ... (done)\n...")
    assert agrees("a\nb\nc", shown="a\n...\nc")
    assert not agrees("job 17 (done)", shown="job ... done")
    assert not agrees("one\ntwo", shown="one")
