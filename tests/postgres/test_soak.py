"""Very many jobs through one table, and somebody's transaction that stays open: how fast it is then.

add 1,000 ─▶ claim and finish 1,000 ─▶ …     the last tenth of the rounds beside the first, each as a part of
                                             what the bare driver does on a fresh table in the same moment
the same beside `BEGIN; SELECT …` that is never ended: dead rows pile up, and cannot be cleared away
"""

import json
import statistics
import time
from typing import NamedTuple

import pytest

import holdfast
from holdfast.core import commands as c
from holdfast.engine.ticket import Ticket
from tests.postgres.bare import bare_table

BY = 1_000
DATA = {"path": "a.png", "width": 200, "filler": "x" * 62}
BARE_DATA = json.dumps(DATA)


class Size(NamedTuple):
    """How much, and how much slower it may be at the end: where others use the machine, much."""

    jobs: int
    open_s: float
    least: float


SMALL = Size(jobs=10_000, open_s=1, least=0.1)
FULL = Size(jobs=2_000_000, open_s=600, least=0.9)
SIZES = pytest.mark.parametrize(
    "size", [pytest.param(SMALL, id="small"), pytest.param(FULL, id="full", marks=pytest.mark.proof)]
)


def a_round(queue):
    """Through the table and out again; how many a second were claimed and finished."""
    queue.add_many([("noop", DATA)] * BY)
    start = time.perf_counter()
    connection = queue.connection
    claimed = connection.ask(c.Claim(tenant="", tasks=("noop",), limit=BY, lease_ms=60_000))
    # As a worker answers: many answers become one commit.
    tickets = [Ticket(c.Answer(hold=c.hold_of(one.job), held=one.job)) for one in claimed]
    connection.submit_all(tickets)
    assert [ticket.wait_for_reply().id for ticket in tickets] == [one.job.id for one in claimed]
    assert len(claimed) == BY
    return BY / (time.perf_counter() - start)


class Pair(NamedTuple):
    """Rates of the same moment: ours, and that of the bare driver on a fresh table."""

    ours: float
    bare: float


def a_pair(queue, postgres):
    """A round, and the same by the bare driver: how fast the machine is just now is in both."""
    with bare_table(postgres) as table:
        table.fill(BY, BARE_DATA)
        start = time.perf_counter()
        table.drain(BY)
        bare = BY / (time.perf_counter() - start)
    return Pair(a_round(queue), bare)


def said(pairs):
    """Both medians, for people."""
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    return f"{ours:,.0f}/s, {ours / bare:.3f} of the bare driver"


@pytest.mark.timeout(7_200)
@SIZES
def test_after_very_many_jobs_it_is_as_fast_as_at_the_start(postgres, postgres_url, size, tell):
    """No slower by more than a tenth, with the archive growing all the while."""
    rounds, part = size.jobs // BY, max(size.jobs // BY // 10, 5)
    with holdfast.connect(postgres_url) as queue:
        a_round(queue)
        first = [a_pair(queue, postgres) for _ in range(part)]
        for _ in range(rounds - 2 * part):
            a_round(queue)
        last = [a_pair(queue, postgres) for _ in range(part)]

        assert queue.counts() == {"noop": {"FINISHED": size.jobs + BY}}
    before, after = (statistics.median(pair.ours / pair.bare for pair in pairs) for pairs in (first, last))
    tell(f"{size.jobs:,} jobs: {said(first)} at the start; {said(last)} at the end: {after / before:.2f}")
    assert after > size.least * before


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
