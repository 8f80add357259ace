"""Type checkers find nothing in the examples, nor in what `typing_examples.py` has refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.run_document import blocks
from tests.house.source import ROOT

pytestmark = pytest.mark.proof

EXAMPLES = ROOT / "examples"
# Django tells no types.
DJANGO = (
    "--exclude",
    "migrations/",
    "--allow-subclassing-any",
    "--allow-untyped-decorators",
    "--no-warn-return-any",
)
RESULT = """
from typing import assert_type
from {module} import {task}
assert_type({task}.add(1).result(wait=1), str)
"""


def run(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment."""
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )


def test_pyright_finds_nothing():
    """Strictly, but for what uses libraries without types."""
    done = run("basedpyright", folder=ROOT)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("folder", "files", "task", "options"),
    [
        ("", ["tour.py", "blocks.py", "demo.py"], "", ()),
        ("fastapi_shop", ["shop.py"], "shop.send_receipt", ()),
        ("django_shop", ["orders", "shop"], "orders.tasks.send_receipt", DJANGO),
    ],
)
def test_mypy_finds_nothing(folder, files, task, options, tmp_path):
    """Strictly, as somebody has it who has installed Holdfast; results have the type of their function."""
    module, _, name = task.rpartition(".")
    (config := tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-django.*]\nignore_missing_imports = True\n")
    (results := tmp_path / "results.py").write_text(RESULT.format(module=module, task=name) if task else "")

    words = ("--strict", "--config-file", config, "--cache-dir", ROOT / ".cache/mypy_of_examples", *options)
    done = run("mypy", *words, *files, results, folder=EXAMPLES / folder, MYPYPATH=str(EXAMPLES / folder))

    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_nothing_in_a_page(tmp_path):
    """All code of the page is one program; it needs no annotations that the page does not show."""
    page = blocks((ROOT / "docs/fastapi.md").read_text("utf-8"))
    (program := tmp_path / "shop.py").write_text(
        "\n\n".join(block.text for block in page if block.language == "python")
    )
    (config := tmp_path / "mypy.ini").write_text("[mypy]\n")

    words = ("--strict", "--config-file", config, "--cache-dir", ROOT / ".cache/mypy_of_examples")
    done = run("mypy", *words, program, folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
