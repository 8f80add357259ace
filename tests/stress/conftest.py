"""What the stress tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stores import here_and_in_proof


def _file(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return str(folder / "jobs.db")


def _served(fixture: str) -> Callable[[pytest.FixtureRequest], str]:
    return lambda request: str(request.getfixturevalue(fixture))


# Every store that processes can share: what makes the address of an empty one. Another joins by a line here.
SHAREABLE: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": _file,
    "postgres": _served("postgres_url"),
    "redis": _served("redis_url"),
}


# Redis runs one script at a time, and is hammered in `test_hammer.py`: here by `make proof`.
@pytest.fixture(params=here_and_in_proof(["sqlite", "postgres"], SHAREABLE))
def address(request: pytest.FixtureRequest) -> str:
    """The address of an empty store that processes can share, of each kind."""
    return SHAREABLE[request.param](request)
