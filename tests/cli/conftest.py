"""A shell for each test."""

import os

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path, monkeypatch) -> Shell:
    """Command lines in an empty folder, with nothing of the caller's environment."""
    for name in os.environ:
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)
