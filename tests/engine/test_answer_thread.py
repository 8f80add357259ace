"""Many answers of a worker are committed beside its claims, where the store can do that."""

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import Closed, LeaseLost
from holdfast.core.job import State
from holdfast.engine.committer import MANY_ANSWERS, Committer
from holdfast.engine.engine import Engine
from holdfast.engine.group import MOST_WAITING
from holdfast.engine.ticket import Ticket
from holdfast.store.common.clock import monotonic_s
from holdfast.store.contract import Capabilities
from holdfast.store.memory.store import MemoryStore
from tests.engine.test_group import Several

CLAIM = c.Claim(tasks=("work",), limit=1_000, lease_ms=60_000)


class Apart(Several):
    """One batch at a time, and answers beside it; one batch takes its time before it begins."""

    capabilities = Capabilities(answers_beside=True)


@pytest.fixture
def store():
    return Apart()


@pytest.fixture
def line(store):
    line = Committer(Engine(store, rng=lambda: 0.5))
    yield line
    store.goes_on.set()
    line.close()


def test_many_answers_do_not_wait_for_a_claim(store, line):
    check_answers_beside_a_claim(store, line)


def test_nor_where_several_commits_may_be_made_at_once():
    """One of them is for answers then."""
    store = Several()
    line = Committer(Engine(store, rng=lambda: 0.5))
    check_answers_beside_a_claim(store, line)
    line.close()


def check_answers_beside_a_claim(store, line):
    answers = claim_and_answer(line, MANY_ANSWERS)
    claim = begin_slow_claim(store, line)

    line.submit(answers)

    assert {job.ended for job in line.reply_of(answers)} == {State.FINISHED}
    assert not claim.answered
    store.goes_on.set()
    assert line.reply_of(claim) == []


def test_answers_that_pile_up_come_before_the_next_claim(store, line):
    """Otherwise a worker would claim and run without end what a slow store cannot answer."""
    first, many, more = (
        claim_and_answer(line, count) for count in (MANY_ANSWERS, MOST_WAITING, MANY_ANSWERS)
    )
    store.slow = True
    line.submit(first)
    assert store.began.wait(60)

    line.submit(many)
    line.submit_all([more])

    assert len(line.reply_of(more)) == MANY_ANSWERS
    assert not first.answered
    assert not many.answered
    store.goes_on.set()
    assert [len(line.reply_of(one)) for one in (first, many)] == [MANY_ANSWERS, MOST_WAITING]


def test_few_answers_come_after_the_claim(store, line):
    """They may be those of jobs with a limit: together with the next claim they are one commit."""
    answers = claim_and_answer(line, MANY_ANSWERS - 1)
    begin_slow_claim(store, line)

    line.submit(answers)

    answers.wait()
    assert not answers.answered
    store.goes_on.set()
    assert len(line.reply_of(answers)) == MANY_ANSWERS - 1


def test_a_step_does_not_wait_for_a_claim(store, line):
    answers = claim_and_answer(line, 1)
    (job,) = answers.command.held
    claim = begin_slow_claim(store, line)
    step = Ticket(c.Step(hold=c.hold_of(job), held=job, name="one", result="1"))

    line.submit(step)

    assert line.reply_of(step).steps == 1
    assert not claim.answered
    store.goes_on.set()


@pytest.mark.parametrize("kind", [Several, MemoryStore])
def test_new_jobs_are_a_commit_of_their_own_where_commands_are_messages(kind):
    """The claim that waited for them is one then: two plain ones are fewer messages than a batch."""
    line = Committer(Engine(kind(), rng=lambda: 0.5))
    line.ask(c.Add(jobs=(c.NewJob(task="other"),)))
    line.submit(claim := Ticket(CLAIM, deadline_s=monotonic_s() + 60))
    with pytest.MonkeyPatch.context() as patch:
        sizes = []
        execute = Engine.execute

        def measured(*args):
            sizes.append(len(args[1]))
            return execute(*args)

        patch.setattr(Engine, "execute", measured)
        line.submit(Ticket(c.Add(jobs=(c.NewJob(task="work"),))))
        assert len(line.reply_of(claim)) == 1

    assert sizes[-2:] == ([1, 1] if kind is Several else [2])
    line.close()


def test_answers_with_other_commands_keep_their_order(store, line):
    answers = claim_and_answer(line, MANY_ANSWERS)
    begin_slow_claim(store, line)

    release = Ticket(c.Release(hold=answers.command.answers[0].hold))
    line.submit_all([release, answers])

    store.goes_on.set()
    assert not isinstance(line.reply_of(release), BaseException)
    first, *others = line.reply_of(answers)
    assert isinstance(first, LeaseLost)
    assert {job.ended for job in others} == {State.FINISHED}


def test_pending_answers_are_committed_by_close(store, line):
    answers = claim_and_answer(line, MANY_ANSWERS)
    store.goes_on.set()

    line.submit(answers)
    line.close()

    assert len(line.reply_of(answers)) == MANY_ANSWERS
    late = Ticket(answers.command)
    line.submit(late)
    assert isinstance(line.reply_of(late), Closed)


def test_a_store_without_a_server_has_no_thread_for_answers():
    line = Committer(Engine(MemoryStore(), rng=lambda: 0.5))
    answers = claim_and_answer(line, MANY_ANSWERS)

    line.submit_all([answers, claim := Ticket(CLAIM)])

    assert line.reply_of(claim) == []
    assert answers.answered
    line.close()


def claim_and_answer(line, count):
    """A ticket with the answers of this many claimed jobs."""
    line.ask(c.Add(jobs=(c.NewJob(task="work"),) * count))
    held = tuple(one.job for one in line.ask(CLAIM))
    return Ticket(c.AnswerAll(answers=tuple(c.Answer(hold=c.hold_of(job)) for job in held), held=held))


def begin_slow_claim(store, line):
    """A claim whose commit has begun, and does not end before `store.goes_on`."""
    store.slow = True
    claim = Ticket(CLAIM)
    line.submit(claim)
    assert store.began.wait(60)
    return claim
