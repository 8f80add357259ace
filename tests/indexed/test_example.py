"""The example runs, and ends with everything verified."""

import subprocess
import sys

from tests.house.source import ROOT


def test_the_node_catches_up_after_being_offline():
    """From where its progress was, up to the chain's height."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "blocks.py"], capture_output=True, text=True, timeout=100
    )

    assert done.returncode == 0, done.stderr
    assert "50 →  2,000" in done.stdout
    assert "3,000 of 3,000 chunks are verified" in done.stdout
