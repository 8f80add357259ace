"""Four processes work off the same jobs: none is ever held by two at once, and none is forgotten.

4 × claim 50 ─▶ ledger ─▶ finish each ─▶ ledger        each job: one start, one end, by the same process
"""

import time
from collections import Counter

import pytest

import holdfast

from . import checks, crowd, ledger
from .crew import Crew

PROCESSES = 4
# By what is added at once.
BY = 2_000
SIZES = [pytest.param(4_000, id="small"), pytest.param(1_000_000, id="full", marks=pytest.mark.proof)]


@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("jobs", SIZES)
def test_no_job_is_held_by_two_at_once(tmp_path, address, jobs, tell):
    """Nobody's lease ends meanwhile, so that each job is handed out once."""
    book = tmp_path / "ledger"
    accepted: list[int] = []
    with holdfast.connect(address) as queue:
        for _ in range(jobs // BY):
            accepted += [job.id for job in queue.add_many([("work", {"n": n}) for n in range(BY)])]

    started_s = time.monotonic()
    with Crew() as crew:
        members = [crew.start(crowd.work, path=address, ledger=str(book)) for _ in range(PROCESSES)]
        for said, told in (("ready", "go"), ("holding", "go on")):
            for member in members:
                assert member.hear() == said
            for member in members:
                member.say(told)
        crew.finish(patience_s=7_000)
    took_s = time.monotonic() - started_s

    events = ledger.read(book)
    starts = Counter(id for event in checks.of(events, "starts") for id in event["ids"])
    claims = {claim for event in checks.of(events, "starts") for claim in event["claims"]}
    ends = Counter(id for event in checks.of(events, "ends") for id in event["ids"])
    assert starts == ends == Counter(accepted)
    assert claims == {1}
    with holdfast.connect(address) as queue:
        assert queue.counts() == {"work": {"FINISHED": jobs}}
    shares = Counter(event["pid"] for event in checks.of(events, "starts"))
    assert len(shares) == PROCESSES
    tell(f"{jobs:,} jobs by {PROCESSES} processes, {jobs / took_s:,.0f}/s; batches {sorted(shares.values())}")
