"""Jobs with a limit: an answer makes the next one claimable, so a waiting claim is committed with it."""

import pytest

from holdfast.core import bounds
from holdfast.core import commands as c
from holdfast.core.limits import Limit
from holdfast.engine.committer import Committer
from holdfast.engine.engine import Engine
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import Store
from holdfast.store.sqlite.store import SqliteStore

CLAIM = c.Claim(tasks=("work",), limit=10, lease_ms=60_000)
WAIT_S = 60.0


class Noting(Engine):
    """An engine that notes which commands are committed together."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, rng=lambda: 0.5)
        self.batches: list[set[type]] = []

    def execute(self, commands, *words):
        """One more."""
        self.batches.append({type(command) for command in commands})
        return super().execute(commands, *words)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "UPKEEP_PERIOD_MS", 3_600_000)
    return Noting(SqliteStore(str(tmp_path / "jobs.db")))


@pytest.fixture
def line(engine):
    line = Committer(engine)
    yield line
    line.close()


def wait_for_claim(line):
    """Wait until a claim has found nothing, and waits."""
    until_s = monotonic_s() + WAIT_S
    while not line._waiter._claims:
        assert monotonic_s() < until_s


def finish(line, claimed):
    """Answer a job as a worker does."""
    answers = Ticket(c.AnswerAll(answers=(c.Answer(hold=c.hold_of(claimed.job), held=claimed.job),)))
    line.submit(answers)
    line.reply_of(answers)


def answer(line, claimed):
    """Answer a job while a claim waits; the claim."""
    waiting = Ticket(CLAIM, deadline_s=monotonic_s() + WAIT_S)
    line.submit(waiting)
    wait_for_claim(line)
    line.engine.batches.clear()
    finish(line, claimed)
    return waiting


def test_an_answer_and_the_next_claim_are_one_batch(engine, line):
    """From the second job on; and the first, if the store tells just then that something has changed."""
    line.ask(c.SetLimit(domain=b"one", limit=Limit(concurrency=1)))
    line.ask(c.Add(jobs=tuple(c.NewJob(task="work", data="{}", domain=b"one") for _ in range(6))))
    (claimed,) = line.ask(CLAIM)
    (claimed,) = line.reply_of(answer(line, claimed))

    for _ in range(4):
        (claimed,) = line.reply_of(answer(line, claimed))
        assert engine.batches == [{c.AnswerAll, c.Claim}]


def test_an_answer_that_brings_nothing_is_committed_alone(engine, line):
    """The claim that waits is not tried again, however often."""
    line.ask(c.Add(jobs=tuple(c.NewJob(task="work", data="{}") for _ in range(4))))
    claimed = line.ask(CLAIM)

    line.submit(waiting := Ticket(CLAIM, deadline_s=monotonic_s() + WAIT_S))
    wait_for_claim(line)
    # The first `wait` of a store may tell that something has changed.
    finish(line, claimed[0])
    for one in claimed[1:]:
        engine.batches.clear()
        finish(line, one)
        assert engine.batches == [{c.AnswerAll}]
    assert not waiting.answered
