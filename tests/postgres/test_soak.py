"""Very many jobs through one table, and somebody's transaction that stays open: how fast it is then.

add 1,000 ─▶ claim and finish 1,000 ─▶ …     the last tenth of the rounds beside the first
the same beside `BEGIN; SELECT …` that is never ended: dead rows pile up, and cannot be cleared away
"""

import statistics
import time
from typing import NamedTuple

import pytest

import holdfast
from holdfast.cli.bench_measures import BY, DATA, drain


class Size(NamedTuple):
    """How much, and how much slower it may be at the end: where others use the machine, much."""

    jobs: int
    open_s: float
    least: float


SMALL = Size(jobs=20_000, open_s=3, least=0.3)
FULL = Size(jobs=2_000_000, open_s=600, least=0.9)
SIZES = pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]
)


def a_round(queue):
    """Through the table and out again; how many a second were claimed and finished."""
    queue.add_many([("noop", DATA)] * BY)
    start = time.perf_counter()
    # As workers do, who name their tasks.
    assert drain(queue, tasks=("noop",)) == BY
    return BY / (time.perf_counter() - start)


@pytest.mark.timeout(7_200)
@SIZES
def test_after_very_many_jobs_it_is_as_fast_as_at_the_start(postgres_url, size, tell):
    """No slower by more than a tenth, with the archive growing all the while."""
    with holdfast.connect(postgres_url) as queue:
        a_round(queue)
        rates = [a_round(queue) for _ in range(size.jobs // BY)]

        assert queue.counts() == {"noop": {"FINISHED": size.jobs + BY}}
    part = max(len(rates) // 10, 1)
    first, last = statistics.median(rates[:part]), statistics.median(rates[-part:])
    tell(f"{size.jobs:,} jobs: {first:,.0f}/s at the start, {last:,.0f}/s at the end, {last / first:.2f}")
    assert last > size.least * first


@pytest.mark.timeout(7_200)
@SIZES
def test_beside_a_transaction_that_stays_open_claims_go_on(postgres, postgres_url, size, tell):
    """Slower, since what is dead has to be walked over; how much is told, and that it goes on."""
    with holdfast.connect(postgres_url) as queue:
        a_round(queue)
        before = statistics.median(a_round(queue) for _ in range(5))
        rates = []
        with postgres.connect() as other, other.transaction():
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT count(*) FROM pg_class")
            until = time.monotonic() + size.open_s
            while time.monotonic() < until:
                rates.append(a_round(queue))
        beside = statistics.median(rates[-5:])
        after = f"after {len(rates) * BY:,} jobs and {size.open_s:g} s beside it"
        tell(f"{before:,.0f}/s before, {beside:,.0f}/s {after}, {beside / before:.2f}")
        assert beside > 0.05 * before
