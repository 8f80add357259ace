"""Reopened after every crash: a scripted series of verbs, cut off by SIGKILL wherever it happens to be.

play ──────✕          every few crashes on a new file, so that some fall into its making
        └──▶ open ─▶ integrity, promises of the model, everything that was told stands ─▶ play on
"""

import random
import time

import pytest

from . import checks, script
from .crew import Crew

SIZES = [pytest.param(6, id="small"), pytest.param(200, id="full", marks=pytest.mark.proof)]

# So many crashes a file has to bear.
CRASHES_OF_A_FILE = 4
# A round of the script takes about a second; the making of a file, a few hundredths of one.
SOON_S, LATE_S = 0.05, 1.0


@pytest.mark.parametrize("crashes", SIZES)
def test_the_store_opens_after_every_crash(tmp_path, crashes, tell):
    """Sound, consistent, and with all that was accepted."""
    rng = random.Random()

    for crash in range(crashes):
        path = tmp_path / f"jobs-{crash // CRASHES_OF_A_FILE}.db"
        book = path.with_suffix(".ledger")
        with Crew() as crew:
            victim = crew.start(script.play, path=str(path), ledger=str(book), tag=f"life-{crash}")
            assert victim.hear() == "ready"
            time.sleep(rng.uniform(0, SOON_S if rng.random() < 0.3 else LATE_S))
            assert victim.state() != "Z", "it ended by itself; see its stderr"

        assert checks.broken(path, book) == []

    tell(f"{crashes} crashes survived")
