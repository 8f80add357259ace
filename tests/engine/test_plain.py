"""A batch of nothing but plain adds has a way of its own, which leaves and answers what the other does."""

import pytest
from holdfast.engine.commands.plain import plain

from holdfast.core import commands as c
from holdfast.engine import engine as engines
from holdfast.engine.engine import Engine
from holdfast.store.contract import JobFilter
from holdfast.store.memory.store import MemoryStore
from holdfast.testing.clock import MovedClock

NOW_MS = 1_767_225_600_000
NEW = c.NewJob(task="a", data='{"n":1}')
PLAIN = [
    c.Add(jobs=(NEW,)),
    c.Add(jobs=(NEW, c.NewJob(task="b", tenant="we", delay_ms=5_000)), more=("{}", "[]")),
    c.Add(jobs=(NEW, c.NewJob(task="a", repeat="now and then"))),
    c.Add(jobs=(NEW,), more=("{}",)),
    c.Add(jobs=()),
]
OTHERS = {
    "a unique key": c.Add(jobs=(c.NewJob(task="a", unique=b"u"),)),
    "a domain": c.Add(jobs=(NEW, c.NewJob(task="a", domain=b"d"))),
    "an id": c.Add(jobs=(c.NewJob(task="a", id=4096),)),
    "a parent": c.Add(jobs=(c.NewJob(task="a", parent_id=4096),)),
    "a claim": c.Claim(),
}


def story(commands):
    """What a batch answers and leaves behind."""
    engine = Engine(MemoryStore(MovedClock(NOW_MS)), dice=lambda: 0.5)
    engine.execute([])
    done = engine.execute(commands)

    def look(txn):
        jobs = txn.jobs(JobFilter(), after=0, limit=99)
        return jobs, txn.bodies([job.id for job in jobs]), txn.counts()

    return [str(reply) for reply in done.replies], done.woke, engine.read(look)


def test_it_leaves_and_answers_what_the_other_way_does(monkeypatch):
    """A command that is refused fails alone, with all of its jobs."""
    short = story(PLAIN)

    monkeypatch.setattr(engines, "plain", lambda commands: None)
    assert short == story(PLAIN)
    assert "now and then" in short[0][2]
    assert len(short[2][0]) == 7


def test_where_nothing_is_added_nobody_is_woken():
    """Those who wait have nothing to look for."""
    assert not story(PLAIN[4:])[1]
    assert story(PLAIN[:1])[1]


@pytest.mark.parametrize("other", OTHERS)
def test_what_may_meet_something_is_not_plain(other):
    """One of them is enough for the whole batch."""
    assert plain(PLAIN) == PLAIN
    assert plain([*PLAIN, OTHERS[other]]) is None
