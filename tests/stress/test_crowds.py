"""However processes die, innocent jobs finish and poisonous ones are quarantined. See `crowds`."""

import random
import time
from collections import Counter

import pytest

from .crowds import Run, random_crowd

FEW, MANY = 1, 334
# Its crowd: 25 innocent jobs, one that hangs, one that kills; an executor and a supervisor are killed.
SEED = 351


@pytest.mark.parametrize(
    ("place", "crowds"),
    [
        pytest.param("", FEW, id="few", marks=pytest.mark.proof),
        pytest.param("", MANY, id="sqlite", marks=pytest.mark.proof),
        pytest.param("postgres_url", MANY, id="postgres", marks=pytest.mark.proof),
        pytest.param("redis_url", MANY, id="redis", marks=pytest.mark.proof),
    ],
)
def test_whatever_dies_the_innocent_finish(tmp_path, request, place, crowds, tell):
    """Random crowds, kills of executors and supervisors at random moments."""
    rng = random.Random(SEED if crowds == FEW else None)
    kills: Counter[str] = Counter()
    started_s = time.monotonic()
    url = request.getfixturevalue(place) if place else str(tmp_path / "jobs.db")

    for n in range(crowds):
        folder = tmp_path / str(n)
        folder.mkdir()
        run = Run(folder, url, random_crowd(rng), rng)
        try:
            run.fill()
            run.work()
            assert run.complaints() == []
        finally:
            run.close()
        kills += run.kills

    killed = f"{kills['executor']} executors and {kills['supervisor']} supervisors killed"
    tell(f"{crowds} crowds, {killed}, {time.monotonic() - started_s:.0f} s")
