"""Workers are killed and stopped while they work: nothing is lost, and no job has two valid claims at once.

3 × worker ──▶ one file          every so many runs one executor or supervisor is killed, or stopped
  └── 2 executors ──▶ history    for longer than its leases
                        └──▶ held against the store when all has ended
"""

import time
from collections import Counter
from contextlib import closing
from typing import NamedTuple

import pytest

import holdfast
from holdfast.store.sqlite.store import SqliteStore

from . import kills
from .checks import sound
from .kills import ASLEEP_S, Gang


class Size(NamedTuple):
    """How much of it."""

    workers: int
    jobs: int
    kills: int
    patience_s: float


SMALL = Size(workers=3, jobs=1_500, kills=3, patience_s=600)
FULL = Size(workers=3, jobs=200_000, kills=500, patience_s=5_400)


@pytest.mark.long
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, id="small", marks=[pytest.mark.proof, pytest.mark.timeout(900)]),
        pytest.param(FULL, id="full", marks=[pytest.mark.proof, pytest.mark.timeout(7200)]),
    ],
)
def test_whoever_is_killed_nothing_is_lost_and_no_job_has_two_valid_claims(tmp_path, size, tell):
    """Executors and supervisors killed, supervisors asleep past their leases, at any moment."""
    started_s = time.monotonic()
    accepted = _filled(tmp_path / "jobs.db", size.jobs)

    with Gang(tmp_path, workers=size.workers, words=("--processes", "2", "--threads", "2")) as gang:
        for n in range(1, size.kills + 1):
            gang.wait_for_runs(n * size.jobs // (size.kills + 1), size.patience_s)
            gang.strike()
        with holdfast.connect(gang.store) as queue:
            gang.wait(lambda: _all_ended(queue, size.jobs), size.patience_s, "end of all jobs")
        gang.dismiss()

    runs = kills.read(gang.history)
    stood = _stood(gang.store, accepted)
    assert list(kills.claims_are_alone(runs, stood)) == []
    assert list(kills.unexplained(runs, gang.blows)) == []
    _show(tell, gang, runs, stood, time.monotonic() - started_s)


def _filled(path, jobs):
    """Jobs of 0 to 5 ms, and one in a thousand that outlasts any sleep; the numbers of those accepted."""
    long_ms = int(ASLEEP_S * 1_150)
    data = [{"ms": long_ms if n % 1_000 == 7 else n % 6} for n in range(jobs)]
    with holdfast.connect(str(path)) as queue:
        # One that is unlucky ten times over would be set aside as the killer, as it should be elsewhere.
        return [job.id for job in queue.add_many([("work", one) for one in data], losses=1_000)]


def _all_ended(queue, jobs):
    return queue.counts().get("work", {}) == {"FINISHED": jobs}


def _stood(path, accepted):
    """Of each job the claim under which it finished: all are there, and have their result."""
    stood = {}
    with holdfast.connect(str(path)) as queue:
        for job_id in accepted:
            job = queue.get(job_id)
            assert job.state == "FINISHED", queue.why(job_id)
            assert queue.result(job_id) == {"claim": job.claim}
            stood[job_id] = job.claim
    with closing(SqliteStore(path)) as store:
        assert sound(store) == []
    return stood


def _show(tell, gang, runs, stood, seconds):
    ways = Counter(blow.way for blow in gang.blows)
    again = len(runs) - len(stood)
    killed = f"{ways['executor']} executors and {ways['supervisor']} supervisors killed"
    slept = f"{ways['sleeper']} stopped past their leases"
    late = f"{kills.late(runs)} beside one that had lost its claim; {gang.refused()} late answers refused"
    tell(f"{len(stood):,} jobs finished; {killed}, {slept}; {again:,} runs again, {late}; {seconds:.0f} s")
