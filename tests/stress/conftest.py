"""What the stress tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest


def _file(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return str(folder / "jobs.db")


def _postgres(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_url"))


# Every store that processes can share: what makes the address of an empty one. Another joins by a line here.
SHAREABLE: dict[str, Callable[[pytest.FixtureRequest], str]] = {"sqlite": _file, "postgres": _postgres}


@pytest.fixture(params=SHAREABLE)
def address(request: pytest.FixtureRequest) -> str:
    """The address of an empty store that processes can share, of each kind."""
    return SHAREABLE[request.param](request)
