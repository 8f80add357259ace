"""Answers are kept, and submitted again, while the store cannot be written to."""

import asyncio
from typing import Any

import pytest

from holdfast.core import commands as c
from holdfast.core.errors import StoreError, StoreFull, Unavailable
from holdfast.core.job import Job, Place, State
from holdfast.engine.ticket import deliver
from holdfast.work.supervisor import commits as answer_writer
from holdfast.work.supervisor.commits import AnswerWriter

JOB = Job(id=1, task="t", place=Place.RUNNING, owner=1, claim=1)
ENDED = Job(id=1, task="t", place=Place.DONE, ended=State.FINISHED)


class Away:
    """A connection to a store that cannot be used for so many submissions."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.submitted = []

    def submit_all(self, tickets):
        """See `Connection`."""
        for ticket in tickets:
            self.submitted.append(ticket.command)
            ticket.answer(self.errors.pop(0) if self.errors else [ENDED])
        deliver(tickets, lambda ticket: None)


@pytest.mark.parametrize(
    "error",
    [Unavailable("gone"), StoreFull("no space"), StoreError("a replica")],
    ids=lambda error: error.code,
)
def test_an_answer_that_cannot_be_committed_is_submitted_again(error, monkeypatch):
    """The job has run; it is told once, and nothing is forgotten."""
    monkeypatch.setattr(answer_writer, "RETRY_S", 0.01)
    log: list[str] = []
    connection: Any = Away(error, error)

    async def answer():
        writer = AnswerWriter(log.append)
        writer.answer(connection, [(c.Answer(hold=c.hold_of(JOB)), JOB)])
        await writer.wait_until_committed()
        return writer.done

    assert asyncio.run(answer()) == 1
    assert len(connection.submitted) == 3
    assert log == [f"cannot commit answers, and tries again: {error}"]


def test_of_many_answers_those_that_cannot_be_committed_are_submitted_again(monkeypatch):
    """As a server replies that went away in the middle: each answer has its own reply."""
    monkeypatch.setattr(answer_writer, "RETRY_S", 0.01)
    log: list[str] = []
    other = Job(id=2, task="t", place=Place.RUNNING, owner=1, claim=1)
    connection: Any = Away([ENDED, Unavailable("gone")], ENDED)

    async def answer():
        writer = AnswerWriter(log.append)
        writer.answer(connection, [(c.Answer(hold=c.hold_of(job)), job) for job in (JOB, other)])
        await writer.wait_until_committed()
        return writer.done

    assert asyncio.run(answer()) == 2
    again = connection.submitted[1]
    assert again.held is other
    assert again.hold == c.hold_of(other)
    assert log == ["cannot commit answers, and tries again: gone"]
