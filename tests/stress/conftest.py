"""What the stress tests share."""

import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a figure, also where nothing failed: for docs/proof.md."""

    def say(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n    {request.node.name}: {text}\n")

    return say
