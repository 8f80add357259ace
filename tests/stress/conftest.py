"""What the stress tests share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a figure, also where nothing failed: for docs/proof.md."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n    {request.node.name}: {text}\n")

    return say


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that processes can share, of each kind."""
    if request.param != "sqlite":
        return str(request.getfixturevalue(f"{request.param}_url"))
    return str(tmp_path / "jobs.db")
